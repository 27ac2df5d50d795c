//! SubjectAccessReview: may this user do that?

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use moka::future::Cache;

use super::{Asker, Cluster, ClusterError, REVIEW_BYTES, REVIEW_TTL, ReviewKind, ReviewSource};
use crate::user::User;

/// Answers to longer questions are not remembered: who asks could fill the
/// memory with them. As kube-apiserver.
const REMEMBERED_LENGTH: usize = 10_000;
/// What an answer costs besides the texts of its question.
const ENTRY: usize = 500;

/// What a user wants to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// Something with a resource.
    Resource {
        /// `get`, `list`, …
        verb: &'static str,
        /// API group; empty for the core group.
        group: String,
        /// Version.
        version: String,
        /// Plural.
        resource: String,
        /// Empty if none.
        subresource: String,
        /// Empty over all namespaces and for cluster-scoped kinds.
        namespace: String,
        /// Empty if none.
        name: String,
    },
    /// Something with a path that belongs to no resource.
    Path {
        /// The method, in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

/// The cluster's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may.
    pub allowed: bool,
    /// What the authorizer said about it; usually nothing.
    pub reason: String,
}

/// Code that decides in place of the cluster.
pub type Authorizer =
    Arc<dyn Fn(&SubjectAccessReviewSpec) -> SubjectAccessReviewStatus + Send + Sync>;

/// Answers that still hold.
pub(super) type Answers = Cache<Arc<(User, Attributes)>, Decision>;

pub(super) fn answers() -> Answers {
    let weigh = |key: &Arc<(User, Attributes)>, _: &Decision| {
        u32::try_from(length(&key.0, &key.1) + ENTRY).unwrap_or(u32::MAX)
    };
    Cache::builder().weigher(weigh).max_capacity(REVIEW_BYTES).time_to_live(REVIEW_TTL).build()
}

impl Cluster {
    /// Whether the user may do this. Answers are remembered for ten seconds,
    /// failures are not; equal questions at the same time are asked once.
    ///
    /// # Errors
    /// When the cluster does not answer: then nobody knows, so nobody may.
    pub async fn authorize(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Decision, ClusterError> {
        if let Some(authorizer) = &self.authorizer {
            return Ok(Decision::from(authorizer(&spec(user, attributes))));
        }
        if length(user, attributes) >= REMEMBERED_LENGTH {
            return Box::pin(self.ask(user, attributes)).await;
        }
        let key = Arc::new((user.clone(), attributes.clone()));
        let answer = self
            .access_reviews
            .entry(key)
            .or_try_insert_with(Box::pin(self.ask(user, attributes)))
            .await;
        let hit = answer.as_ref().is_ok_and(|entry| !entry.is_fresh());
        self.observed.tell(ReviewKind::Access, ReviewSource::Cache { hit });
        answer
            .map(moka::Entry::into_value)
            .map_err(|error: Arc<ClusterError>| ClusterError::clone(&error))
    }

    async fn ask(&self, user: &User, attributes: &Attributes) -> Result<Decision, ClusterError> {
        let review = SubjectAccessReview { spec: spec(user, attributes), ..Default::default() };
        let asker = if user.is_anonymous() { Asker::Stranger } else { Asker::User(&user.name) };
        let kind = ReviewKind::Access;
        let answer = self.review("SubjectAccessReview", kind, asker, &review).await?;
        Ok(Decision::from(answer.status.unwrap_or_default()))
    }
}

impl From<SubjectAccessReviewStatus> for Decision {
    fn from(status: SubjectAccessReviewStatus) -> Self {
        Self {
            allowed: status.allowed && !status.denied.unwrap_or_default(),
            reason: status.reason.unwrap_or_default(),
        }
    }
}

fn spec(user: &User, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()),
        ..Default::default()
    };
    let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    match attributes {
        Attributes::Resource { verb, group, version, resource, subresource, namespace, name } => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some((*verb).to_owned()),
                group: filled(group),
                version: filled(version),
                resource: filled(resource),
                subresource: filled(subresource),
                namespace: filled(namespace),
                name: filled(name),
                ..Default::default()
            });
        }
        Attributes::Path { verb, path } => {
            spec.non_resource_attributes =
                Some(NonResourceAttributes { path: filled(path), verb: filled(verb) });
        }
    }
    spec
}

fn length(user: &User, attributes: &Attributes) -> usize {
    let extra = user.extra.iter().map(|(key, values)| key.len() + texts(values)).sum::<usize>();
    let user = user.name.len() + texts(&user.groups) + extra;
    user + match attributes {
        Attributes::Resource { group, version, resource, subresource, namespace, name, .. } => {
            [group, version, resource, subresource, namespace, name].map(String::len).iter().sum()
        }
        Attributes::Path { verb, path } => verb.len() + path.len(),
    }
}

fn texts(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}
