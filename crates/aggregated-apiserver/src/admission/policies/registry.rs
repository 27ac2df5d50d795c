//! The policies that are bound now, from the cluster or from this server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde::de::DeserializeOwned;

use super::PLUGIN;
use super::policy::{Binding, Policy};
use crate::admission::configurations::ClusterConfigurations;
use crate::admission::{AdmissionError, UnreadConfigurations};
use crate::cluster::{Cluster, KindReader, Sources};
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
        Self { state: Mutex::default(), bound: ArcSwap::default(), cluster: None }
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
        Some(self.bound.load_full())
    }

    /// The bound policies. While those of the cluster are not synced, this waits for them in the first seconds.
    ///
    /// # Errors
    /// 503 if the policies cannot be read, and writes are refused then.
    pub(super) async fn bound(&self) -> Result<Arc<Vec<Bound>>, AdmissionError> {
        const WHAT: &str = "the policies of the cluster";
        if let Some(cluster) = &self.cluster {
            cluster.policies.settled(PLUGIN, WHAT).await?;
            cluster.bindings.settled(PLUGIN, WHAT).await?;
        }
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
        if !policies.have_changed() && !bindings.have_changed() {
            return;
        }
        self.change(|state| {
            for (key, policy) in policies.take_changed() {
                let policy = policy.map(|policy| Arc::new(Policy::new(&policy)));
                set(&mut state.policies, key.name(), policy);
            }
            for (key, binding) in bindings.take_changed() {
                let binding = binding.map(|binding| Arc::new(Binding::new(&binding)));
                set(&mut state.bindings, key.name(), binding);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
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
    fn append(&self, entry: LogEntry) {
        let policy = read::<ValidatingAdmissionPolicy>(&entry);
        let policy = policy.map(|policy| Arc::new(Policy::new(&policy)));
        self.0.change(|state| set(&mut state.policies, entry.key.name(), policy));
    }
}

impl LogReader for BindingReader {
    fn append(&self, entry: LogEntry) {
        let binding = read::<ValidatingAdmissionPolicyBinding>(&entry);
        let binding = binding.map(|binding| Arc::new(Binding::new(&binding)));
        self.0.change(|state| set(&mut state.bindings, entry.key.name(), binding));
    }
}

/// The object of a log entry. Stored objects match their type.
fn read<K: DeserializeOwned>(entry: &LogEntry) -> Option<K> {
    serde_json::from_slice(&entry.object.as_ref()?.json()).ok()
}
