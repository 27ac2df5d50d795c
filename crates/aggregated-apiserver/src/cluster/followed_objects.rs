//! The objects of a type that the server itself needs, such as ResourceQuotas.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{ChangedKeys, SourceInformer, SourceOptions, SourceStatus, SourceType, Sources};
use crate::object::Key;

/// The time after the first use during which writes wait for the objects to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// All objects of a type in the cluster, with their changes.
pub struct FollowedObjects<K> {
    /// The watch, once there is one.
    opened: OnceLock<Opened<K>>,
    missing: &'static str,
    /// Keeps the watch open. The watch ends when this is dropped.
    sources: Arc<Sources>,
}

/// The watch of the objects.
struct Opened<K> {
    informer: Arc<SourceInformer<K>>,
    changed: Arc<ChangedKeys>,
    waits_until: Instant,
}

impl<K: SourceType> FollowedObjects<K> {
    /// The objects, which are watched from the first use on. `missing` is the consequence of missing objects, for the
    /// log.
    pub fn new(sources: Arc<Sources>, missing: &'static str) -> Self {
        Self { opened: OnceLock::new(), missing, sources }
    }

    /// Starts watching the objects.
    pub fn open(&self) {
        self.opened();
    }

    fn opened(&self) -> &Opened<K> {
        self.opened.get_or_init(|| {
            let informer = self.sources.open(SourceOptions::ALL, self.missing);
            let changed = informer.follow(Arc::new(Notify::new()));
            Opened { informer, changed, waits_until: Instant::now() + SYNC_TIMEOUT }
        })
    }

    /// Waits until the objects are synced or cannot be read. The wait is limited to the first seconds, because a
    /// cluster that does not respond must not delay every write.
    pub async fn settled(&self) {
        let Opened { informer, waits_until, .. } = self.opened();
        if !informer.is_synced() && Instant::now() < *waits_until {
            let _ = timeout_at(*waits_until, informer.settled()).await;
        }
    }

    /// Whether all objects of the cluster are stored in their current or last known state.
    pub fn are_complete(&self) -> bool {
        self.opened().informer.is_complete()
    }

    /// The state of the informer.
    pub fn status(&self) -> SourceStatus {
        self.opened().informer.status()
    }

    /// Whether [`take_changed`](Self::take_changed) would return objects.
    pub fn have_changed(&self) -> bool {
        let Opened { informer, changed, .. } = self.opened();
        !changed.is_empty() && informer.is_synced()
    }

    /// Returns the objects that have changed since the last call, in their current state. Returns none while the
    /// objects are not synced or exceed the memory limit: the last known ones then stay in force.
    pub fn take_changed(&self) -> Vec<(Key, Option<Arc<K>>)> {
        let Opened { informer, changed, .. } = self.opened();
        if !informer.is_synced() {
            return Vec::new();
        }
        let keys = changed.take().into_iter();
        keys.map(|key| (key.clone(), informer.get(&key))).collect()
    }
}
