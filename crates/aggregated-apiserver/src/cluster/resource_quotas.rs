//! The ResourceQuotas of all namespaces.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Changed, SourceInformer, SourceOptions, Sources};
use crate::object::Key;

/// How long after the start of a server a write waits for the first view of them.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// What the log says while there is no view of them.
const MISSING: &str = "no quota is enforced";

/// The ResourceQuotas of the cluster.
pub struct ResourceQuotas {
    informer: Arc<SourceInformer<ResourceQuota>>,
    changed: Arc<Changed>,
    waits_until: Instant,
    /// Their watch ends with it.
    _sources: Arc<Sources>,
}

impl ResourceQuotas {
    /// Begins to watch them.
    pub fn new(sources: Arc<Sources>) -> Self {
        let informer = sources.open(SourceOptions::ALL, MISSING);
        let changed = informer.follow(Arc::new(Notify::new()));
        let waits_until = Instant::now() + SYNC_TIMEOUT;
        Self { informer, changed, waits_until, _sources: sources }
    }

    /// Returns when they are in view, or cannot be for now: a cluster that does not show them must
    /// not stop every write.
    pub async fn settled(&self) {
        if !self.informer.is_synced() && Instant::now() < self.waits_until {
            let _ = timeout_at(self.waits_until, self.informer.settled()).await;
        }
    }

    /// Those that have changed since they were last asked for, as they are now. While they are not
    /// in view, or more than is kept, those that were there hold on.
    pub fn take_changed(&self) -> Vec<(Key, Option<Arc<ResourceQuota>>)> {
        if !self.informer.is_synced() {
            return Vec::new();
        }
        let keys = self.changed.take().into_iter();
        keys.map(|key| (key.clone(), self.informer.get(&key))).collect()
    }
}
