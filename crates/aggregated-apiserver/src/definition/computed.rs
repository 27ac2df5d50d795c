//! Computed: a kind that is a view of something else in the cluster.

mod alike;
mod held_back;
mod known;
mod variant;

use std::any::TypeId;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::lookup::{self, Due, Opening, QuestionId, Related, Tracked};
use super::{Cells, Disclosures, Visibility, qualified, to_tree};
use crate::cluster::{Changed, SourceInformer, SourceScope, SourceType};
use crate::object::{Key, Object};
use crate::watch_cache::{SourceState, WatchCache};
use alike::Alike;
use held_back::HeldBack;
use known::KnownSources;
pub use variant::{ComputedFromSeveral, Variant, Variants};
pub(super) use variant::{Only, Opened};

/// What the log says while the sources of a kind are not in view.
const MISSING: &str = "what is computed from them is not served";

/// At most this many objects are computed before other tasks get their turn.
const BATCH: usize = 256;

/// Names uids of computed objects: version 5 of the source's uid and the kind.
const UIDS: Uuid = Uuid::from_u128(0x6f1a_4c9e_52d3_4b58_9c07_1d9b_3a6e_80f4);

/// A kind that is a view of something else in the cluster: read-only, and as
/// fresh as what it shows.
///
/// A caller who reads it needs the same right on its [`Computed::Source`] too, and on what is looked up besides, unless its
/// [`disclosures`](Self::disclosures) say that it is harmless, or what is left out without that right.
///
/// There is one object for each source, if [`compute`](Self::compute) makes one of it, and what else it
/// shows is looked up ([`Lookup`](super::Lookup)): by name, by what is in the other objects, by labels in
/// both directions, and as sums over groups. An object is computed again when something changes that it
/// was computed from, and an event comes of it when it is another one.
///
/// ```
/// use aggregated_apiserver::{Computed, Disclosures, Lookup};
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
///     fn disclosures() -> Disclosures {
///         Disclosures::new().shows::<Pod>(["spec.pods", "spec.containers"])
///     }
/// }
///
/// // A computation is a pure function, and is tested as one.
/// let node = Node { metadata: BusyNode::new("node-1", BusyNodeSpec { pods: 0, containers: 0 }).metadata, ..Node::default() };
/// let busy = BusyNode::compute(&node, &Lookup::from_objects([]));
/// assert_eq!(busy.map(|busy| busy.spec.pods), Some(0));
/// ```
///
/// # What of the cluster is read
///
/// The sources and what is looked up are listed and watched once for all kinds, of each type as it
/// is declared: a type of few fields (as `#[resource(inherit = Pod)]` of kube's derive makes one, or one that is a
/// [`SourceType`] by itself) takes little memory, of a `PartialObjectMeta` only metadata is asked for, and [`SCOPE`](Self::SCOPE) and
/// [`Scoped`](super::Scoped) say which objects, and whether they are polled. Manifests ask for the rights to
/// just that. Objects can also come from a [stream](super::Kinds::with_source_stream).
///
/// Until the sources have been listed, requests get 429. What is only looked up is not waited for
/// longer than ten seconds, and left out while it cannot be read. As long as the cluster is
/// away, everything is shown as it was last; clients are warned after a minute.
///
/// # Measurements
///
/// What is [measured](SourceScope::measured), as what is used of processors and memory, changes all the time.
/// What only measurements have changed of an object is told to those who watch when it [is worth
/// it](Self::is_worth_publishing), [at most so often](Self::MEASURED_AT_MOST_EVERY), and otherwise
/// [later](Self::MEASURED_AT_LATEST).
///
/// # Selecting
///
/// Every scalar can be a selectable field (`selectable = ".spec.pods"` in kube's derive): of computed kinds
/// there is no bound of eight.
pub trait Computed:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + Send + 'static
{
    /// What it is computed from, object by object.
    type Source: SourceType;
    /// What else the computation may look at: nothing, `()`, a [`Lookup`](super::Lookup), a
    /// [`MetadataLookup`](super::MetadataLookup), or a tuple of up to twelve of these, or of such tuples.
    type Related: Related;

    /// Which sources are read: all of them, if nothing else is said. There is no object of others.
    const SCOPE: SourceScope = SourceScope::ALL;

    /// Computes the object of a source, or none. Pure: the same input gives
    /// the same output. Where the result leaves them out, the namespace and
    /// the creation time are the source's; the uid is made from the source's.
    /// An object in another namespace than its source, or with a name that
    /// [`Computed::source_name`] does not lead back from, is refused: the
    /// rights of readers are asked of the source.
    fn compute(source: &Self::Source, related: &Self::Related) -> Option<Self>
    where
        Self: Sized;

    /// At most so often an object is told to those who watch because of
    /// [measurements](SourceScope::measured) alone; what else changes is told at once, with what is
    /// measured then.
    const MEASURED_AT_MOST_EVERY: Duration = Duration::from_secs(15);
    /// How long a measurement is not told that is [not worth it](Self::is_worth_publishing).
    const MEASURED_AT_LATEST: Duration = Duration::from_secs(300);

    /// Whether what was computed differs so much from what is shown that it is worth an event for
    /// everybody who watches. Asked only if nothing but [measurements](SourceScope::measured) has
    /// changed. What is not worth it is told later: with the next change, or after
    /// [`MEASURED_AT_LATEST`](Self::MEASURED_AT_LATEST).
    fn is_worth_publishing(_shown: &Self, _computed: &Self) -> bool
    where
        Self: Sized,
    {
        true
    }

    /// The name of the source behind an object of this name, or `None` if no
    /// source can be behind it: the right to `get` is asked for that source.
    fn source_name(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    /// Cells of tables that no JSONPath can say.
    fn cells() -> Cells<Self>
    where
        Self: Sized,
    {
        Cells::new()
    }

    /// Which objects each reader sees, among those that rights let it read.
    fn visibility() -> Visibility<Self>
    where
        Self: Sized,
    {
        Visibility::everything()
    }

    /// What is shown of what is looked up, and to which readers. What is not said needs the right to
    /// all objects of the type, or the request is refused.
    fn disclosures() -> Disclosures {
        Disclosures::new()
    }
}

/// A computation, whatever its types.
pub trait Running: Send {
    /// Whether all is known that it needs.
    fn is_synced(&self) -> bool;
    /// Whether it has sources, as far as is known.
    fn has_source(&self) -> bool;
    /// The state of every source.
    fn sources(&self) -> Vec<SourceState>;
    /// The sources that must be computed again now, and whether only for a measurement; also when to
    /// ask for more at the latest.
    fn take_work(&mut self) -> (Vec<(Key, bool)>, Option<Instant>);
    /// Computes one source again and publishes what came of it, now or, if only a measurement has
    /// changed, when it is time.
    fn update(&mut self, source_key: &Key, is_measured: bool);
    /// When something is to be computed again that was held back.
    fn next_held_back(&self) -> Option<Instant>;
}

/// Keeps a cache as computations say, which are notified of changes, for ever.
pub(super) async fn run(Opened { mut computations, notify, .. }: Opened, cache: Arc<WatchCache>) {
    let mut wake_at: Option<Instant> = None;
    loop {
        let changed = notify.notified();
        match wake_at {
            // Whether it changed or is time, it is looked at.
            Some(time) => drop(tokio::time::timeout_at(time, changed).await),
            None => changed.await,
        }
        let mut times = Vec::new();
        let mut left = BATCH;
        for computation in &mut computations {
            let (work, until) = computation.take_work();
            for (key, is_measured) in work {
                computation.update(&key, is_measured);
                left -= 1;
                if left == 0 {
                    left = BATCH;
                    tokio::task::yield_now().await;
                }
            }
            times.extend(until.into_iter().chain(computation.next_held_back()));
        }
        wake_at = times.into_iter().min();
        // What is too much for a while is served again only now.
        let sources = computations.iter().flat_map(|computation| computation.sources());
        cache.set_sources(SourceState::each_once(sources));
        // Of what is computed from nothing at all nothing is known.
        let is_known = computations.iter().any(|computation| computation.has_source());
        if is_known && computations.iter().all(|computation| computation.is_synced()) {
            cache.mark_synced();
        }
    }
}

/// Rights on an object are asked of the source that its name and namespace
/// say: an object elsewhere would be a way around them.
/// A name belongs to the first variant that it leads to a source of: two of them would show one object in turns.
fn check_authority<V: Variant>(
    source: &V::Source,
    key: &Key,
    earlier: &[Namer],
) -> Result<(), String> {
    if key.namespace() != source.namespace() {
        return Err(format!("its namespace is not that of its source: {key}"));
    }
    if V::source_name(key.name()).as_deref() != source.name() {
        return Err(format!("source_name does not lead from {key} to its source"));
    }
    if let Some((resource, _)) = earlier.iter().find(|(_, name_of)| name_of(key.name()).is_some()) {
        return Err(format!("{key} is a name of what is computed from {resource}"));
    }
    Ok(())
}

/// What a type is called, and which names are those of its objects.
type Namer = (String, fn(&str) -> Option<String>);

/// What was asked: the index of the lookup, and the question.
type Seen = (u16, QuestionId);

struct Computation<V: Variant> {
    /// Which names the variants before this one make, and of which types.
    earlier: Vec<Namer>,
    /// Whether there are other types that the kind is computed from.
    is_one_of_several: bool,
    opened: Instant,
    informer: Arc<SourceInformer<V::Source>>,
    changed: Arc<Changed>,
    related: V::Related,
    cache: Arc<WatchCache>,
    /// What is looked up in the namespace of a source alone: its readers have rights there.
    narrow: Arc<[TypeId]>,
    known: KnownSources,
    /// Sources that were due when what they are computed from went out of view.
    put_off: HashSet<Key>,
    held_back: HeldBack,
    alike: Alike,
}

impl<V: Variant> Running for Computation<V> {
    fn is_synced(&self) -> bool {
        self.is_source_known() && self.related.lookups().iter().all(|lookup| lookup.is_settled())
    }

    fn has_source(&self) -> bool {
        !self.left_out().0
    }

    fn sources(&self) -> Vec<SourceState> {
        let of_lookups = self.related.lookups().into_iter().flat_map(Tracked::sources);
        std::iter::once(self.source()).chain(of_lookups).collect()
    }

    fn take_work(&mut self) -> (Vec<(Key, bool)>, Option<Instant>) {
        let (due, until) = self.take_due();
        if !self.is_synced() {
            self.put_off.extend(due.changed);
            self.put_off.extend(due.measured);
            return (Vec::new(), until);
        }
        let Due { changed, measured } = due;
        let measured = measured.into_iter().filter(|key| !changed.contains(key));
        let mut work: Vec<_> = measured.map(|key| (key, true)).collect();
        work.splice(0..0, changed.into_iter().map(|key| (key, false)));
        (work, until)
    }

    fn update(&mut self, source_key: &Key, is_measured: bool) {
        let source = self.informer.get(source_key);
        let computed = source.as_ref().map(|source| self.compute(source));
        let seen = self.take_seen();
        // What is not kept any more looks as if it were not there.
        if !self.is_synced() {
            for (index, lookup) in (0..).zip(self.related.lookups()) {
                lookup.drop_unsettled(&of_lookup(&seen, index));
            }
            self.put_off.insert(source_key.clone());
            return;
        }
        let Some(computed) = computed else {
            self.show(source_key, None);
            self.settle(source_key, Box::default());
            if let Some(mut hold) = self.known.remove(source_key).and_then(|known| known.hold) {
                self.held_back.note(source_key, &mut hold, None);
            }
            return;
        };
        self.settle(source_key, seen);
        match computed {
            Ok(Some(object)) if is_measured && self.is_held_back(source_key, &object) => {}
            Ok(object) => {
                self.end_hold(source_key, is_measured);
                self.show(source_key, object);
            }
            Err(why) => tracing::error!(
                "computing {} of {source_key} failed, what was shown stays: {why}",
                qualified::<V::Object>()
            ),
        }
    }

    fn next_held_back(&self) -> Option<Instant> {
        self.held_back.next()
    }
}

impl<V: Variant> Computation<V> {
    fn new(
        opening: &Opening<'_>,
        (cache, narrow): (Arc<WatchCache>, Arc<[TypeId]>),
        (earlier, is_one_of_several): (Vec<Namer>, bool),
    ) -> Self {
        let informer = opening.sources.open::<V::Source>(V::SCOPE, MISSING);
        let changed = informer.follow(Arc::clone(opening.notify));
        let related = V::Related::open(opening);
        Self {
            earlier,
            is_one_of_several,
            opened: Instant::now(),
            informer,
            changed,
            related,
            cache,
            narrow,
            known: KnownSources::default(),
            put_off: HashSet::new(),
            held_back: HeldBack::default(),
            alike: Alike::default(),
        }
    }

    /// Whether it is known which objects there are to compute from. Of an API that the cluster may
    /// do without, and does not have, there are none; nor of one of several types that cannot be read.
    fn is_source_known(&self) -> bool {
        self.informer.is_synced() || self.source().is_rightly_absent || self.left_out().0
    }

    /// Whether the kind is computed without this type, which is one of several, has never been in view and cannot be
    /// read, and until when that holds if nothing happens. What was in view is shown on.
    fn left_out(&self) -> (bool, Option<Instant>) {
        let standing = self.informer.standing();
        if !self.is_one_of_several || standing.is_synced || standing.excess.is_some() {
            return (false, None);
        }
        lookup::is_left_out(&standing, self.opened)
    }

    fn source(&self) -> SourceState {
        let source = lookup::source(&self.informer, V::SCOPE.may_be_absent());
        // What was in view is shown on, and said to be old.
        let is_rightly_absent = source.is_rightly_absent && !source.is_synced;
        let is_left_out = self.left_out().0.then_some(true);
        SourceState { is_rightly_absent, is_left_out, ..source }
    }

    /// The sources that must be computed again, and when to look for more at the latest.
    fn take_due(&mut self) -> (Due<Key>, Option<Instant>) {
        let mut due = Due { changed: std::mem::take(&mut self.put_off), ..Due::default() };
        due.measured.extend(self.held_back.take_due(Instant::now()));
        let own = if V::SCOPE.is_measured() { &mut due.measured } else { &mut due.changed };
        own.extend(self.changed.take());
        let lookups = self.related.lookups().into_iter();
        let mut asked = Due::default();
        let until = lookups.filter_map(|lookup| lookup.take_due(&mut asked));
        let until = until.chain(self.left_out().1).min();
        let key = |source| self.known.key(source).cloned();
        due.changed.extend(asked.changed.into_iter().filter_map(key));
        due.measured.extend(asked.measured.into_iter().filter_map(key));
        (due, until)
    }

    /// Whether an object is not shown now in which only what is measured has changed.
    fn is_held_back(&mut self, source_key: &Key, object: &Object) -> bool {
        let source = self.known.number_of(source_key);
        let Some(known) = self.known.get_mut(source) else { return false };
        if known.shown.as_ref() != Some(object.key()) {
            return false;
        }
        let Some(shown) = self.cache.get(object.key()) else { return false };
        let hold = known.hold.get_or_insert_default();
        if shown.object.same_content(object) {
            self.held_back.note(source_key, hold, None);
            hold.end(None);
            return true;
        }
        let is_worth = is_worth_publishing::<V>(&shown.object, object);
        let bounds = (V::MEASURED_AT_MOST_EVERY, V::MEASURED_AT_LATEST);
        let until = hold.is_over(Instant::now(), is_worth, bounds).err();
        self.held_back.note(source_key, hold, until);
        until.is_some()
    }

    /// Notes that nothing of an object is held back any more.
    fn end_hold(&mut self, source_key: &Key, is_measured: bool) {
        let source = self.known.number_of(source_key);
        let hold = self.known.get_mut(source).and_then(|known| known.hold.as_mut());
        if let Some(hold) = hold {
            self.held_back.note(source_key, hold, None);
            hold.end(is_measured.then(Instant::now));
        }
    }

    /// Publishes the object of a source in place of what it showed before.
    /// No two sources show the same: from a key its source follows.
    fn show(&mut self, source_key: &Key, object: Option<Object>) {
        let key = object.as_ref().map(|object| object.key().clone());
        let source = self.known.number_of(source_key);
        let known = self.known.get_mut(source);
        let before = known.and_then(|known| std::mem::replace(&mut known.shown, key.clone()));
        if let Some(before) = before.filter(|before| Some(before) != key.as_ref()) {
            self.cache.publish(&before, None);
        }
        if let Some(key) = key {
            let count = self.known.len();
            let object = object.map(|object| self.alike.share(object, &self.cache, count));
            self.cache.publish(&key, object);
        }
    }

    fn compute(&self, source: &V::Source) -> Result<Option<Object>, String> {
        let compute = || V::compute(source, &self.related).as_ref().map(to_tree).transpose();
        // What the user wrote may panic; the other objects are shown on.
        let computed = catch_unwind(AssertUnwindSafe(compute)).map_err(|_| "it panicked")?;
        let computed = computed?;
        let namespace = source.namespace();
        let is_narrow = |lookup: &&dyn Tracked| self.narrow.contains(&lookup.type_of_objects());
        let mut narrow = self.related.lookups().into_iter().filter(is_narrow);
        if namespace.is_some() && narrow.any(|lookup| lookup.has_looked_outside(namespace)) {
            let why = "it has looked in another namespace than its disclosures say";
            return Err(why.to_owned());
        }
        let Some(mut tree) = computed else { return Ok(None) };
        let Some(Value::Object(metadata)) = tree.get_mut("metadata") else {
            return Err("it has no metadata".to_owned());
        };
        let kind = qualified::<V::Object>();
        let own_place =
            || format!("{}/{}", namespace.unwrap_or_default(), source.name().unwrap_or_default());
        let uid = source.uid().unwrap_or_else(|| own_place().into());
        let uid = Uuid::new_v5(&UIDS, format!("{uid}/{kind}").as_bytes());
        metadata.insert("uid".to_owned(), uid.to_string().into());
        if let Some(namespace) = namespace {
            metadata.entry("namespace").or_insert_with(|| namespace.into());
        }
        if let Some(time) = source.created() {
            let time = crate::clock::to_rfc_3339(time);
            metadata.entry("creationTimestamp").or_insert_with(|| time.into());
        }
        let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
        check_authority::<V>(source, object.key(), &self.earlier)?;
        Ok(Some(object))
    }

    /// What the last computation asked.
    fn take_seen(&self) -> Box<[Seen]> {
        let lookups = (0..).zip(self.related.lookups());
        lookups
            .flat_map(|(index, lookup)| lookup.take_seen().into_iter().map(move |id| (index, id)))
            .collect()
    }

    /// Notes what the computation of a source asks.
    fn settle(&mut self, source_key: &Key, seen: Box<[Seen]>) {
        let source = self.known.number_of(source_key);
        let Some(known) = self.known.get_mut(source) else { return };
        let before = std::mem::replace(&mut known.seen, seen);
        let now = &known.seen;
        if before == *now {
            return;
        }
        for (index, lookup) in (0..).zip(self.related.lookups()) {
            lookup.settle(source, &of_lookup(&before, index), &of_lookup(now, index));
        }
    }
}

/// Whether those who watch an object are to be told what was measured. What the user wrote may panic: then
/// they are.
fn is_worth_publishing<V: Variant>(shown: &Object, computed: &Object) -> bool {
    let read =
        |object: &Object| serde_json::from_value::<V::Object>(Value::Object(object.to_tree())).ok();
    let (Some(shown), Some(computed)) = (read(shown), read(computed)) else { return true };
    let is_worth = AssertUnwindSafe(|| V::is_worth_publishing(&shown, &computed));
    catch_unwind(is_worth).unwrap_or(true)
}

/// What one of the lookups was asked.
fn of_lookup(seen: &[Seen], index: u16) -> Vec<QuestionId> {
    let of_it = seen.iter().filter(|(lookup, _)| *lookup == index);
    of_it.map(|(_, question)| *question).collect()
}

#[cfg(test)]
mod tests;
