//! Metadata lookup: finds objects of any kind by references to them.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::availability::Availability;
use super::queries::{Queries, QueryId, Search};
use super::shared_lookups::{ComputationNumber, Dependent, LookupContext, SourceNumber};
use super::{AnyLookup, Invalidated, Related, source_state};
use crate::cluster::{KindName, KindSource, KindSources};
use crate::definition::kind::SourceKind;
use crate::object::Key;
use crate::object::names::check_path_segment;
use crate::watch_cache::SourceState;

/// The longest name of an object.
const NAME_LIMIT: usize = 253;
/// The prefix of the names of these sources, because the same resource can also be the type of another lookup.
const PREFIX: &str = "metadata-of-";

/// The metadata of objects of any kind, found by references: by apiVersion, kind, namespace and name.
///
/// `K` is the part of an object that is read: a type with a field `metadata`, such as `PartialObjectMeta`, or a type
/// with fewer fields, which uses less memory.
///
/// At the first reference to a kind, nothing is found. In the background, discovery determines whether the cluster
/// serves the kind and whether it is namespaced, and a request checks whether it may be listed. Then its metadata is
/// listed and watched, and the computations that asked for it run again. A kind that is not served or may not be read
/// is checked again with a growing delay (ten seconds at first, at most ten minutes). No kind waits for that, and
/// responses carry no warning. The log reports such kinds, and `/readyz` reports those that the cluster serves.
///
/// References are input of users, so several limits apply. At most 32 kinds are followed, only among those that the
/// cluster serves and allows to read. Discovery runs in rounds, at least ten seconds apart, with a limited number of
/// requests. A kind without any reference is forgotten. The objects count towards the memory limit of sources. A string
/// that is not a valid apiVersion, kind or name finds nothing.
///
/// [`FieldPermissions`](crate::definition::FieldPermissions) cannot cover these kinds, because they are not known in advance.
/// Every reader of the computed kind sees the fields that are computed from them, so these should be only names and
/// labels.
///
/// Generated manifests request no permissions for this lookup: the flag `--owner-resources` of the command names the
/// resources that it may read.
///
/// ```
/// use aggregated_apiserver::computed::MetadataLookup;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::PartialObjectMeta;
/// use serde_json::json;
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let owners: MetadataLookup<PartialObjectMeta<ConfigMap>> = MetadataLookup::from_objects([json!({
///     "apiVersion": "argoproj.io/v1alpha1",
///     "kind": "Rollout",
///     "metadata": {"namespace": "shop", "name": "web", "labels": {"team": "a"}},
/// })])?;
/// let found = owners.get("argoproj.io/v1alpha1", "Rollout", Some("shop"), "web");
/// assert!(found.is_some());
/// assert!(owners.get("argoproj.io/v1alpha1", "Rollout", Some("other"), "web").is_none());
/// # Ok(())
/// # }
/// ```
pub struct MetadataLookup<K> {
    shared: Arc<Shared<K>>,
    /// The computation that this handle belongs to, among those that share the lookup.
    computation: ComputationNumber,
}

/// A type that can be deserialized from the metadata of objects of any kind.
pub trait MetadataType: DeserializeOwned + Debug + Send + Sync + 'static {}

impl<K: DeserializeOwned + Debug + Send + Sync + 'static> MetadataType for K {}

struct Shared<K> {
    /// The followed kinds; `None` for the objects of tests.
    followed: Option<KindSources<K>>,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// The kinds that computations see; they change only between computations.
    visible: HashMap<KindName, VisibleKind<K>>,
    /// The objects of tests.
    given: HashMap<(KindName, Key), Arc<K>>,
    queries: Queries,
    /// The bytes of the queries that have been counted.
    charged: usize,
}

struct VisibleKind<K> {
    source: Arc<KindSource<K>>,
    availability: Availability,
}

impl<K> VisibleKind<K> {
    fn is_available(&self) -> bool {
        self.availability == Availability::Available
    }
}

impl<K: MetadataType> MetadataLookup<K> {
    /// Returns the object that a reference names. A cluster-scoped object is found with any `namespace`, because
    /// namespaced objects can have cluster-scoped owners.
    pub fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<K>> {
        let kind = KindName::new(api_version, kind)?;
        if name.is_empty() || name.len() > NAME_LIMIT || !check_path_segment(name).is_empty() {
            return None;
        }
        let mut state = self.state();
        let found = match state.visible.get(&kind) {
            Some(of_kind) if of_kind.is_available() => {
                let namespace = namespace.filter(|_| of_kind.source.is_namespaced);
                of_kind.source.informer.get(&Key::new(namespace, name))
            }
            Some(_) => None,
            None => {
                let given = |namespace| {
                    state.given.get(&(kind.clone(), Key::new(namespace, name))).cloned()
                };
                given(namespace).or_else(|| given(None))
            }
        };
        if let Some(followed) = &self.shared.followed {
            followed.want(&kind);
        }
        let namespace = namespace.map(Box::from);
        state.queries.record(Search::Referred(kind, name.into(), namespace).into());
        self.charge(&mut state);
        found
    }

    /// Creates a lookup with these objects, for tests of a computation. An object without apiVersion, kind or name is
    /// never found.
    ///
    /// # Errors
    /// If an object cannot be deserialized as `K`.
    pub fn from_objects(
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<Self, serde_json::Error> {
        let mut given = HashMap::new();
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            let kind = KindName::new(
                text("/apiVersion").unwrap_or_default(),
                text("/kind").unwrap_or_default(),
            );
            let name = text("/metadata/name").unwrap_or_default();
            let key = Key::new(text("/metadata/namespace"), name);
            let Some(kind) = kind else { continue };
            given.insert((kind, key), Arc::new(serde_json::from_value(object)?));
        }
        Ok(Self::new(None, given))
    }

    fn new(followed: Option<KindSources<K>>, given: HashMap<(KindName, Key), Arc<K>>) -> Self {
        Self {
            shared: Arc::new(Shared::new(followed, given)),
            computation: ComputationNumber::default(),
        }
    }

    /// Processes the changes for all computations that share this lookup. Returns when to do so again at the latest.
    fn process_changes(&self, followed: &KindSources<K>, state: &mut State<K>) -> Option<Instant> {
        let State { visible, queries, .. } = &mut *state;
        let mut times = Vec::new();
        let mut before = std::mem::take(visible);
        for (kind, source) in followed.followed() {
            let keys = source.changed.take();
            let status = source.informer.status();
            let (is, until) = Availability::at(Instant::now(), &status, source.opened);
            times.extend(until);
            let known = before.remove(&kind);
            let is_same = known.is_some_and(|known| {
                Arc::ptr_eq(&known.source, &source) && known.availability == is
            });
            if !is_same {
                queries.invalidate_kind(&kind);
            } else if is == Availability::Available {
                for key in keys {
                    queries.invalidate_referred(&kind, &key, source.is_namespaced);
                }
            }
            visible.insert(kind, VisibleKind { source, availability: is });
        }
        for kind in before.into_keys() {
            queries.invalidate_kind(&kind);
        }
        self.charge(state);
        times.into_iter().min()
    }

    /// Releases the kinds without any reference.
    fn release(&self, state: &mut State<K>) {
        let released = state.queries.take_released();
        if let Some(followed) = &self.shared.followed {
            released.iter().for_each(|kind| followed.release(kind));
        }
        self.charge(state);
    }

    /// Reports the bytes of the queries to the memory accounting.
    fn charge(&self, state: &mut State<K>) {
        let Some(followed) = &self.shared.followed else { return };
        let bytes = state.queries.bytes();
        followed.charge(state.charged, bytes);
        state.charged = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Shared<K> {
    fn new(followed: Option<KindSources<K>>, given: HashMap<(KindName, Key), Arc<K>>) -> Self {
        let state =
            State { visible: HashMap::new(), given, queries: Queries::default(), charged: 0 };
        Self { followed, state: Mutex::new(state) }
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = &self.followed {
            followed.charge(state.charged, 0);
        }
    }
}

impl<K: MetadataType> Related for MetadataLookup<K> {
    fn open(context: &LookupContext<'_>) -> Self {
        let shared = context.shared_lookups.of_type(TypeId::of::<Self>(), || {
            Shared::new(Some(context.sources.kinds(context.notify)), HashMap::new())
        });
        Self { shared, computation: context.computation }
    }

    fn lookups(&self) -> Vec<&dyn AnyLookup> {
        vec![self]
    }

    /// The kinds are not known in advance.
    fn kinds() -> Vec<SourceKind> {
        Vec::new()
    }
}

impl<K: MetadataType> AnyLookup for MetadataLookup<K> {
    fn type_of_objects(&self) -> TypeId {
        TypeId::of::<K>()
    }

    /// No declaration limits this lookup to a namespace.
    fn has_queried_outside(&self, _namespace: Option<&str>) -> bool {
        false
    }

    fn make_unavailable(&self) {
        let mut state = self.state();
        state.visible.clear();
        state.given.clear();
    }

    fn take_latest(&self) -> Vec<QueryId> {
        self.state().queries.take_latest()
    }

    fn set_dependencies(&self, source: SourceNumber, before: &[QueryId], now: &[QueryId]) {
        let mut state = self.state();
        state.queries.set_dependencies(Dependent::new(self.computation, source), before, now);
        self.release(&mut state);
    }

    fn take_invalidated(&self, invalidated: &mut Invalidated<SourceNumber>) -> Option<Instant> {
        let followed = self.shared.followed.as_ref()?;
        let mut state = self.state();
        let until = self.process_changes(followed, &mut state);
        state.queries.take_invalidated(self.computation, invalidated);
        until
    }

    /// Computations run without the kinds that are not known yet.
    fn is_settled(&self) -> bool {
        true
    }

    fn sources(&self) -> Vec<SourceState> {
        let Some(followed) = &self.shared.followed else { return Vec::new() };
        let visible = followed.followed().into_iter().map(|(kind, source)| {
            let state = self.state();
            let is_available = state.visible.get(&kind).is_some_and(VisibleKind::is_available);
            let status = source.informer.status();
            // Responses carry no warning about these kinds.
            let is_rightly_absent =
                !is_available || status.failure.is_some() || status.unreadable > 0;
            let state = source_state(format!("{PREFIX}{}", source.resource), status, false);
            SourceState { is_rightly_absent, is_left_out: Some(!is_available), ..state }
        });
        let unread = followed.unread().into_iter().map(|unread| SourceState {
            resource: format!("{PREFIX}{}", unread.resource),
            is_synced: false,
            watch_error: Some(unread.why),
            unseen_since: None,
            excess: None,
            unreadable: 0,
            is_left_out: Some(true),
            is_rightly_absent: true,
        });
        visible.chain(unread).collect()
    }

    #[cfg(test)]
    fn queries(&self) -> usize {
        self.state().queries.len()
    }
}
