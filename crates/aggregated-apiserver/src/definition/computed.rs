//! Computed kinds: kinds that are views of other objects in the cluster.

mod completions;
mod computation;
mod fair_queue;
mod fan_out;
mod identity;
mod shared_json;
mod source_table;
mod unpublished;
mod variant;

use std::error::Error;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::lookup::Related;
use super::{FieldPermissions, PrinterColumns, Visibility};
use crate::cluster::{SourceOptions, SourceType};
use crate::object::Key;
use crate::watch_cache::{SourceState, WatchCache};
use computation::Computation;
pub use fan_out::FanOut;
pub use variant::{ComputedFromVariants, Variant, Variants};
pub(super) use variant::{Only, Opened};

/// The number of objects that are computed or published before the task yields to other tasks.
const BATCH: usize = 256;

/// A kind that is a view of other objects in the cluster. It is read-only and follows their changes.
///
/// A caller that reads the kind needs permission for the same verb on its [`Computed::Source`]. The caller needs the
/// same permission on the types of its lookups, unless the [`field_permissions`](Self::field_permissions) declare that
/// a lookup is harmless or which fields are omitted without the permission.
///
/// There is one object for each source for which [`compute`](Self::compute) returns an object, or
/// [several](Self::compute_all). A computation reads other objects with a [`Lookup`](super::Lookup): by name, by an
/// index, by labels in both directions, and as sums over groups. An object is computed again when an object that it was
/// computed from changes. Watchers receive an event if the result differs.
///
/// ```
/// use aggregated_apiserver::{Computed, FieldPermissions, Lookup};
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// A node, and how much runs on it.
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "BusyNode")]
/// pub struct BusyNodeSpec {
///     pub pods: usize,
///     pub containers: usize,
/// }
///
/// fn node_name(pod: &Pod) -> Option<String> {
///     pod.spec.as_ref()?.node_name.clone()
/// }
///
/// fn containers(pod: &Pod) -> usize {
///     pod.spec.as_ref().map_or(0, |spec| spec.containers.len())
/// }
///
/// impl Computed for BusyNode {
///     type Source = Node;
///     type Related = Lookup<Pod>;
///
///     fn compute(node: &Node, pods: &Lookup<Pod>) -> Option<Self> {
///         let name = node.metadata.name.as_deref()?;
///         let spec = BusyNodeSpec {
///             pods: pods.count_by(node_name, None, name),
///             containers: pods.sum_by(node_name, containers, None, name),
///         };
///         Some(Self::new(name, spec))
///     }
///
///     // A reader of Nodes may know how much there is on them.
///     fn field_permissions() -> FieldPermissions {
///         FieldPermissions::new().shows::<Pod>(["spec.pods", "spec.containers"])
///     }
/// }
///
/// // A computation is a pure function, and is tested as one.
/// let node = Node { metadata: BusyNode::new("node-1", BusyNodeSpec { pods: 0, containers: 0 }).metadata, ..Node::default() };
/// let busy = BusyNode::compute(&node, &Lookup::from_objects([]));
/// assert_eq!(busy.map(|busy| busy.spec.pods), Some(0));
/// ```
///
/// # Which objects are read from the cluster
///
/// Sources and lookups are listed and watched once for all kinds, per type as it is declared. A type of few fields uses
/// little memory: `#[resource(inherit = Pod)]` of kube's derive creates such a type, and a type can implement
/// [`SourceType`] itself. Of a `PartialObjectMeta`, only the metadata is requested. [`OPTIONS`](Self::OPTIONS) and
/// [`LookupOptions`](super::LookupOptions) select the objects, and whether they are polled. Generated manifests request
/// permissions for exactly these reads. Objects can also come from a [stream](super::Kinds::with_source_stream).
///
/// Until the sources have been listed, requests are rejected with 429. A kind waits for its lookups for at most ten
/// seconds; their results are omitted while they cannot be read. While the cluster cannot be reached, the last known
/// objects are served; after a minute, responses carry a warning.
///
/// # Measurements
///
/// [Measured](SourceOptions::measured) values, such as CPU and memory usage, change all the time. If only measurements
/// of an object have changed, watchers receive an event when the change [is worth it](Self::is_worth_publishing), [at
/// most this often](Self::MEASURED_AT_MOST_EVERY), and otherwise [later](Self::MEASURED_AT_LATEST).
///
/// # Selecting
///
/// Every scalar can be a selectable field (`selectable = ".spec.pods"` in kube's derive): the limit of eight does not
/// apply to computed kinds.
pub trait Computed:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + Send + 'static
{
    /// The type of the source objects. Each object is computed from one of them.
    type Source: SourceType;
    /// The lookups of the computation: none (`()`), a [`Lookup`](super::Lookup), a
    /// [`MetadataLookup`](super::MetadataLookup), or a tuple of up to twelve of these or of such tuples.
    type Related: Related;

    /// The sources that are read; all of them by default. Other sources have no object.
    const OPTIONS: SourceOptions = SourceOptions::ALL;

    /// The number of objects of each source, and their namespaces. For [`FanOut::One`], the kind implements
    /// [`compute`](Self::compute), and for the others [`compute_all`](Self::compute_all).
    const FAN_OUT: FanOut = FanOut::One;

    /// The largest number of objects of each source. A source with more objects keeps its last ones, and the log names
    /// it. The objects of a source may have at most 32 MiB of JSON together.
    const MAX_OBJECTS: usize = 10_000;

    /// Computes the object of a source, or none. The function is pure: the same input gives the same output. If the
    /// result has no namespace or creation time, those of the source are used; the uid is derived from the source's
    /// uid. An object is rejected if its namespace differs from that of its source, or if [`Computed::source_name`]
    /// does not map its name to the source. The reason: permissions of readers are checked on the source.
    fn compute(_source: &Self::Source, _related: &Self::Related) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Computes all objects of a source, with different keys; see [`compute`](Self::compute) and [`FanOut`]. The uids
    /// also depend on the names and namespaces of the objects. If one object is rejected, the last objects of the source
    /// stay, and the log names the source.
    ///
    /// ```
    /// use aggregated_apiserver::Computed;
    /// use aggregated_apiserver::computed::FanOut;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::CustomResource;
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    ///
    /// /// A package of a catalog. Each key of a ConfigMap is a package.
    /// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// #[kube(group = "example.com", version = "v1", kind = "Package", namespaced)]
    /// pub struct PackageSpec {
    ///     pub version: String,
    /// }
    ///
    /// impl Computed for Package {
    ///     type Source = ConfigMap;
    ///     type Related = ();
    ///
    ///     const FAN_OUT: FanOut = FanOut::Several;
    ///
    ///     fn compute_all(catalog: &ConfigMap, (): &()) -> Vec<Self> {
    ///         let catalog_name = catalog.metadata.name.as_deref().unwrap_or_default();
    ///         let packages = catalog.data.iter().flatten();
    ///         let package = |(name, version): (&String, &String)| {
    ///             let spec = PackageSpec { version: version.clone() };
    ///             Self::new(&format!("{name}.{catalog_name}"), spec)
    ///         };
    ///         packages.map(package).collect()
    ///     }
    ///
    ///     /// The package `vim.tools` belongs to the ConfigMap `tools`.
    ///     fn source_name(name: &str) -> Option<String> {
    ///         name.split_once('.').map(|(_, catalog)| catalog.to_owned())
    ///     }
    /// }
    /// ```
    fn compute_all(source: &Self::Source, related: &Self::Related) -> Vec<Self>
    where
        Self: Sized,
    {
        Self::compute(source, related).into_iter().collect()
    }

    /// The longest time that [`complete`](Self::complete) may take for the objects of one source; `None`: the method is
    /// not called.
    const COMPLETION_TIMEOUT: Option<Duration> = None;

    /// Completes a computed object with what has to be asked elsewhere, such as in the API of a cloud. The method is
    /// called after each computation if the kind has a [`COMPLETION_TIMEOUT`](Self::COMPLETION_TIMEOUT), for at most 16
    /// sources at the same time; the other sources wait, round-robin over their namespaces. An object that is completed
    /// to `None` is not served.
    ///
    /// The objects of one source are completed sequentially, and all or none of them are published. After an error, a
    /// panic or the timeout, the last objects of the source stay, the log names the error, and the objects are computed
    /// again after a pause of up to a minute. Objects that are not computed any more are deleted before the completion,
    /// so a completion must not change names. A kind waits for its first objects for at most ten seconds; those that are
    /// completed later are added then.
    ///
    /// # Errors
    /// If the object cannot be completed now.
    ///
    /// ```
    /// # use aggregated_apiserver::Computed;
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use kube::CustomResource;
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// use std::error::Error;
    /// use std::time::Duration;
    ///
    /// /// A node, and its price.
    /// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// #[kube(group = "example.com", version = "v1", kind = "PricedNode")]
    /// pub struct PricedNodeSpec {
    ///     pub cents_per_hour: Option<u32>,
    /// }
    ///
    /// # async fn price_of(name: &str) -> std::io::Result<u32> { Ok(7) }
    /// impl Computed for PricedNode {
    ///     type Source = Node;
    ///     type Related = ();
    ///
    ///     fn compute(node: &Node, (): &()) -> Option<Self> {
    ///         let name = node.metadata.name.as_deref()?;
    ///         Some(Self::new(name, PricedNodeSpec { cents_per_hour: None }))
    ///     }
    ///
    ///     const COMPLETION_TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));
    ///
    ///     async fn complete(mut node: Self) -> Result<Option<Self>, Box<dyn Error + Send + Sync>> {
    ///         let name = node.metadata.name.clone().unwrap_or_default();
    ///         node.spec.cents_per_hour = Some(price_of(&name).await?);
    ///         Ok(Some(node))
    ///     }
    /// }
    /// ```
    fn complete(object: Self) -> impl Future<Output = Result<Option<Self>, CompletionError>> + Send
    where
        Self: Sized,
    {
        ready(Ok(Some(object)))
    }

    /// The shortest time between two events of an object that are caused by [measurements](SourceOptions::measured)
    /// alone. Any other change is published at once, together with the current measurements.
    const MEASURED_AT_MOST_EVERY: Duration = Duration::from_secs(15);
    /// The longest delay before a measurement is published that is [not worth an event](Self::is_worth_publishing).
    const MEASURED_AT_LATEST: Duration = Duration::from_secs(300);

    /// Whether the computed object differs enough from the published one to send an event to every watcher. Called only
    /// if nothing except [measurements](SourceOptions::measured) has changed. If the result is false, the object is
    /// published later: with its next change, or after [`MEASURED_AT_LATEST`](Self::MEASURED_AT_LATEST).
    fn is_worth_publishing(_shown: &Self, _computed: &Self) -> bool
    where
        Self: Sized,
    {
        true
    }

    /// The name of the source of an object with this name, or `None` if no source can have such an object. A `get` of
    /// the object needs permission to `get` that source.
    fn source_name(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    /// Table cells that no JSONPath can express.
    fn printer_columns() -> PrinterColumns<Self>
    where
        Self: Sized,
    {
        PrinterColumns::new()
    }

    /// The objects that are visible to each reader, among those that the reader is allowed to read.
    fn visibility() -> Visibility<Self>
    where
        Self: Sized,
    {
        Visibility::everything()
    }

    /// The fields that are computed from lookups, and the readers to which they are visible. A type that is not
    /// declared needs permission on all of its objects; without it the request is rejected.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
    }
}

/// The error of a [completion](Computed::complete).
pub type CompletionError = Box<dyn Error + Send + Sync>;

/// A computation, independent of its types.
pub trait AnyComputation: Send {
    /// Whether its sources and lookups are known.
    fn is_synced(&self) -> bool;
    /// Whether the computation has sources: false if its source type is omitted because it cannot be read.
    fn has_source(&self) -> bool;
    /// The state of the source type and of each lookup.
    fn sources(&self) -> Vec<SourceState>;
    /// Takes the sources that must be computed again now, each with whether only a measurement has changed. Also
    /// returns when to call this again at the latest.
    fn take_work(&mut self) -> (Vec<(Key, bool)>, Option<Instant>);
    /// Computes one source again and publishes the result: immediately, later if only a measurement has changed, or
    /// once it is complete. Returns the number of objects.
    fn update(&mut self, source_key: &Key, is_measured: bool) -> usize;
    /// Publishes completed objects. Returns their number, and the sources that must be computed again, each with
    /// whether only a measurement has changed.
    fn take_completed(&mut self) -> (usize, Vec<(Key, bool)>);
    /// Whether the first objects are complete. Also returns when to look again at the latest.
    fn is_completed(&self) -> (bool, Option<Instant>);
    /// When the next held-back object must be computed again.
    fn next_held_back(&self) -> Option<Instant>;
}

/// Runs the computations of a kind and updates its watch cache until the server stops.
pub(super) async fn run(Opened { mut computations, notify, .. }: Opened, cache: Arc<WatchCache>) {
    let mut wake_at: Option<Instant> = None;
    let mut left = BATCH;
    loop {
        let changed = notify.notified();
        match wake_at {
            // The work is the same after a change and after the timeout.
            Some(time) => drop(tokio::time::timeout_at(time, changed).await),
            None => changed.await,
        }
        let mut times = Vec::new();
        for computation in &mut computations {
            let (published, again) = computation.take_completed();
            left = rest_of_batch(left, published).await;
            let (work, until) = computation.take_work();
            for (key, is_measured) in again.into_iter().chain(work) {
                let count = computation.update(&key, is_measured);
                left = rest_of_batch(left, count.max(1)).await;
            }
            times.extend(until.into_iter().chain(computation.next_held_back()));
            times.extend(computation.is_completed().1);
        }
        wake_at = times.into_iter().min();
        // A source type that exceeded its memory limit may be synced again only from here on.
        let sources = computations.iter().flat_map(|computation| computation.sources());
        cache.set_sources(SourceState::each_once(sources));
        // If all sources are omitted, there is nothing to serve.
        let is_known = computations.iter().any(|computation| computation.has_source());
        let mut all = computations.iter();
        if is_known && all.all(|one| one.is_synced() && one.is_completed().0) {
            cache.mark_synced();
        }
    }
}

/// Returns how many objects are left of a batch after this number of objects. Yields to other tasks after its end.
async fn rest_of_batch(left: usize, count: usize) -> usize {
    if count < left {
        return left - count;
    }
    tokio::task::yield_now().await;
    BATCH
}

/// The name of a resource, and the `source_name` of its variant.
type SourceNaming = (String, fn(&str) -> Option<String>);

#[cfg(test)]
mod tests;
