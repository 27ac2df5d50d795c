//! The chain of authorizers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;
use moka::future::Cache;

use super::call::caught;
use super::{Attributes, AuthError, Authorizer, Decision, Verdict};
use crate::user::User;

/// The size of the cache of an authorizer, in bytes; same as that of the cache of reviews.
const CACHE_BYTES: u64 = 8 << 20;
/// The memory of a cached decision in addition to its strings, in bytes.
const ENTRY: usize = 500;
/// The length of a request, in bytes, from which its decision is not cached; same as in kube-apiserver.
const CACHED_LENGTH: usize = 10_000;

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
    decisions: Option<Cache<Arc<(User, Attributes)>, Decision>>,
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

    /// Calls the authorizers of the chain. Members of `system:masters` are allowed everything.
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
        self.decide(user, attributes, unknown).await
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
        let decisions = authorizer.cache_ttl().map(|ttl| {
            let weigh = |key: &Arc<(User, Attributes)>, decision: &Decision| {
                let length = key.1.length(&key.0) + decision.reason.len() + ENTRY;
                u32::try_from(length).unwrap_or(u32::MAX)
            };
            Cache::builder().weigher(weigh).max_capacity(CACHE_BYTES).time_to_live(ttl).build()
        });
        Self { authorizer, decisions }
    }

    async fn decide(&self, user: &User, attributes: &Attributes) -> Result<Decision, AuthError> {
        let cache = self.decisions.as_ref();
        let Some(cache) = cache.filter(|_| attributes.length(user) < CACHED_LENGTH) else {
            return self.call(user, attributes).await;
        };
        let key = Arc::new((user.clone(), attributes.clone()));
        let decision = cache.try_get_with(key, Box::pin(self.call(user, attributes))).await;
        decision.map_err(|why: Arc<AuthError>| AuthError::clone(&why))
    }

    async fn call(&self, user: &User, attributes: &Attributes) -> Result<Decision, AuthError> {
        let called = caught(|| self.authorizer.authorize(user, attributes)).await;
        called.map_err(|why| AuthError::new(format!("{}: {why}", self.authorizer.name())))
    }
}
