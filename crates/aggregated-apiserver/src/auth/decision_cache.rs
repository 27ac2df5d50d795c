//! The cache of decisions, by user and attributes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;

use super::{Attributes, Decision};
use crate::user::User;

/// The size of a cache, in bytes. It holds about as many decisions as the cache of kube-apiserver, however long the
/// requests are.
const BYTES: u64 = 8 << 20;
/// The memory of a cached decision in addition to its strings, in bytes.
const ENTRY: usize = 500;
/// The size of a user and attributes, in bytes, from which a decision is not cached. Otherwise callers could fill the
/// memory. Same as in kube-apiserver.
const CACHED_SIZE: usize = 10_000;

/// The decisions of an authorizer that may be used again for the same user and attributes.
#[derive(Clone)]
pub(crate) struct DecisionCache(Cache<Arc<(User, Attributes)>, Decision>);

impl DecisionCache {
    /// A cache whose decisions are valid for this time.
    pub fn new(ttl: Duration) -> Self {
        let weigh = |key: &Arc<(User, Attributes)>, decision: &Decision| {
            let size = key.1.size(&key.0) + decision.reason.len() + ENTRY;
            u32::try_from(size).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().weigher(weigh).max_capacity(BYTES).time_to_live(ttl).build())
    }

    /// Returns the cached decision, or else the decision of this function. The second value reports whether the
    /// decision was cached; it is `None` for a request that is too long for the cache. Concurrent equal requests cause
    /// one call. Errors are not cached.
    pub async fn decide<E: Clone + Send + Sync + 'static>(
        &self,
        user: &User,
        attributes: &Attributes,
        decide: impl Future<Output = Result<Decision, E>>,
    ) -> (Result<Decision, E>, Option<bool>) {
        if attributes.size(user) >= CACHED_SIZE {
            return (Box::pin(decide).await, None);
        }
        let key = Arc::new((user.clone(), attributes.clone()));
        match self.0.entry(key).or_try_insert_with(Box::pin(decide)).await {
            Ok(entry) => {
                let is_cached = !entry.is_fresh();
                (Ok(entry.into_value()), Some(is_cached))
            }
            Err(error) => (Err(E::clone(&error)), Some(false)),
        }
    }
}
