//! Reviews of users: authentication of tokens, and authorization.

use std::sync::Arc;

use aggregated_apiserver::strategy::ReviewError;
use aggregated_apiserver::{FieldError, Kinds, User};
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, SelfSubjectReviewStatus, TokenReview, TokenReviewStatus, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectRulesReview, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use crate::authorizer::{Authorizer, Request};
use crate::built_in::{TYPES, review};
use crate::controllers::definitions::Now;
use crate::service_account_tokens::{AuthenticatedToken, ISSUER, ServiceAccountTokens};

/// Static tokens and their users.
pub(crate) type Tokens = Vec<(String, User)>;

/// The kinds of reviews, with these static tokens.
pub(crate) fn kinds(
    tokens: Tokens,
    accounts: Arc<ServiceAccountTokens>,
    authorizer: &Arc<Authorizer>,
    now: Now,
) -> Result<Kinds, serde_json::Error> {
    let clock = Arc::clone(&now);
    let [own, own_rules, of_any, of_namespace] = [(); 4].map(|()| Arc::clone(authorizer));
    let kinds = Kinds::new()
        .review(
            review::<SelfSubjectReview>()?,
            &TYPES,
            move |user, mut asked: SelfSubjectReview| {
                asked.metadata.creation_timestamp = Some(Time(now()));
                asked.status = Some(SelfSubjectReviewStatus { user_info: Some(info(user)) });
                Ok(asked)
            },
        )
        .review(review::<TokenReview>()?, &TYPES, move |_, mut asked: TokenReview| {
            let token = asked.spec.token.as_str();
            if token.is_empty() {
                let why = "token is required for TokenReview in authentication";
                return Err(ReviewError::BadRequest(why.to_owned()));
            }
            let audiences = asked.spec.audiences.as_deref().unwrap_or_default();
            // Static tokens are valid for the audience of this server.
            let is_ours = audiences.is_empty() || audiences.iter().any(|one| one == ISSUER);
            let known = tokens.iter().find(|(known, _)| is_ours && known == token);
            let authenticated = match known {
                Some((_, user)) => Some(AuthenticatedToken {
                    user: user.clone(),
                    audiences: vec![ISSUER.to_owned()],
                }),
                None => accounts.review(token, audiences, clock()),
            };
            let audiences =
                authenticated.as_ref().map(|authenticated| authenticated.audiences.clone());
            let user = authenticated.map(|authenticated| info(&authenticated.user));
            asked.status = Some(TokenReviewStatus {
                authenticated: Some(user.is_some()),
                error: user.is_none().then(|| "invalid bearer token".to_owned()),
                user,
                audiences,
            });
            Ok(asked)
        })
        .review(
            review::<SelfSubjectAccessReview>()?,
            &TYPES,
            move |user, mut asked: SelfSubjectAccessReview| {
                let (resource, path) =
                    (&asked.spec.resource_attributes, &asked.spec.non_resource_attributes);
                check(&asked.metadata, about(resource, path))?;
                let request = match (resource, path) {
                    (Some(resource), _) => Some(Request::Resource(resource)),
                    (None, path) => path.as_ref().map(Request::Path),
                };
                asked.status = request.map(|request| own.decide(user, request));
                Ok(asked)
            },
        )
        .review(
            review::<SelfSubjectRulesReview>()?,
            &TYPES,
            move |user, mut asked: SelfSubjectRulesReview| {
                let spec = std::mem::take(&mut asked.spec);
                let Some(namespace) = spec.namespace.filter(|namespace| !namespace.is_empty())
                else {
                    return Err(ReviewError::BadRequest("no namespace on request".to_owned()));
                };
                asked.metadata = ObjectMeta::default();
                asked.status = Some(own_rules.rules(user, &namespace));
                Ok(asked)
            },
        )
        .review(
            review::<SubjectAccessReview>()?,
            &TYPES,
            move |_, mut asked: SubjectAccessReview| {
                check(&asked.metadata, of_subject(&asked.spec))?;
                asked.status = Some(of_any.review(&asked.spec));
                Ok(asked)
            },
        )
        .review(
            review::<LocalSubjectAccessReview>()?,
            &TYPES,
            move |_, mut asked: LocalSubjectAccessReview| {
                let mut faults = of_subject(&asked.spec);
                let own = asked.metadata.namespace.clone().unwrap_or_default();
                let resource = asked.spec.resource_attributes.as_ref();
                let named = resource.and_then(|resource| resource.namespace.clone());
                if named.unwrap_or_default() != own {
                    let why = "must match metadata.namespace";
                    let at = "spec.resourceAttributes.namespace";
                    faults.push(FieldError::invalid(at, format!("{own:?}"), why));
                }
                let namespace = asked.metadata.namespace.take();
                check(&asked.metadata, faults)?;
                asked.metadata.namespace = namespace;
                asked.status = Some(of_namespace.review(&asked.spec));
                Ok(asked)
            },
        );
    Ok(kinds)
}

/// Checks that a review has no metadata.
fn check(metadata: &ObjectMeta, mut faults: Vec<FieldError>) -> Result<(), ReviewError> {
    let given = ObjectMeta { managed_fields: None, ..metadata.clone() };
    if given != ObjectMeta::default() {
        faults.push(FieldError::invalid("metadata", shown(&given), "must be empty"));
    }
    if faults.is_empty() { Ok(()) } else { Err(ReviewError::Invalid(faults)) }
}

fn about(
    resource: &Option<ResourceAttributes>,
    path: &Option<NonResourceAttributes>,
) -> Vec<FieldError> {
    match (resource, path) {
        (Some(_), Some(path)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            vec![FieldError::invalid("spec.nonResourceAttributes", shown(path), why)]
        }
        (None, None) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid("spec.resourceAttributes", "null", why)]
        }
        _ => Vec::new(),
    }
}

fn of_subject(spec: &SubjectAccessReviewSpec) -> Vec<FieldError> {
    let mut faults = about(&spec.resource_attributes, &spec.non_resource_attributes);
    let is_nobody = spec.user.as_ref().is_none_or(String::is_empty)
        && spec.groups.as_ref().is_none_or(Vec::is_empty);
    if is_nobody {
        let why = "at least one of user or group must be specified";
        faults.push(FieldError::invalid("spec.user", "\"\"", why));
    }
    faults
}

fn shown(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn info(user: &User) -> UserInfo {
    UserInfo {
        username: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
    }
}
