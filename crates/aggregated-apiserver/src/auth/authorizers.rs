//! The chain of authorizers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;

use super::call::caught;
use super::{Attributes, AuthError, Authorizer, Decision, DecisionCache, Verdict};
use crate::log_throttle::LogThrottle;
use crate::user::User;

/// Limits the log lines about authorizers that fail.
static FAILED: LogThrottle = LogThrottle::at_most(5);

/// A chain of authorizers. They are called in the order in which they were added, until one allows, denies or fails. If
/// none has an opinion, the action is not allowed. The default is the chain of the built-in authorizer.
///
/// ```
/// # use aggregated_apiserver::auth::{Authorizer, Authorizers};
/// # fn chains(own: impl Authorizer, other: impl Authorizer) {
/// // Before the cluster: denies or allows early.
/// let before = Authorizers::new().with(own).built_in();
/// // Instead of the cluster.
/// let instead = Authorizers::new().with(other);
/// # }
/// ```
#[derive(Clone)]
pub struct Authorizers {
    entries: Arc<Vec<Entry>>,
}

#[derive(Clone)]
enum Entry {
    BuiltIn,
    Own(Arc<Own>),
}

/// An authorizer with its cache.
struct Own {
    authorizer: Box<dyn Authorizer>,
    decisions: Option<DecisionCache>,
}

impl Default for Authorizers {
    fn default() -> Self {
        Self::new().built_in()
    }
}

impl fmt::Debug for Authorizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorizers").field(&self.entries.len()).finish()
    }
}

impl Authorizers {
    /// An empty chain, which allows nothing.
    pub fn new() -> Self {
        Self { entries: Arc::default() }
    }

    /// Adds the built-in authorizer: the cluster, by SubjectAccessReviews; in a standalone server RBAC.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        Arc::make_mut(&mut self.entries).push(Entry::BuiltIn);
        self
    }

    /// Adds an authorizer.
    #[must_use]
    pub fn with(mut self, authorizer: impl Authorizer) -> Self {
        let own = Own::new(Box::new(authorizer));
        Arc::make_mut(&mut self.entries).push(Entry::Own(Arc::new(own)));
        self
    }

    /// The same chain, with this authorizer in the place of the built-in one.
    #[must_use]
    pub fn with_built_in(mut self, authorizer: impl Authorizer) -> Self {
        let built_in = Arc::new(Own::new(Box::new(authorizer)));
        for entry in Arc::make_mut(&mut self.entries) {
            if matches!(entry, Entry::BuiltIn) {
                *entry = Entry::Own(Arc::clone(&built_in));
            }
        }
        self
    }

    /// Calls the authorizers of the chain. Members of `system:masters` are allowed everything. Errors are logged, at most
    /// five times per minute.
    ///
    /// # Errors
    /// If an authorizer fails, or the chain contains the built-in authorizer, which only a server can call.
    pub async fn authorize(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Decision, AuthError> {
        if user.is_master() {
            return Ok(Decision::allow(""));
        }
        let unknown = || async { Err(AuthError::new("there is no built-in authorizer")) };
        let decided = self.decide(user, attributes, unknown).await;
        if let Err(error) = &decided {
            FAILED.log(|suppressed| {
                tracing::warn!(suppressed, %error, "cannot authorize: an authorizer failed");
            });
        }
        decided
    }

    /// The rules that apply to a user in a namespace, from all authorizers of the chain.
    pub async fn rules(&self, user: &User, namespace: &str) -> SubjectRulesReviewStatus {
        let (mut all, mut errors) = (SubjectRulesReviewStatus::default(), Vec::new());
        for entry in self.entries.iter() {
            let Entry::Own(own) = entry else { continue };
            let call = || -> futures::future::BoxFuture<'_, _> {
                let rules = own.authorizer.rules(user, namespace);
                Box::pin(async move { Ok(rules.await) })
            };
            let Ok(rules) = caught(call).await else {
                all.incomplete = true;
                errors.push(format!("{} failed", own.authorizer.name()));
                continue;
            };
            all.resource_rules.extend(rules.resource_rules);
            all.non_resource_rules.extend(rules.non_resource_rules);
            all.incomplete |= rules.incomplete;
            errors.extend(rules.evaluation_error);
        }
        all.evaluation_error = Some(errors.join(", ")).filter(|errors| !errors.is_empty());
        all
    }

    /// Calls the authorizers of the chain, and this function as the built-in one.
    pub(crate) async fn decide<E: From<AuthError>, F: Future<Output = Result<Decision, E>>>(
        &self,
        user: &User,
        attributes: &Attributes,
        built_in: impl Fn() -> F,
    ) -> Result<Decision, E> {
        let mut reasons = Vec::new();
        for entry in self.entries.iter() {
            let decision = match entry {
                Entry::BuiltIn => built_in().await?,
                Entry::Own(own) => own.decide(user, attributes).await?,
            };
            match decision.verdict {
                Verdict::Allow | Verdict::Deny => return Ok(decision),
                Verdict::NoOpinion if decision.reason.is_empty() => {}
                Verdict::NoOpinion => reasons.push(decision.reason),
            }
        }
        Ok(Decision::no_opinion(reasons.join("\n")))
    }
}

impl Own {
    fn new(authorizer: Box<dyn Authorizer>) -> Self {
        let decisions = authorizer.cache_ttl().map(DecisionCache::new);
        Self { authorizer, decisions }
    }

    async fn decide(&self, user: &User, attributes: &Attributes) -> Result<Decision, AuthError> {
        let called = self.call(user, attributes);
        match &self.decisions {
            Some(cache) => cache.decide(user, attributes, called).await.0,
            None => called.await,
        }
    }

    async fn call(&self, user: &User, attributes: &Attributes) -> Result<Decision, AuthError> {
        let called = caught(|| self.authorizer.authorize(user, attributes)).await;
        called.map_err(|error| error.of(self.authorizer.name()))
    }
}
