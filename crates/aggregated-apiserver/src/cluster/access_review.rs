//! Authorization with SubjectAccessReviews.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use moka::future::Cache;

use super::{Asker, Cluster, ClusterError, REVIEW_BYTES, REVIEW_TTL, ReviewKind, ReviewSource};
use crate::error::{ApiError, quote};
use crate::user::User;

/// The length of a request, in bytes, from which its result is not cached. Otherwise callers could fill the memory.
/// Same as kube-apiserver.
const REMEMBERED_LENGTH: usize = 10_000;
/// The memory of a cached result in addition to the strings of its request, in bytes.
const ENTRY: usize = 500;

/// The action to authorize.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// A request for a resource.
    Resource {
        /// The verb: `get`, `list`, …
        verb: Cow<'static, str>,
        /// The API group; empty for the core group.
        group: String,
        /// The version.
        version: String,
        /// The plural of the resource.
        resource: String,
        /// The subresource, or an empty string.
        subresource: String,
        /// The namespace, or an empty string for requests across all namespaces and for cluster-scoped kinds.
        namespace: String,
        /// The name of the object, or an empty string.
        name: String,
    },
    /// A request for a path outside of the resources.
    Path {
        /// The HTTP method, in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

impl Attributes {
    /// The message of a denial, in kube-apiserver's format.
    pub fn denied_to(&self, user: &User) -> String {
        let user = quote(&user.name);
        match self {
            Self::Resource { verb, group, resource, subresource, namespace, .. } => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                format!(
                    "User {user} cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
                )
            }
            Self::Path { verb, path } => format!("User {user} cannot {verb} path \"{path}\""),
        }
    }

    /// The error of a request without this permission.
    pub fn forbidden(&self, why: &str) -> ApiError {
        match self {
            Self::Resource { group, resource, name, .. } => {
                ApiError::forbidden(group, resource, name, why).of_authorization()
            }
            Self::Path { .. } => ApiError::forbidden_path(why).of_authorization(),
        }
    }
}

/// The result of an authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// The reason that the authorizer gave; usually empty.
    pub reason: String,
}

/// A function that authorizes requests instead of the cluster.
pub type Authorizer =
    Arc<dyn Fn(&SubjectAccessReviewSpec) -> SubjectAccessReviewStatus + Send + Sync>;

/// The cache of results.
pub(super) type Answers = Cache<Arc<(User, Attributes)>, Decision>;

pub(super) fn answers() -> Answers {
    let weigh = |key: &Arc<(User, Attributes)>, _: &Decision| {
        u32::try_from(length(&key.0, &key.1) + ENTRY).unwrap_or(u32::MAX)
    };
    Cache::builder().weigher(weigh).max_capacity(REVIEW_BYTES).time_to_live(REVIEW_TTL).build()
}

impl Cluster {
    /// Authorizes an action of a user. Results are cached for ten seconds; errors are not cached. Concurrent equal
    /// requests cause one review.
    ///
    /// # Errors
    /// If the cluster does not respond. The action must be rejected then.
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
                verb: Some(verb.clone().into_owned()),
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
