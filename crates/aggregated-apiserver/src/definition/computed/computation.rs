//! The computation of the objects of a kind from the sources of one type.

use std::any::TypeId;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::shared_json::SharedJson;
use super::source_table::{Dependency, SourceTable};
use super::unpublished::Unpublished;
use super::variant::Variant;
use super::{AnyComputation, SourceNaming};
use crate::cluster::{ChangedKeys, SourceInformer, SourceType, resource_name};
use crate::definition::lookup::{self, AnyLookup, Invalidated, LookupContext, QueryId, Related};
use crate::definition::{qualified, to_tree};
use crate::object::{Key, Object};
use crate::watch_cache::{SourceState, WatchCache};

/// The consequence that the log states while the sources of a kind are not synced.
const MISSING: &str = "the kinds that are computed from it are not served";

/// The UUID namespace of computed objects: their uids are version 5 UUIDs of the source's uid and the kind.
const UIDS: Uuid = Uuid::from_u128(0x6f1a_4c9e_52d3_4b58_9c07_1d9b_3a6e_80f4);

/// The objects of a kind that are computed from the sources of one type.
pub(super) struct Computation<V: Variant> {
    /// The resources and `source_name` functions of the variants before this one.
    earlier: Vec<SourceNaming>,
    /// Whether the kind is computed from other types too.
    is_one_of_several: bool,
    opened: Instant,
    informer: Arc<SourceInformer<V::Source>>,
    changed: Arc<ChangedKeys>,
    related: V::Related,
    cache: Arc<WatchCache>,
    /// The types that may be looked up only in the namespace of a source, because readers need permission only there.
    own_namespace_only: Arc<[TypeId]>,
    table: SourceTable,
    /// Sources that were due while sources or lookups were not synced.
    postponed: HashSet<Key>,
    unpublished: Unpublished,
    shared_json: SharedJson,
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

    fn update(&mut self, source_key: &Key, is_measured: bool) {
        let source = self.informer.get(source_key);
        let computed = source.as_ref().map(|source| self.compute(source));
        let dependencies = self.take_latest();
        self.set_dependencies(source_key, dependencies);
        // Objects that have been dropped from memory look as if they did not exist.
        if !self.is_synced() {
            self.postponed.insert(source_key.clone());
            return;
        }
        let Some(computed) = computed else {
            self.publish(source_key, None);
            if let Some(mut hold) = self.table.remove(source_key).and_then(|entry| entry.hold) {
                self.unpublished.note(source_key, &mut hold, None);
            }
            return;
        };
        match computed {
            Ok(Some(object)) if is_measured && self.is_held_back(source_key, &object) => {}
            Ok(object) => {
                self.end_hold(source_key, is_measured);
                self.publish(source_key, object);
            }
            Err(why) => {
                tracing::error!(
                    kind = %qualified::<V::Object>(),
                    source = %source_key,
                    error = %why,
                    "cannot compute object; its last state stays"
                );
            }
        }
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
    fn take_invalidated(&mut self) -> (Invalidated<Key>, Option<Instant>) {
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

    /// Whether an object in which only measurements have changed is held back for now.
    fn is_held_back(&mut self, source_key: &Key, object: &Object) -> bool {
        let source = self.table.number_of(source_key);
        let Some(entry) = self.table.get_mut(source) else { return false };
        if entry.shown.as_ref() != Some(object.key()) {
            return false;
        }
        let Some(shown) = self.cache.get(object.key()) else { return false };
        let hold = entry.hold.get_or_insert_default();
        if shown.object.same_content(object) {
            self.unpublished.note(source_key, hold, None);
            hold.end(None);
            return true;
        }
        let is_worth = is_worth_publishing::<V>(&shown.object, object);
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

    /// Publishes the object of a source and deletes the one that it had before under another key. No two sources have
    /// the same object, because the key of an object determines its source.
    fn publish(&mut self, source_key: &Key, object: Option<Object>) {
        let key = object.as_ref().map(|object| object.key().clone());
        let source = self.table.number_of(source_key);
        let entry = self.table.get_mut(source);
        let before = entry.and_then(|entry| std::mem::replace(&mut entry.shown, key.clone()));
        if let Some(before) = before.filter(|before| Some(before) != key.as_ref()) {
            self.cache.publish(&before, None);
        }
        if let Some(key) = key {
            let count = self.table.len();
            let object = object.map(|object| self.shared_json.share(object, &self.cache, count));
            self.cache.publish(&key, object);
        }
    }

    fn compute(&self, source: &V::Source) -> Result<Option<Object>, String> {
        let compute = || V::compute(source, &self.related).as_ref().map(to_tree).transpose();
        // The user's code may panic; the other objects are still served.
        let computed = catch_unwind(AssertUnwindSafe(compute)).map_err(|_| "it panicked")?;
        let computed = computed?;
        let namespace = source.namespace();
        let is_limited =
            |lookup: &&dyn AnyLookup| self.own_namespace_only.contains(&lookup.type_of_objects());
        let mut limited = self.related.lookups().into_iter().filter(is_limited);
        if namespace.is_some() && limited.any(|lookup| lookup.has_queried_outside(namespace)) {
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

/// Checks that an object has the namespace and name that belong to its source. Permissions are checked on the source
/// that the name and namespace of an object lead to, so an object elsewhere would circumvent them.
///
/// A name belongs to the first variant whose `source_name` accepts it: otherwise two variants would replace each
/// other's object.
fn check_authority<V: Variant>(
    source: &V::Source,
    key: &Key,
    earlier: &[SourceNaming],
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
