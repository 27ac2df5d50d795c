//! Questions about callers: what may they do, and who are they?

use aggregated_apiserver::{Kinds, User};
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, SelfSubjectReviewStatus, TokenReview, TokenReviewStatus, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SubjectAccessReview, SubjectAccessReviewStatus,
};

use crate::built_in::review;
use crate::rights::may;

/// Whose token is whose.
pub(crate) type Tokens = Vec<(String, User)>;

/// The kinds of questions. What the tokens are, the caller knows.
pub(crate) fn kinds(tokens: Tokens) -> Result<Kinds, serde_json::Error> {
    let kinds = Kinds::new()
        .reviewed(review::<SelfSubjectReview>()?, |user, mut asked: SelfSubjectReview| {
            asked.status = Some(SelfSubjectReviewStatus { user_info: Some(info(user)) });
            asked
        })
        .reviewed(review::<TokenReview>()?, move |_, mut asked: TokenReview| {
            let token = &asked.spec.token;
            let found = tokens.iter().find(|(known, _)| known == token);
            asked.status = Some(TokenReviewStatus {
                authenticated: Some(found.is_some()),
                user: found.map(|(_, user)| info(user)),
                ..TokenReviewStatus::default()
            });
            asked
        })
        .reviewed(
            review::<SelfSubjectAccessReview>()?,
            |user, mut asked: SelfSubjectAccessReview| {
                let (resource, path) =
                    (&asked.spec.resource_attributes, &asked.spec.non_resource_attributes);
                let allowed = may(&user.groups, resource.as_ref(), path.as_ref());
                asked.status = Some(status(allowed));
                asked
            },
        )
        .reviewed(review::<SubjectAccessReview>()?, |_, mut asked: SubjectAccessReview| {
            let (resource, path) =
                (&asked.spec.resource_attributes, &asked.spec.non_resource_attributes);
            let groups = asked.spec.groups.as_deref().unwrap_or_default();
            let allowed = may(groups, resource.as_ref(), path.as_ref());
            asked.status = Some(status(allowed));
            asked
        });
    Ok(kinds)
}

fn status(allowed: bool) -> SubjectAccessReviewStatus {
    SubjectAccessReviewStatus { allowed, ..SubjectAccessReviewStatus::default() }
}

fn info(user: &User) -> UserInfo {
    UserInfo {
        username: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
    }
}
