//! Lookup: the objects of other types that a computation can read.
//!
//! Each lookup is recorded, also if it found nothing. A change computes again only the objects whose lookups it may
//! affect.

mod any_lookup;
mod availability;
mod changes;
mod groups;
mod indexed_objects;
mod labels;
mod metadata;
mod pairs;
mod queries;
mod related;
mod shared_lookups;
mod small_set;
mod sums;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::Selector;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::{ChangedKeys, SourceInformer, SourceObjects, SourceOptions, SourceType};
use crate::object::Key;
pub use any_lookup::AnyLookup;
pub(super) use any_lookup::{is_left_out, source_state};
use availability::Availability;
#[cfg(test)]
pub(in crate::definition) use availability::GRACE;
pub(in crate::definition) use availability::PATIENCE;
use indexed_objects::{IndexId, IndexedObjects};
use labels::Terms;
pub use metadata::{MetadataLookup, MetadataType};
use pairs::JoinedObjects;
pub use queries::{Invalidated, QueryId};
use queries::{Queries, Query, Search};
pub use related::Related;
pub use shared_lookups::{ComputationNumber, LookupContext, SharedLookups, SourceNumber};
pub use sums::Aggregate;
use sums::Sums;

/// Objects of another type that a computation can read.
///
/// Objects are found by name ([`get`](Self::get)), by namespace ([`list`](Self::list)), by an index over any of their
/// fields ([`find_by`](Self::find_by)), by their labels ([`find_matching`](Self::find_matching)), and by the labels
/// that they select ([`find_selecting`](Self::find_selecting)). [`sum_by`](Self::sum_by) computes sums over groups of
/// them. Each query is recorded with the object that was computed from its result, also if nothing was found. When
/// the result may have changed, that object is computed again, and no other. The cost of a change therefore depends on
/// the number of objects to compute again, not on the total number of objects.
///
/// An index is built at its first use and then stored. It uses about a hundred bytes for each indexed value. This
/// memory counts towards the limit of the type's objects.
///
/// Some lookups cannot be read: the permission is missing, the cluster does not have the type, or the objects exceed
/// the memory limit. Then nothing is found and [`is_available`](Self::is_available) returns false. Warnings in
/// responses, metrics and `/readyz` report it. If an optional API ([`SourceOptions::if_served`]) is absent, responses
/// carry no warning. When the objects can be read again, the objects whose computations asked for them are computed
/// again. No kind waits for its lookups longer than ten seconds.
///
/// All objects of the type are read, unless `S` selects some: see [`LookupOptions`].
///
/// Readers of the computed kind need permission on its source and on the looked-up types, unless the
/// [`FieldPermissions`](crate::definition::FieldPermissions) of the kind declare that a lookup is harmless or which fields are
/// omitted.
///
/// Each method takes a `namespace`, or `None` for all namespaces and for cluster-scoped objects. Results are ordered by
/// namespace and name.
///
/// ```
/// use aggregated_apiserver::Lookup;
/// use k8s_openapi::api::core::v1::{Pod, Service};
/// use kube::core::Selector;
/// use serde_json::{from_value, json};
///
/// /// An index of Pods: the node that each runs on.
/// fn node_name(pod: &Pod) -> Option<String> {
///     pod.spec.as_ref()?.node_name.clone()
/// }
///
/// /// What a Service selects: nothing, if it does not say so.
/// fn selector(service: &Service) -> Option<Selector> {
///     Some(service.spec.as_ref()?.selector.clone()?.into_iter().collect())
/// }
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let pods: Lookup<Pod> = Lookup::from_objects([from_value(json!({
///     "metadata": {"namespace": "shop", "name": "web-0", "labels": {"app": "web"}},
///     "spec": {"nodeName": "node-1", "containers": []},
/// }))?]);
/// assert_eq!(pods.find_by(node_name, None, "node-1").len(), 1);
/// assert_eq!(pods.find_by(node_name, Some("other"), "node-1").len(), 0);
/// let web = Selector::from_iter([("app", "web")]);
/// assert_eq!(pods.find_matching(Some("shop"), web).len(), 1);
///
/// let services: Lookup<Service> = Lookup::from_objects([from_value(json!({
///     "metadata": {"namespace": "shop", "name": "web"},
///     "spec": {"selector": {"app": "web"}},
/// }))?]);
/// let pod = pods.get(Some("shop"), "web-0").unwrap_or_default();
/// let labels = pod.metadata.labels.clone().unwrap_or_default();
/// let of_pod = services.find_selecting(selector, Some("shop"), &labels);
/// assert_eq!(of_pod[0].metadata.name.as_deref(), Some("web"));
/// # Ok(())
/// # }
/// ```
///
/// The variants of a [kind that is computed from several types](crate::definition::ComputedFromVariants) share their
/// lookups: each looked-up type has the indexes and sums of all variants.
pub struct Lookup<K, S = AllObjects> {
    shared: Arc<Shared<K>>,
    /// The computation that this handle belongs to, among those that share the lookup.
    computation: ComputationNumber,
    scope: PhantomData<fn() -> S>,
}

/// The objects that a [`Lookup`] reads from the cluster.
///
/// ```
/// use aggregated_apiserver::Lookup;
/// use aggregated_apiserver::computed::{LookupOptions, SourceOptions};
/// use k8s_openapi::api::core::v1::Event;
///
/// /// The Events that are about Pods.
/// pub struct OfPods;
///
/// impl LookupOptions for OfPods {
///     const OPTIONS: SourceOptions = SourceOptions::ALL.with_fields("involvedObject.kind=Pod");
/// }
///
/// pub type PodEvents = Lookup<Event, OfPods>;
/// ```
pub trait LookupOptions: 'static {
    /// The scope that is read.
    const OPTIONS: SourceOptions;
}

/// All objects of a type.
pub struct AllObjects;

impl LookupOptions for AllObjects {
    const OPTIONS: SourceOptions = SourceOptions::ALL;
}

/// The consequence in log messages about a looked-up type that is not synced.
const MISSING: &str = "computed objects omit its fields";

/// The state that lookups of the same type share within one kind.
struct Shared<K> {
    /// The informer of the objects; `None` for the objects of tests.
    followed: Option<Followed<K>>,
    state: Mutex<State<K>>,
}

struct Followed<K> {
    informer: Arc<SourceInformer<K>>,
    changed: Arc<ChangedKeys>,
    notify: Arc<Notify>,
    opened: Instant,
}

struct State<K> {
    /// The availability that computations see; it changes only between computations.
    availability: Availability,
    /// The indexes and sums; built at the first query that is not by name.
    indexed: Option<IndexedObjects<K>>,
    /// The bytes of the indexes and the queries that the informer has counted.
    charged: usize,
    queries: Queries,
    /// When changes were last processed, if the scope delays them.
    processed_at: Option<Instant>,
}

impl<K: SourceType, S: LookupOptions> Lookup<K, S> {
    /// Returns the object with this name; `namespace` is `None` for cluster-scoped types.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let key = Key::new(namespace, name);
        let mut state = self.state();
        let found = match (&state.indexed, &self.shared.followed) {
            _ if state.availability != Availability::Available => None,
            (Some(indexed), _) => indexed.get(&key),
            (None, Some(followed)) => followed.informer.get_keyed(&key),
            (None, None) => None,
        };
        // The key of a found object is shared, so it needs no memory of its own.
        let (key, found) = found.map_or((key, None), |(key, found)| (key, Some(found)));
        state.queries.record(Query::Named(key));
        found
    }

    /// Returns all objects of a namespace. The computation runs again when any of them changes.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        let search = Search::All(namespace.map(Box::from));
        self.find(search, |indexed| indexed.all(namespace))
    }

    /// Returns the objects that `index` finds by this value. An index is a function from an object to the values by
    /// which it is found: the name of its node, the uids of its owners. An index is identified by its type. It must be
    /// a function, or a closure that captures nothing, and its result must depend on the object alone.
    pub fn find_by<F, T>(&self, index: F, namespace: Option<&str>, text: &str) -> Vec<Arc<K>>
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
    {
        self.take_indexed(index, namespace, text, |found| found.cloned().collect())
    }

    /// Returns the first object of [`find_by`](Self::find_by), in the order of namespaces and names, without visiting
    /// the others. Use it to get one example of many objects.
    pub fn first_by<F, T>(&self, index: F, namespace: Option<&str>, text: &str) -> Option<Arc<K>>
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
    {
        self.take_indexed(index, namespace, text, |found| found.next().cloned())
    }

    /// Takes some of the objects that an index finds by a value.
    fn take_indexed<F, T, R: Default>(
        &self,
        index: F,
        namespace: Option<&str>,
        value: &str,
        take: impl FnOnce(&mut dyn Iterator<Item = &Arc<K>>) -> R,
    ) -> R
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
    {
        let id = IndexId::of_function::<F>();
        let search = Search::Indexed(namespace.map(Box::from), id, value.into());
        self.find(search, |indexed| {
            take(&mut indexed.indexed(id, || index_function(index), namespace, value))
        })
    }

    /// Returns the objects whose labels match a selector; an empty selector matches every object.
    pub fn find_matching(&self, namespace: Option<&str>, selector: Selector) -> Vec<Arc<K>> {
        let terms = Terms::of(selector);
        let search = Search::Matching(namespace.map(Box::from), terms.clone());
        self.find(search, |indexed| indexed.matching(namespace, &terms))
    }

    /// Returns the objects whose selectors match these labels. `selector` returns the label selector of an object, or
    /// `None` if the object selects nothing. It is identified by its type, as an index is.
    pub fn find_selecting<F>(
        &self,
        selector: F,
        namespace: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<K>>
    where
        F: Fn(&K) -> Option<Selector> + Send + Sync + 'static,
    {
        let id = IndexId::of_function::<F>();
        let labels = labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        let labels: crate::object::Labels = labels.collect();
        let search = Search::Selecting(namespace.map(Box::from), id, labels.clone());
        let selector_function = || -> indexed_objects::SelectorFunction<K> { Box::new(selector) };
        self.find(search, |indexed| indexed.selecting(id, selector_function, namespace, &labels))
    }

    /// Returns the sum of a `measure` over the objects that `index` finds by this value: for example, the resource
    /// requests of the Pods on a node. A change of one object updates the sum without visiting the others of the group.
    /// The computations that asked for the sum run again only if the sum has changed. Both functions are identified by
    /// their types.
    ///
    /// ```
    /// use aggregated_apiserver::Lookup;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use serde_json::{from_value, json};
    ///
    /// fn node_name(pod: &Pod) -> Option<String> {
    ///     pod.spec.as_ref()?.node_name.clone()
    /// }
    ///
    /// fn containers(pod: &Pod) -> usize {
    ///     pod.spec.as_ref().map_or(0, |spec| spec.containers.len())
    /// }
    ///
    /// # fn main() -> Result<(), serde_json::Error> {
    /// let pod = |name: &str| {
    ///     let containers = json!([{"name": "a"}, {"name": "b"}]);
    ///     let spec = json!({"nodeName": "node-1", "containers": containers});
    ///     from_value(json!({"metadata": {"namespace": "n", "name": name}, "spec": spec}))
    /// };
    /// let pods: Lookup<Pod> = Lookup::from_objects([pod("a")?, pod("b")?]);
    /// assert_eq!(pods.sum_by(node_name, containers, None, "node-1"), 4);
    /// assert_eq!(pods.count_by(node_name, None, "node-1"), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sum_by<F, T, M, V>(&self, index: F, measure: M, namespace: Option<&str>, text: &str) -> V
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
        M: Fn(&K) -> V + Send + Sync + 'static,
        V: Aggregate,
    {
        let id = (IndexId::of_function::<F>(), IndexId::of_function::<M>());
        let search = Search::Sum(namespace.map(Box::from), id, text.into());
        let sums_of = || Sums::of_objects(index_function(index), measure);
        self.find(search, |indexed| indexed.sum(id, sums_of, namespace, text))
    }

    /// Returns the number of objects that `index` finds by this value: the [`sum_by`](Self::sum_by) of ones.
    pub fn count_by<F, T>(&self, index: F, namespace: Option<&str>, text: &str) -> usize
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
    {
        self.sum_by(index, |_| 1, namespace, text)
    }

    /// Returns the sum of a `measure` over pairs: each object that `index` finds by this value, with the object among
    /// `others` that has the same namespace and name. Objects without a counterpart add nothing. It can, for example,
    /// sum the metrics of Pods by a field of the Pods. A change on either side updates the sum without visiting the
    /// rest of the group. The contribution of a pair is computed a second time to subtract it, so `measure` must depend
    /// on the pair alone.
    ///
    /// ```
    /// use aggregated_apiserver::Lookup;
    /// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// use serde_json::{from_value, json};
    ///
    /// fn node_name(pod: &Pod) -> Option<String> {
    ///     pod.spec.as_ref()?.node_name.clone()
    /// }
    ///
    /// fn used(_: &Pod, measured: &ConfigMap) -> i64 {
    ///     let used = measured.data.as_ref().and_then(|data| data.get("used")?.parse().ok());
    ///     used.unwrap_or_default()
    /// }
    ///
    /// # fn main() -> Result<(), serde_json::Error> {
    /// let metadata = |name: &str| json!({"namespace": "n", "name": name});
    /// let pod = |name: &str| {
    ///     from_value(json!({"metadata": metadata(name), "spec": {"nodeName": "node-1", "containers": []}}))
    /// };
    /// let measured = |name: &str| from_value(json!({"metadata": metadata(name), "data": {"used": "3"}}));
    /// let pods: Lookup<Pod> = Lookup::from_objects([pod("a")?, pod("b")?, pod("c")?]);
    /// let measured: Lookup<ConfigMap> = Lookup::from_objects([measured("a")?, measured("b")?]);
    /// assert_eq!(pods.sum_joined(node_name, &measured, used, None, "node-1"), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sum_joined<F, T, O, P, M, V>(
        &self,
        index: F,
        others: &Lookup<O, P>,
        measure: M,
        namespace: Option<&str>,
        text: &str,
    ) -> V
    where
        F: Fn(&K) -> T + Send + Sync + 'static,
        T: IntoIterator<Item: Into<Box<str>>>,
        O: SourceType,
        P: LookupOptions,
        M: Fn(&K, &O) -> V + Send + Sync + 'static,
        V: Aggregate,
    {
        const { assert!(size_of::<M>() == 0, "a measure is a function, not a value") };
        // The sum is computed again when the other objects become available or unavailable.
        if !others.is_available() {
            return V::default();
        }
        others.state().queries.record_join(namespace);
        let id = (IndexId::of_function::<F>(), IndexId::of::<(M, Lookup<O, P>)>());
        let search = Search::Sum(namespace.map(Box::from), id, text.into());
        // Both lookups can be the same one: the objects are taken here, because the state is locked below.
        let given = others.given();
        let sums_of = || {
            let others = given.map_or_else(|| others.followed(), JoinedObjects::given);
            Sums::of_pairs(index_function(index), measure, others)
        };
        self.find(search, |indexed| indexed.sum(id, sums_of, namespace, text))
    }

    /// Whether the objects can be read. If not, nothing is found.
    pub fn is_available(&self) -> bool {
        let mut state = self.state();
        state.queries.record(Query::Availability);
        state.availability == Availability::Available
    }

    /// Creates a lookup whose objects cannot be read, for tests of a computation.
    pub fn unavailable() -> Self {
        Self::new(None, Availability::Unavailable, None)
    }

    /// Creates a lookup with these objects, for tests of a computation.
    pub fn from_objects(objects: impl IntoIterator<Item = K>) -> Self {
        let keyed = objects.into_iter().map(|object| {
            let name = object.name().unwrap_or_default();
            (Key::new(object.namespace(), name), Arc::new(object))
        });
        Self::new(None, Availability::Available, Some(IndexedObjects::new(keyed.collect())))
    }

    fn open(context: &LookupContext<'_>) -> Self {
        let shared = context.shared_lookups.of_type(TypeId::of::<Self>(), || {
            let informer = context.sources.open::<K>(S::OPTIONS, MISSING);
            let notify = Arc::clone(context.notify);
            let changed = informer.follow(Arc::clone(&notify));
            let followed = Followed { informer, changed, notify, opened: Instant::now() };
            Shared::new(Some(followed), Availability::Unknown, None)
        });
        Self { shared, computation: context.computation, scope: PhantomData }
    }

    fn new(
        followed: Option<Followed<K>>,
        availability: Availability,
        indexed: Option<IndexedObjects<K>>,
    ) -> Self {
        let shared = Arc::new(Shared::new(followed, availability, indexed));
        Self { shared, computation: ComputationNumber::default(), scope: PhantomData }
    }

    /// The objects that a test has given; `None` if the objects come from the cluster.
    fn given(&self) -> Option<SourceObjects<K>> {
        if self.shared.followed.is_some() {
            return None;
        }
        // A lookup that is left out has no objects.
        Some(
            self.state().indexed.as_ref().map(IndexedObjects::objects).cloned().unwrap_or_default(),
        )
    }

    /// The objects of the cluster, as the sums of another lookup follow them.
    fn followed(&self) -> JoinedObjects<K> {
        match &self.shared.followed {
            Some(Followed { informer, notify, .. }) => {
                JoinedObjects::followed(informer, notify, S::OPTIONS.is_measured())
            }
            None => JoinedObjects::given(SourceObjects::default()),
        }
    }

    fn find<T: Default>(
        &self,
        search: Search,
        find: impl FnOnce(&mut IndexedObjects<K>) -> T,
    ) -> T {
        let mut state = self.state();
        state.queries.record(search.into());
        if state.availability != Availability::Available {
            return T::default();
        }
        // If an index or a sum panics, the indexes are dropped instead of being put back.
        let mut indexed = state.indexed.take().unwrap_or_else(|| {
            let informer = self.shared.followed.as_ref().map(|followed| &followed.informer);
            IndexedObjects::new(informer.map(|informer| informer.objects()).unwrap_or_default())
        });
        let found = find(&mut indexed);
        state.indexed = Some(indexed);
        self.charge(&mut state);
        found
    }

    /// Reports the bytes of the indexes and queries to the informer.
    fn charge(&self, state: &mut State<K>) {
        let Some(followed) = &self.shared.followed else { return };
        let bytes = state.indexed.as_ref().map_or(0, IndexedObjects::bytes) + state.queries.bytes();
        followed.informer.charge(state.charged, bytes);
        state.charged = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Shared<K> {
    fn new(
        followed: Option<Followed<K>>,
        availability: Availability,
        indexed: Option<IndexedObjects<K>>,
    ) -> Self {
        let state = State {
            availability,
            indexed,
            charged: 0,
            queries: Queries::default(),
            processed_at: None,
        };
        Self { followed, state: Mutex::new(state) }
    }
}

/// Boxes an index, independent of the type of its values.
fn index_function<K, F, T>(index: F) -> indexed_objects::IndexFunction<K>
where
    F: Fn(&K) -> T + Send + Sync + 'static,
    T: IntoIterator<Item: Into<Box<str>>>,
{
    Box::new(move |object| index(object).into_iter().map(Into::into).collect())
}

#[cfg(test)]
mod tests;
