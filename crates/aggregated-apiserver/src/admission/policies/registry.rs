//! The policies that are bound now, from the cluster or from this server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

use super::PLUGIN;
use super::policy::{Binding, Policy};
use crate::admission::configurations::ClusterConfigurations;
use crate::admission::undecoded::Undecoded;
use crate::admission::{AdmissionError, UnreadConfigurations};
use crate::cluster::{Cluster, KindReader, SourceType, Sources};
use crate::object::Key;
use crate::storage::{LogEntry, LogReader};
use crate::watch_cache::SourceState;

/// The consequence of unread policies, for the log.
const MISSING: &str = "writes are refused, or admitted without policies";

/// A policy with its bindings.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Arc<Binding>>,
}

/// The policies that have bindings, in the order of their names.
pub struct PolicyRegistry {
    state: Mutex<State>,
    bound: ArcSwap<Vec<Bound>>,
    undecoded: Undecoded,
    cluster: Option<ClusterPolicies>,
}

#[derive(Default)]
struct State {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
}

/// The policies and bindings of the cluster.
struct ClusterPolicies {
    policies: ClusterConfigurations<ValidatingAdmissionPolicy>,
    bindings: ClusterConfigurations<ValidatingAdmissionPolicyBinding>,
    params: KindReader,
}

impl PolicyRegistry {
    /// The policies that this server stores. Readers must follow their collections.
    pub fn of_store() -> Self {
        Self {
            state: Mutex::default(),
            bound: ArcSwap::default(),
            undecoded: Undecoded::default(),
            cluster: None,
        }
    }

    /// The policies of the cluster.
    pub fn of_cluster(
        cluster: Cluster,
        sources: Arc<Sources>,
        unread: UnreadConfigurations,
    ) -> Self {
        let cluster = ClusterPolicies {
            policies: ClusterConfigurations::new(Arc::clone(&sources), unread, MISSING),
            bindings: ClusterConfigurations::new(sources, unread, MISSING),
            params: KindReader::new(cluster),
        };
        Self { cluster: Some(cluster), ..Self::of_store() }
    }

    /// Starts to follow the policies of the cluster.
    pub fn start(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.policies.followed().open();
            cluster.bindings.followed().open();
        }
    }

    /// The bound policies; `None` if they are not known.
    pub(super) fn known(&self) -> Option<Arc<Vec<Bound>>> {
        if let Some(cluster) = &self.cluster {
            if !cluster.policies.are_known() || !cluster.bindings.are_known() {
                return None;
            }
            self.take_changed(cluster);
        }
        if !self.undecoded.is_empty() {
            return None;
        }
        Some(self.bound.load_full())
    }

    /// The bound policies. While those of the cluster are not synced, this waits for them in the first seconds.
    ///
    /// # Errors
    /// 503 if the policies cannot be read, and writes are refused then. 503 if a policy or binding that this server stores
    /// cannot be decoded.
    pub(super) async fn bound(&self) -> Result<Arc<Vec<Bound>>, AdmissionError> {
        const WHAT: &str = "the policies of the cluster";
        if let Some(cluster) = &self.cluster {
            cluster.policies.settled(PLUGIN, WHAT).await?;
            cluster.bindings.settled(PLUGIN, WHAT).await?;
        }
        self.undecoded.check(PLUGIN, None)?;
        Ok(self.known().unwrap_or_else(|| self.bound.load_full()))
    }

    /// The parameters in the cluster; `None` without a cluster.
    pub(super) fn params(&self) -> Option<&KindReader> {
        self.cluster.as_ref().map(|cluster| &cluster.params)
    }

    /// The state of the policies as a source, once they are followed.
    pub fn policies_source(&self) -> Option<SourceState> {
        self.cluster.as_ref()?.policies.source()
    }

    /// The state of the bindings as a source, once they are followed.
    pub fn bindings_source(&self) -> Option<SourceState> {
        self.cluster.as_ref()?.bindings.source()
    }

    fn take_changed(&self, cluster: &ClusterPolicies) {
        let (policies, bindings) = (cluster.policies.followed(), cluster.bindings.followed());
        // The lock comes first: a concurrent call that takes the changes publishes them before it is released.
        let mut state = self.lock();
        if !policies.have_changed() && !bindings.have_changed() {
            return;
        }
        for (key, policy) in policies.take_changed() {
            let policy = policy.map(|policy| Arc::new(Policy::new(&policy)));
            set(&mut state.policies, key.name(), policy);
        }
        for (key, binding) in bindings.take_changed() {
            let binding = binding.map(|binding| Arc::new(Binding::new(&binding)));
            set(&mut state.bindings, key.name(), binding);
        }
        self.publish(&state);
    }

    /// Applies a change of the policies or bindings that this server stores.
    fn append<K: SourceType, T>(
        &self,
        entry: &LogEntry,
        new: impl FnOnce(&K) -> T,
        all: impl FnOnce(&mut State) -> &mut BTreeMap<String, Arc<T>>,
    ) {
        self.undecoded.decode::<K>(entry, |object| {
            let mut state = self.lock();
            set(all(&mut state), entry.key.name(), object.map(|object| Arc::new(new(&object))));
            self.publish(&state);
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) {
        let mut bindings: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in state.bindings.values() {
            bindings.entry(&binding.policy).or_default().push(Arc::clone(binding));
        }
        let bound = bindings.into_iter().filter_map(|(policy, bindings)| {
            let policy = Arc::clone(state.policies.get(policy)?);
            Some(Bound { policy, bindings })
        });
        self.bound.store(Arc::new(bound.collect()));
    }
}

fn set<T>(all: &mut BTreeMap<String, Arc<T>>, name: &str, value: Option<Arc<T>>) {
    match value {
        Some(value) => drop(all.insert(name.to_owned(), value)),
        None => drop(all.remove(name)),
    }
}

/// Follows the policies that this server stores. A change applies to every write that starts after it.
pub struct PolicyReader(pub Arc<PolicyRegistry>);

/// Follows the bindings that this server stores. A change applies to every write that starts after it.
pub struct BindingReader(pub Arc<PolicyRegistry>);

impl LogReader for PolicyReader {
    fn damage(&self, key: Key) {
        self.0.undecoded.record_damaged::<ValidatingAdmissionPolicy>(key);
    }

    fn append(&self, entry: LogEntry) {
        self.0.append::<ValidatingAdmissionPolicy, _>(&entry, Policy::new, |state| {
            &mut state.policies
        });
    }
}

impl LogReader for BindingReader {
    fn damage(&self, key: Key) {
        self.0.undecoded.record_damaged::<ValidatingAdmissionPolicyBinding>(key);
    }

    fn append(&self, entry: LogEntry) {
        self.0.append::<ValidatingAdmissionPolicyBinding, _>(&entry, Binding::new, |state| {
            &mut state.bindings
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;

    #[tokio::test]
    async fn writes_are_refused_until_a_damaged_policy_is_deleted() {
        let registry = Arc::new(PolicyRegistry::of_store());
        let reader = PolicyReader(Arc::clone(&registry));
        let key = Key::new(None, "p");
        reader.damage(key.clone());
        assert!(registry.known().is_none());
        let refused = registry.bound().await.unwrap_err().message();
        assert!(refused.contains("\"p\" cannot be decoded: the stored object"), "{refused}");
        reader.append(LogEntry { revision: Revision::new(1), key, before: None, object: None });
        assert!(registry.bound().await.unwrap().is_empty());
    }
}
