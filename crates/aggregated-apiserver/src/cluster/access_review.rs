//! Authorization with SubjectAccessReviews.

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};

use super::{Asker, Cluster, ClusterError, ReviewKind, ReviewSource};
use crate::auth::{Attributes, Decision};
use crate::user::User;

impl Cluster {
    /// Authorizes an action of a user with the chain of authorizers.
    ///
    /// # Errors
    /// If the cluster or an authorizer does not respond. The action must be rejected then.
    pub async fn authorize(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Decision, ClusterError> {
        let review = || Box::pin(self.review_access(user, attributes));
        self.authorizers.decide(user, attributes, review).await
    }

    /// Authorizes an action of a user with a SubjectAccessReview. Results are cached for ten seconds; errors are not
    /// cached. Concurrent equal requests cause one review.
    async fn review_access(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Decision, ClusterError> {
        let asked = self.ask(user, attributes);
        let (answer, is_cached) = self.access_reviews.decide(user, attributes, asked).await;
        if let Some(hit) = is_cached {
            self.observed.tell(ReviewKind::Access, ReviewSource::Cache { hit });
        }
        answer
    }

    async fn ask(&self, user: &User, attributes: &Attributes) -> Result<Decision, ClusterError> {
        let review = SubjectAccessReview { spec: spec(user, attributes), ..Default::default() };
        let asker = if user.is_anonymous() { Asker::Stranger } else { Asker::User(&user.name) };
        let kind = ReviewKind::Access;
        let answer = self.review("SubjectAccessReview", kind, asker, &review).await?;
        Ok(decision(answer.status.unwrap_or_default()))
    }
}

fn decision(status: SubjectAccessReviewStatus) -> Decision {
    let reason = status.reason.unwrap_or_default();
    match (status.denied.unwrap_or_default(), status.allowed) {
        (true, _) => Decision::deny(reason),
        (false, true) => Decision::allow(reason),
        (false, false) => Decision::no_opinion(reason),
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
