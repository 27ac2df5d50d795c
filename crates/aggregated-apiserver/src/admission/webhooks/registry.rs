//! The webhooks that are configured now, from configurations of the cluster or of this server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};

use super::hook::{Hook, Hooks};
use crate::admission::configurations::ClusterConfigurations;
use crate::admission::undecoded::Undecoded;
use crate::admission::{AdmissionError, UnreadConfigurations};
use crate::cluster::{FollowedObjects, SourceType, Sources};
use crate::object::Key;
use crate::storage::{LogEntry, LogReader};
use crate::watch_cache::SourceState;
use crate::webhook::Calls;

/// The consequence of unread configurations, for the log.
const MISSING: &str = "writes are refused, or admitted without webhooks";

/// A type of configurations.
pub trait Configuration: SourceType {
    /// The name of the admission plugin that calls the webhooks.
    const PLUGIN: &'static str;

    /// The webhooks of this configuration.
    fn hooks(&self, calls: &Arc<Calls>) -> Vec<Arc<Hook>>;
}

impl Configuration for MutatingWebhookConfiguration {
    const PLUGIN: &'static str = "MutatingAdmissionWebhook";

    fn hooks(&self, calls: &Arc<Calls>) -> Vec<Arc<Hook>> {
        let configuration = self.metadata.name.as_deref().unwrap_or_default();
        let webhooks = self.webhooks.iter().flatten().cloned();
        webhooks.map(|one| Arc::new(Hook::of_mutating(one, configuration, calls))).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    const PLUGIN: &'static str = "ValidatingAdmissionWebhook";

    fn hooks(&self, calls: &Arc<Calls>) -> Vec<Arc<Hook>> {
        let configuration = self.metadata.name.as_deref().unwrap_or_default();
        let webhooks = self.webhooks.iter().flatten().cloned();
        webhooks.map(|one| Arc::new(Hook::of_validating(one, configuration, calls))).collect()
    }
}

/// The webhooks of all configurations of a type, in the order of the names of their configurations.
pub struct Registry<K> {
    by_configuration: Mutex<BTreeMap<String, Vec<Arc<Hook>>>>,
    hooks: ArcSwap<Hooks>,
    /// The calls of this server, with their common limits.
    calls: Arc<Calls>,
    undecoded: Undecoded,
    cluster: Option<ClusterConfigurations<K>>,
}

impl<K: Configuration> Registry<K> {
    /// The webhooks of configurations that this server stores. The registry must follow their collection.
    pub fn of_store(calls: Arc<Calls>) -> Self {
        Self {
            by_configuration: Mutex::default(),
            hooks: ArcSwap::default(),
            calls,
            undecoded: Undecoded::default(),
            cluster: None,
        }
    }

    /// The webhooks of the configurations of the cluster.
    pub fn of_cluster(
        sources: Arc<Sources>,
        unread: UnreadConfigurations,
        calls: Arc<Calls>,
    ) -> Self {
        let cluster = ClusterConfigurations::new(sources, unread, MISSING);
        Self { cluster: Some(cluster), ..Self::of_store(calls) }
    }

    /// Starts to follow the configurations of the cluster.
    pub fn start(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.followed();
        }
    }

    /// The webhooks; `None` if they are not known.
    pub(super) fn known(&self) -> Option<Arc<Hooks>> {
        if let Some(cluster) = &self.cluster {
            if !cluster.are_known() {
                return None;
            }
            self.take_changed(cluster.followed());
        }
        if !self.undecoded.is_empty() {
            return None;
        }
        Some(self.hooks.load_full())
    }

    /// The webhooks. While the configurations of the cluster are not synced, this waits for them in the first seconds.
    ///
    /// # Errors
    /// 503 if the configurations cannot be read, and writes are refused then. 503 if a configuration that this server
    /// stores cannot be decoded.
    pub(super) async fn hooks(&self) -> Result<Arc<Hooks>, AdmissionError> {
        if let Some(cluster) = &self.cluster {
            cluster.settled(K::PLUGIN, "the webhooks of the cluster").await?;
        }
        self.undecoded.check(K::PLUGIN, None)?;
        Ok(self.known().unwrap_or_else(|| self.hooks.load_full()))
    }

    /// The state of the configurations as a source, once they are followed. A cluster without the API has none.
    pub fn source(&self) -> Option<SourceState> {
        self.cluster.as_ref()?.source()
    }

    fn take_changed(&self, followed: &FollowedObjects<K>) {
        // The lock comes first: a concurrent call that takes the changes publishes them before it is released.
        let mut by_configuration = self.lock();
        if !followed.have_changed() {
            return;
        }
        for (key, configuration) in followed.take_changed() {
            set(&mut by_configuration, key.name(), self.hooks_of(configuration.as_deref()));
        }
        self.publish(&by_configuration);
    }

    fn hooks_of(&self, configuration: Option<&K>) -> Vec<Arc<Hook>> {
        configuration.map(|configuration| configuration.hooks(&self.calls)).unwrap_or_default()
    }

    fn publish(&self, by_configuration: &BTreeMap<String, Vec<Arc<Hook>>>) {
        let hooks: Hooks = by_configuration.values().flatten().cloned().collect();
        self.hooks.store(Arc::new(hooks));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Arc<Hook>>>> {
        self.by_configuration.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the configurations that this server stores. A change applies to every write that starts after it.
impl<K: Configuration> LogReader for Registry<K> {
    fn damage(&self, key: Key) {
        self.undecoded.record_damaged::<K>(key);
    }

    fn append(&self, entry: LogEntry) {
        self.undecoded.decode::<K>(&entry, |configuration| {
            let hooks = self.hooks_of(configuration.as_ref());
            let mut by_configuration = self.lock();
            set(&mut by_configuration, entry.key.name(), hooks);
            self.publish(&by_configuration);
        });
    }
}

fn set(all: &mut BTreeMap<String, Vec<Arc<Hook>>>, name: &str, hooks: Vec<Arc<Hook>>) {
    match hooks.is_empty() {
        true => drop(all.remove(name)),
        false => drop(all.insert(name.to_owned(), hooks)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;

    #[tokio::test]
    async fn writes_are_refused_until_a_damaged_configuration_is_deleted() {
        let registry =
            Registry::<ValidatingWebhookConfiguration>::of_store(Arc::new(Calls::new(1, 1, 1)));
        let key = Key::new(None, "w");
        registry.damage(key.clone());
        assert!(registry.known().is_none());
        let refused = registry.hooks().await.err().unwrap().message();
        assert!(refused.contains("\"w\" cannot be decoded: the stored object"), "{refused}");
        registry.append(LogEntry { revision: Revision::new(1), key, before: None, object: None });
        assert!(registry.hooks().await.unwrap().is_empty());
    }
}
