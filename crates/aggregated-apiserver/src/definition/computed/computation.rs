//! The computation of the objects of a kind from the sources of one type.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use serde_json::Value;
use tokio::time::Instant;

use super::completions::{Completed, Completions};
use super::identity::{check_authority, uid};
use super::shared_json::SharedJson;
use super::source_table::{Dependency, Shown, SourceTable};
use super::unpublished::Unpublished;
use super::variant::Variant;
use super::{AnyComputation, FanOut, SourceNaming};
use crate::cluster::{ChangedKeys, SourceInformer, SourceType, resource_name};
use crate::definition::lookup::{self, AnyLookup, Invalidated, LookupContext, QueryId, Related};
use crate::definition::{qualified, to_tree};
use crate::log_throttle::LogThrottle;
use crate::object::{Key, Object};
use crate::watch_cache::{SourceState, WatchCache};

/// The consequence that the log states while the sources of a kind are not synced.
const MISSING: &str = "the kinds that are computed from it are not served";

/// The largest size of the objects of a source, in bytes of JSON.
const LARGEST: usize = 32 << 20;

/// Limits the log lines about failed computations, because each change of a source causes them.
static FAILURES: LogThrottle = LogThrottle::at_most(30);

/// The objects of a kind that are computed from the sources of one type.
pub(super) struct Computation<V: Variant> {
    /// The resources and `source_name` functions of the variants before this one.
    earlier: Vec<SourceNaming>,
    /// Whether the kind is computed from other types too.
    is_one_of_several: bool,
    opened: Instant,
    informer: Arc<SourceInformer<V::Source>>,
    changed: Arc<ChangedKeys>,
    pub(super) related: V::Related,
    cache: Arc<WatchCache>,
    /// The types that may be looked up only in the namespace of a source, because readers need permission only there.
    own_namespace_only: Arc<[TypeId]>,
    table: SourceTable,
    /// Sources that were due while sources or lookups were not synced.
    postponed: HashSet<Key>,
    unpublished: Unpublished,
    shared_json: SharedJson,
    /// The number of published objects.
    published: usize,
    /// The objects that are being completed; `None` if the objects need no completion.
    completions: Option<Completions<V::Object>>,
}

impl<V: Variant> AnyComputation for Computation<V> {
    fn is_synced(&self) -> bool {
        self.is_source_known() && self.related.lookups().iter().all(|lookup| lookup.is_settled())
    }

    fn has_source(&self) -> bool {
        !self.left_out().0
    }

    fn sources(&self) -> Vec<SourceState> {
        let of_lookups = self.related.lookups().into_iter().flat_map(AnyLookup::sources);
        std::iter::once(self.source()).chain(of_lookups).collect()
    }

    fn take_work(&mut self) -> (Vec<(Key, bool)>, Option<Instant>) {
        let (due, until) = self.take_invalidated();
        if !self.is_synced() {
            self.postponed.extend(due.changed);
            self.postponed.extend(due.measured);
            return (Vec::new(), until);
        }
        let Invalidated { changed, measured } = due;
        let measured = measured.into_iter().filter(|key| !changed.contains(key));
        let mut work: Vec<_> = measured.map(|key| (key, true)).collect();
        work.splice(0..0, changed.into_iter().map(|key| (key, false)));
        (work, until)
    }

    fn update(&mut self, source_key: &Key, is_measured: bool) -> usize {
        let source = self.informer.get(source_key);
        if source.is_some()
            && let Some(completions) = &mut self.completions
            && completions.must_wait(source_key, is_measured)
        {
            return 0;
        }
        let computed = source.as_ref().map(|source| self.compute(source));
        let dependencies = self.take_latest();
        self.set_dependencies(source_key, dependencies);
        // Objects that have been dropped from memory look as if they did not exist.
        if !self.is_synced() {
            self.postponed.insert(source_key.clone());
            return 0;
        }
        let (Some(source), Some(computed)) = (source, computed) else {
            if let Some(completions) = &mut self.completions {
                completions.forget(source_key);
            }
            self.publish(source_key, Vec::new());
            if let Some(mut hold) = self.table.remove(source_key).and_then(|entry| entry.hold) {
                self.unpublished.note(source_key, &mut hold, None);
            }
            return 0;
        };
        let count = computed.as_ref().map_or(0, Vec::len);
        match self.completions {
            Some(_) => self.complete(source_key, &source, computed, is_measured),
            None => self.show(source_key, &source, computed, is_measured),
        }
        count
    }

    fn take_completed(&mut self) -> (usize, Vec<(Key, bool)>) {
        let Some(completions) = &mut self.completions else { return (0, Vec::new()) };
        let informer = &self.informer;
        let (completed, waiting) = completions.take(|source_key, uid| {
            informer.get(source_key).is_some_and(|source| source.uid().as_deref() == uid)
        });
        let mut count = 0;
        for Completed { source: source_key, objects, is_measured, .. } in completed {
            count += objects.as_ref().map_or(0, Vec::len);
            if let Some(source) = self.informer.get(&source_key) {
                self.show(&source_key, &source, objects, is_measured);
            }
        }
        (count, waiting)
    }

    fn is_completed(&self) -> (bool, Option<Instant>) {
        self.completions.as_ref().map_or((true, None), Completions::is_settled)
    }

    fn next_held_back(&self) -> Option<Instant> {
        self.unpublished.next()
    }
}

impl<V: Variant> Computation<V> {
    pub(super) fn new(
        context: &LookupContext<'_>,
        (cache, own_namespace_only): (Arc<WatchCache>, Arc<[TypeId]>),
        (earlier, is_one_of_several): (Vec<SourceNaming>, bool),
    ) -> Self {
        let informer = context.sources.open::<V::Source>(V::OPTIONS, MISSING);
        let changed = informer.follow(Arc::clone(context.notify));
        let related = V::Related::open(context);
        Self {
            earlier,
            is_one_of_several,
            opened: Instant::now(),
            informer,
            changed,
            related,
            cache,
            own_namespace_only,
            table: SourceTable::default(),
            postponed: HashSet::new(),
            unpublished: Unpublished::default(),
            shared_json: SharedJson::default(),
            published: 0,
            completions: V::COMPLETION_TIMEOUT
                .map(|limit| Completions::new(limit, Arc::clone(context.notify))),
        }
    }

    /// Whether it is known which source objects exist. The source type counts as known, without objects, if it is
    /// optional and absent from the cluster, or if it is one of several types and cannot be read.
    fn is_source_known(&self) -> bool {
        self.informer.is_synced() || self.source().is_rightly_absent || self.left_out().0
    }

    /// Whether the kind is computed without this type, and until when this result holds if nothing changes. A type is
    /// omitted if it is one of several, has never been synced and cannot be read. A type that was synced once keeps its
    /// last known objects.
    fn left_out(&self) -> (bool, Option<Instant>) {
        let status = self.informer.status();
        if !self.is_one_of_several || status.is_synced || status.excess.is_some() {
            return (false, None);
        }
        lookup::is_left_out(&status, self.opened)
    }

    fn source(&self) -> SourceState {
        let resource = resource_name::<V::Source>();
        let may_be_absent = V::OPTIONS.may_be_absent();
        let source = lookup::source_state(resource, self.informer.status(), may_be_absent);
        // A type that was synced once keeps its last known objects, which are reported as stale.
        let is_rightly_absent = source.is_rightly_absent && !source.is_synced;
        let is_left_out = self.left_out().0.then_some(true);
        SourceState { is_rightly_absent, is_left_out, ..source }
    }

    /// Takes the sources that must be computed again. Also returns when to call this again at the latest.
    pub(super) fn take_invalidated(&mut self) -> (Invalidated<Key>, Option<Instant>) {
        let mut due =
            Invalidated { changed: std::mem::take(&mut self.postponed), ..Invalidated::default() };
        due.measured.extend(self.unpublished.take_due(Instant::now()));
        let own = if V::OPTIONS.is_measured() { &mut due.measured } else { &mut due.changed };
        own.extend(self.changed.take());
        let lookups = self.related.lookups().into_iter();
        let mut invalidated = Invalidated::default();
        let until = lookups.filter_map(|lookup| lookup.take_invalidated(&mut invalidated));
        let until = until.chain(self.left_out().1).min();
        let key = |source| self.table.key(source).cloned();
        due.changed.extend(invalidated.changed.into_iter().filter_map(key));
        due.measured.extend(invalidated.measured.into_iter().filter_map(key));
        (due, until)
    }

    /// Whether the objects of a source in which only measurements have changed are held back for now.
    fn is_held_back(&mut self, source_key: &Key, objects: &[Object]) -> bool {
        let source = self.table.number_of(source_key);
        let Some(entry) = self.table.get_mut(source) else { return false };
        if !entry.shown.keys().iter().eq(objects.iter().map(Object::key)) {
            return false;
        }
        let shown: Option<Vec<_>> =
            objects.iter().map(|object| self.cache.get(object.key())).collect();
        let Some(shown) = shown.filter(|shown| !shown.is_empty()) else { return false };
        let pairs = || shown.iter().map(|shown| &*shown.object).zip(objects);
        let hold = entry.hold.get_or_insert_default();
        if pairs().all(|(shown, object)| shown.same_content(object)) {
            self.unpublished.note(source_key, hold, None);
            hold.end(None);
            return true;
        }
        let is_worth = pairs().any(|(shown, object)| is_worth_publishing::<V>(shown, object));
        let bounds = (V::MEASURED_AT_MOST_EVERY, V::MEASURED_AT_LATEST);
        let until = hold.is_over(Instant::now(), is_worth, bounds).err();
        self.unpublished.note(source_key, hold, until);
        until.is_some()
    }

    /// Records that no change of an object is held back any more.
    fn end_hold(&mut self, source_key: &Key, is_measured: bool) {
        let source = self.table.number_of(source_key);
        let hold = self.table.get_mut(source).and_then(|entry| entry.hold.as_mut());
        if let Some(hold) = hold {
            self.unpublished.note(source_key, hold, None);
            hold.end(is_measured.then(Instant::now));
        }
    }

    /// Begins the completion of the objects of a source. Objects that are not computed any more are deleted before,
    /// because a completion may take long and may fail.
    fn complete(
        &mut self,
        source_key: &Key,
        source: &V::Source,
        computed: Result<Vec<V::Object>, String>,
        is_measured: bool,
    ) {
        let keyed = computed.and_then(|objects| Ok((self.keys(source, &objects)?, objects)));
        match (keyed, &mut self.completions) {
            (Ok((keys, objects)), Some(completions)) => {
                let uid = source.uid().map(Cow::into_owned);
                completions.begin::<V>((source_key, uid), objects, is_measured);
                self.retract(source_key, &keys);
            }
            (keyed, _) => {
                self.show(source_key, source, keyed.map(|(_, objects)| objects), is_measured);
            }
        }
    }

    /// Publishes the objects of a source, unless they are held back. After an error, the last objects stay.
    fn show(
        &mut self,
        source_key: &Key,
        source: &V::Source,
        computed: Result<Vec<V::Object>, String>,
        is_measured: bool,
    ) {
        match computed.and_then(|objects| self.objects(source, &objects)) {
            Ok(objects) if is_measured && self.is_held_back(source_key, &objects) => {}
            Ok(objects) => {
                self.end_hold(source_key, is_measured);
                self.publish(source_key, objects);
            }
            Err(error) => FAILURES.log(|suppressed| {
                let (kind, source) = (qualified::<V::Object>(), source_key);
                tracing::error!(
                    suppressed, %kind, %source, error,
                    "cannot compute object; its last state stays"
                );
            }),
        }
    }

    /// Publishes the objects of a source, sorted by key, and deletes those that it had before under other keys. No two
    /// sources have the same object, because the key of an object determines its source.
    fn publish(&mut self, source_key: &Key, objects: Vec<Object>) {
        let keys: Vec<Key> = objects.iter().map(|object| object.key().clone()).collect();
        self.retract(source_key, &keys);
        let source = self.table.number_of(source_key);
        if let Some(entry) = self.table.get_mut(source) {
            self.published += keys.len() - entry.shown.keys().len();
            entry.shown = Shown::of(keys);
        }
        for object in objects {
            let key = object.key().clone();
            let object = self.shared_json.share(object, &self.cache, self.published);
            self.cache.publish(&key, Some(object));
        }
    }

    /// Deletes the published objects of a source whose keys are not among these, which are sorted.
    fn retract(&mut self, source_key: &Key, keys: &[Key]) {
        let source = self.table.number_of(source_key);
        let Some(entry) = self.table.get_mut(source) else { return };
        let shown = entry.shown.keys();
        if shown.iter().all(|key| keys.binary_search(key).is_ok()) {
            return;
        }
        let shown = shown.iter().cloned();
        let (remaining, deleted): (Vec<_>, Vec<_>) =
            shown.partition(|key| keys.binary_search(key).is_ok());
        entry.shown = Shown::of(remaining);
        self.published -= deleted.len();
        for key in &deleted {
            self.cache.publish(key, None);
        }
    }

    fn compute(&self, source: &V::Source) -> Result<Vec<V::Object>, String> {
        let compute = || V::compute_all(source, &self.related);
        // The user's code may panic; the other objects are still served.
        let computed = catch_unwind(AssertUnwindSafe(compute)).map_err(|_| "it panicked")?;
        let namespace = source.namespace();
        let is_limited =
            |lookup: &&dyn AnyLookup| self.own_namespace_only.contains(&lookup.type_of_objects());
        let mut limited = self.related.lookups().into_iter().filter(is_limited);
        if namespace.is_some() && limited.any(|lookup| lookup.has_queried_outside(namespace)) {
            let why = "it has looked in another namespace than its field_permissions say";
            return Err(why.to_owned());
        }
        if computed.len() > 1 && V::FAN_OUT == FanOut::One {
            return Err("it has several objects, and FAN_OUT is One".to_owned());
        }
        if computed.len() > V::MAX_OBJECTS {
            let (count, limit) = (computed.len(), V::MAX_OBJECTS);
            return Err(format!("it has {count} objects, and MAX_OBJECTS is {limit}"));
        }
        Ok(computed)
    }

    /// The keys of the objects of a source, sorted.
    fn keys(&self, source: &V::Source, computed: &[V::Object]) -> Result<Vec<Key>, String> {
        let key = |object: &V::Object| {
            let metadata = object.meta();
            let namespace = metadata.namespace.as_deref().or_else(|| source.namespace());
            let name = metadata.name.as_deref().unwrap_or_default();
            check_authority::<V>(source, (namespace, name), &self.earlier)
        };
        let mut keys = computed.iter().map(key).collect::<Result<Vec<Key>, String>>()?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// The objects of a source as they are published, sorted by key.
    fn objects(&self, source: &V::Source, computed: &[V::Object]) -> Result<Vec<Object>, String> {
        let mut objects = Vec::with_capacity(computed.len());
        let mut size = 0;
        for object in computed {
            let object = self.object(source, object)?;
            size += object.json_size();
            if size > LARGEST {
                return Err(format!("its objects have more than {} MiB of JSON", LARGEST >> 20));
            }
            objects.push(object);
        }
        objects.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        match objects.windows(2).find(|pair| pair[0].key() == pair[1].key()) {
            Some(pair) => Err(format!("it has two objects {}", pair[0].key())),
            None => Ok(objects),
        }
    }

    fn object(&self, source: &V::Source, computed: &V::Object) -> Result<Object, String> {
        let mut tree = to_tree(computed)?;
        let Some(Value::Object(metadata)) = tree.get_mut("metadata") else {
            return Err("it has no metadata".to_owned());
        };
        if let Some(namespace) = source.namespace() {
            metadata.entry("namespace").or_insert_with(|| namespace.into());
        }
        let uid = uid::<V>(source, metadata);
        metadata.insert("uid".to_owned(), uid.to_string().into());
        if let Some(time) = source.created() {
            let time = crate::clock::to_rfc_3339(time);
            metadata.entry("creationTimestamp").or_insert_with(|| time.into());
        }
        let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
        let text = |field: &str| tree.get("metadata")?.get(field)?.as_str();
        let place = (text("namespace"), text("name").unwrap_or_default());
        check_authority::<V>(source, place, &self.earlier)?;
        Ok(object)
    }

    /// Takes the queries that the last computation has made.
    fn take_latest(&self) -> Box<[Dependency]> {
        let lookups = (0..).zip(self.related.lookups());
        lookups
            .flat_map(|(index, lookup)| lookup.take_latest().into_iter().map(move |id| (index, id)))
            .collect()
    }

    /// Records the queries that the computation of a source makes.
    fn set_dependencies(&mut self, source_key: &Key, dependencies: Box<[Dependency]>) {
        let source = self.table.number_of(source_key);
        let Some(entry) = self.table.get_mut(source) else { return };
        let before = std::mem::replace(&mut entry.dependencies, dependencies);
        let now = &entry.dependencies;
        if before == *now {
            return;
        }
        for (index, lookup) in (0..).zip(self.related.lookups()) {
            lookup.set_dependencies(source, &of_lookup(&before, index), &of_lookup(now, index));
        }
    }
}

/// Whether a measurement is worth an event. The user's code may panic; the result is true then.
fn is_worth_publishing<V: Variant>(shown: &Object, computed: &Object) -> bool {
    let read =
        |object: &Object| serde_json::from_value::<V::Object>(Value::Object(object.to_tree())).ok();
    let (Some(shown), Some(computed)) = (read(shown), read(computed)) else { return true };
    let is_worth = AssertUnwindSafe(|| V::is_worth_publishing(&shown, &computed));
    catch_unwind(is_worth).unwrap_or(true)
}

/// The queries to one of the lookups.
fn of_lookup(dependencies: &[Dependency], index: u16) -> Vec<QueryId> {
    let of_it = dependencies.iter().filter(|(lookup, _)| *lookup == index);
    of_it.map(|(_, query)| *query).collect()
}
