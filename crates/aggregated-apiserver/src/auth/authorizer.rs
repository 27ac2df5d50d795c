//! The trait [`Authorizer`], and its decisions.

use std::time::Duration;

use futures::future::{BoxFuture, ready};
use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;

use super::{Attributes, AuthError};
use crate::user::User;

/// An authorizer: code that decides whether a user is allowed an action.
///
/// The authorizer is called for each permission that a request needs, and again every few minutes while a watch or
/// another long request is open. Members of `system:masters` are allowed everything, and the authorizer is not called
/// for them. A watch or another long request continues while the authorizer fails, and ends after an hour of errors. Its
/// credentials are not checked again.
///
/// Each call has a deadline of ten seconds. A call that panics or exceeds its deadline is an error. The deadline ends a
/// call only where the future waits (`.await`). Blocking code occupies a thread of the server beyond the deadline, so
/// run it with `tokio::task::spawn_blocking`. Results are cached only if the authorizer [requests it](Authorizer::cache_ttl).
///
/// The module [`auth`](super) has an example, and [`authorizer_fn`] creates an authorizer from a function.
pub trait Authorizer: Send + Sync + 'static {
    /// The name of the authorizer in log lines; the name of its type by default.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// The time for which a decision may be used again for the same user and attributes. By default, decisions are not
    /// cached. A withdrawn permission is still granted for this time. Errors are not cached. The function is called
    /// once.
    fn cache_ttl(&self) -> Option<Duration> {
        None
    }

    /// Decides whether a user is allowed an action.
    ///
    /// # Errors
    /// If the authorizer cannot decide. The request is rejected with 500, and no other authorizer is called. The error
    /// is logged, and clients do not receive it.
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthError>>;

    /// The rules that apply to a user in a namespace, for a SelfSubjectRulesReview of a standalone server. An
    /// authorizer without a list of rules returns an incomplete status; this is the default.
    fn rules<'a>(
        &'a self,
        _user: &'a User,
        _namespace: &'a str,
    ) -> BoxFuture<'a, SubjectRulesReviewStatus> {
        let why = format!("{} does not support user rule resolution", self.name());
        Box::pin(ready(SubjectRulesReviewStatus {
            incomplete: true,
            evaluation_error: Some(why),
            ..SubjectRulesReviewStatus::default()
        }))
    }
}

/// The decision of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, or an empty string. Clients receive the reason of a denial, and the audit log contains it.
    pub reason: String,
}

/// The verdict of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The action is allowed. No other authorizer is called.
    Allow,
    /// The action is not allowed. No other authorizer is called.
    Deny,
    /// The next authorizer is called. If there is none, the action is not allowed.
    NoOpinion,
}

impl Decision {
    /// Allows the action.
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Allow, reason: reason.into() }
    }

    /// Denies the action.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Deny, reason: reason.into() }
    }

    /// Leaves the decision to the next authorizer.
    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::NoOpinion, reason: reason.into() }
    }

    /// Whether the action is allowed.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}

/// Creates an authorizer from a function. Its decisions are not cached. The function must return at once: no deadline
/// ends it, and it occupies a thread of the server until it returns.
///
/// ```
/// use aggregated_apiserver::auth::{Authorizers, Decision, authorizer_fn};
/// use aggregated_apiserver::{ApiServer, Kinds};
///
/// let readers = authorizer_fn(|_user, attributes| match attributes.verb() {
///     "get" | "list" | "watch" => Decision::allow("all users read"),
///     _ => Decision::no_opinion(""),
/// });
/// let server = ApiServer::new("foo-server", Kinds::new())
///     .with_authorizers(Authorizers::new().with(readers));
/// ```
pub fn authorizer_fn(
    decide: impl Fn(&User, &Attributes) -> Decision + Send + Sync + 'static,
) -> impl Authorizer {
    Function(decide)
}

struct Function<F>(F);

impl<F: Fn(&User, &Attributes) -> Decision + Send + Sync + 'static> Authorizer for Function<F> {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthError>> {
        Box::pin(ready(Ok((self.0)(user, attributes))))
    }
}
