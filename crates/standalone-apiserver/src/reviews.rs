//! Reviews of users: authentication of tokens, and authorization.

use std::sync::Arc;

use aggregated_apiserver::auth::{Attributes, Authenticators, Authorizers, Verdict};
use aggregated_apiserver::strategy::ReviewError;
use aggregated_apiserver::{FieldError, Kinds, User};
use futures::future::ready;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, SelfSubjectReviewStatus, TokenReview, TokenReviewStatus, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectRulesReview, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use crate::built_in::{TYPES, review};
use crate::controllers::definitions::Now;
use crate::service_account_tokens::{AuthenticatedToken, ISSUER, ServiceAccountTokens};

/// Static tokens and their users.
pub(crate) type Tokens = Vec<(String, User)>;

/// The extra key of the server itself when it reviews the token of a request.
const OWN_REVIEW: &str = "internal/own-review";

/// The sources that reviews of tokens and permissions read.
pub(crate) struct Reviewers {
    pub(crate) tokens: Tokens,
    pub(crate) accounts: Arc<ServiceAccountTokens>,
    pub(crate) authenticators: Authenticators,
    pub(crate) authorizers: Authorizers,
    pub(crate) now: Now,
}

/// The kinds of reviews.
pub(crate) fn kinds(reviewers: Reviewers) -> Result<Kinds, serde_json::Error> {
    let all = Arc::new(reviewers);
    let [own, of_token, own_access, own_rules, of_any, of_namespace] =
        [(); 6].map(|()| Arc::clone(&all));
    let kinds = Kinds::new()
        .review(review::<SelfSubjectReview>()?, &TYPES, move |user, asked: SelfSubjectReview| {
            let mut asked = asked;
            asked.metadata.creation_timestamp = Some(Time((own.now)()));
            asked.status = Some(SelfSubjectReviewStatus { user_info: Some(info(&user)) });
            ready(Ok(asked))
        })
        .review(review::<TokenReview>()?, &TYPES, move |user, asked: TokenReview| {
            let all = Arc::clone(&of_token);
            async move { all.review_token(&user, asked).await }
        })
        .review(
            review::<SelfSubjectAccessReview>()?,
            &TYPES,
            move |user, mut asked: SelfSubjectAccessReview| {
                let all = Arc::clone(&own_access);
                async move {
                    let (resource, path) =
                        (&asked.spec.resource_attributes, &asked.spec.non_resource_attributes);
                    check(&asked.metadata, about(resource, path))?;
                    asked.status = Some(all.decide(&user, (resource, path)).await);
                    Ok(asked)
                }
            },
        )
        .review(
            review::<SelfSubjectRulesReview>()?,
            &TYPES,
            move |user, mut asked: SelfSubjectRulesReview| {
                let all = Arc::clone(&own_rules);
                async move {
                    let spec = std::mem::take(&mut asked.spec);
                    let Some(namespace) = spec.namespace.filter(|namespace| !namespace.is_empty())
                    else {
                        return Err(ReviewError::BadRequest("no namespace on request".to_owned()));
                    };
                    asked.metadata = ObjectMeta::default();
                    asked.status = Some(all.authorizers.rules(&user, &namespace).await);
                    Ok(asked)
                }
            },
        )
        .review(
            review::<SubjectAccessReview>()?,
            &TYPES,
            move |_, mut asked: SubjectAccessReview| {
                let all = Arc::clone(&of_any);
                async move {
                    check(&asked.metadata, of_subject(&asked.spec))?;
                    asked.status = Some(all.review_access(&asked.spec).await);
                    Ok(asked)
                }
            },
        )
        .review(
            review::<LocalSubjectAccessReview>()?,
            &TYPES,
            move |_, mut asked: LocalSubjectAccessReview| {
                let all = Arc::clone(&of_namespace);
                async move {
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
                    asked.status = Some(all.review_access(&asked.spec).await);
                    Ok(asked)
                }
            },
        );
    Ok(kinds)
}

impl Reviewers {
    async fn review_token(
        &self,
        user: &User,
        mut asked: TokenReview,
    ) -> Result<TokenReview, ReviewError> {
        let token = asked.spec.token.as_str();
        if token.is_empty() {
            let why = "token is required for TokenReview in authentication";
            return Err(ReviewError::BadRequest(why.to_owned()));
        }
        let audiences = asked.spec.audiences.as_deref().unwrap_or_default();
        // Static tokens are valid for the audience of this server.
        let is_ours = audiences.is_empty() || audiences.iter().any(|one| one == ISSUER);
        let known = self.tokens.iter().find(|(known, _)| is_ours && known == token);
        let authenticated = match known {
            Some((_, user)) => {
                Some(AuthenticatedToken { user: user.clone(), audiences: vec![ISSUER.to_owned()] })
            }
            None => self.accounts.review(token, audiences, (self.now)()),
        };
        let authenticated = match authenticated {
            // The chain of the request calls the other authenticators itself.
            None if !user.extra.contains_key(OWN_REVIEW) => self.own_token(token, audiences).await,
            authenticated => authenticated,
        };
        let audiences = authenticated.as_ref().map(|authenticated| authenticated.audiences.clone());
        let user = authenticated.map(|authenticated| info(&authenticated.user));
        asked.status = Some(TokenReviewStatus {
            authenticated: Some(user.is_some()),
            error: user.is_none().then(|| "invalid bearer token".to_owned()),
            user,
            audiences,
        });
        Ok(asked)
    }

    /// The user of a token that an added authenticator knows, if the token is valid for a requested audience; for an
    /// audience of this server if the review requests none. A token without audiences is valid for this server.
    async fn own_token(&self, token: &str, requested: &[String]) -> Option<AuthenticatedToken> {
        let found = self.authenticators.authenticate_token(token).await;
        let found = found.unwrap_or_else(|error| {
            tracing::debug!(%error, "a TokenReview has an invalid token");
            None
        })?;
        let own = self.authenticators.audiences();
        let requested = if requested.is_empty() { own } else { requested };
        let valid = if found.audiences.is_empty() { own } else { &found.audiences };
        let audiences: Vec<String> =
            valid.iter().filter(|one| requested.contains(one)).cloned().collect();
        (!audiences.is_empty()).then_some(AuthenticatedToken { user: found.user, audiences })
    }

    /// Answers a SubjectAccessReview.
    async fn review_access(&self, spec: &SubjectAccessReviewSpec) -> SubjectAccessReviewStatus {
        let user = User {
            name: spec.user.clone().unwrap_or_default(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone().unwrap_or_default(),
            extra: spec.extra.clone().unwrap_or_default(),
        };
        let asked = (&spec.resource_attributes, &spec.non_resource_attributes);
        self.decide(&user, asked).await
    }

    async fn decide(
        &self,
        user: &User,
        asked: (&Option<ResourceAttributes>, &Option<NonResourceAttributes>),
    ) -> SubjectAccessReviewStatus {
        let attributes = match asked {
            (Some(resource), _) => Attributes::from(resource),
            (None, Some(path)) => Attributes::from(path),
            (None, None) => return SubjectAccessReviewStatus::default(),
        };
        match self.authorizers.authorize(user, &attributes).await {
            Ok(decision) => SubjectAccessReviewStatus {
                allowed: decision.is_allowed(),
                denied: (decision.verdict == Verdict::Deny).then_some(true),
                reason: Some(decision.reason).filter(|reason| !reason.is_empty()),
                ..SubjectAccessReviewStatus::default()
            },
            // The chain has logged the error.
            Err(_) => SubjectAccessReviewStatus {
                evaluation_error: Some("an authorizer failed".to_owned()),
                ..SubjectAccessReviewStatus::default()
            },
        }
    }
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
