//! The ResourceQuotas of all namespaces.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{ChangedKeys, SourceInformer, SourceOptions, Sources};
use crate::object::Key;

/// The time after the start of the server during which writes wait for the ResourceQuotas to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// The consequence of missing ResourceQuotas, for the log.
const MISSING: &str = "no quota is enforced";

/// The ResourceQuotas of the cluster.
pub struct ResourceQuotas {
    informer: Arc<SourceInformer<ResourceQuota>>,
    changed: Arc<ChangedKeys>,
    waits_until: Instant,
    /// Keeps the watch open. The watch ends when this is dropped.
    _sources: Arc<Sources>,
}

impl ResourceQuotas {
    /// Starts watching the ResourceQuotas.
    pub fn new(sources: Arc<Sources>) -> Self {
        let informer = sources.open(SourceOptions::ALL, MISSING);
        let changed = informer.follow(Arc::new(Notify::new()));
        let waits_until = Instant::now() + SYNC_TIMEOUT;
        Self { informer, changed, waits_until, _sources: sources }
    }

    /// Waits until the ResourceQuotas are synced or cannot be read. The wait is limited, because a cluster that does
    /// not show its ResourceQuotas must not stop every write.
    pub async fn settled(&self) {
        if !self.informer.is_synced() && Instant::now() < self.waits_until {
            let _ = timeout_at(self.waits_until, self.informer.settled()).await;
        }
    }

    /// Returns the ResourceQuotas that have changed since the last call, in their current state. Returns none while the
    /// ResourceQuotas are not synced or exceed the memory limit: the last known ones then stay in force.
    pub fn take_changed(&self) -> Vec<(Key, Option<Arc<ResourceQuota>>)> {
        if !self.informer.is_synced() {
            return Vec::new();
        }
        let keys = self.changed.take().into_iter();
        keys.map(|key| (key.clone(), self.informer.get(&key))).collect()
    }
}
