//! The queries of computations, and the sources that depend on them.
//!
//! A query is stored once for all computations that make it, as long as the last result of one of them depends
//! on it. A change of an object finds the affected queries, before and after the change, without visiting the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::indexed_objects::{IndexChange, IndexEntries, IndexId, SumId};
use super::labels::{ByLabels, BySelector, Range, Terms};
use super::shared_lookups::{ComputationNumber, Dependent, SourceNumber};
use super::small_set::SmallSet;
use crate::cluster::KindName;
use crate::definition::numbered_values::Numbered;
use crate::object::{Key, Labels};

/// A query of a computation to a lookup. Clones share its strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Query {
    /// Whether the objects can be read.
    Availability,
    /// The object with this key. Most queries are of this variant and have a single dependent source.
    Named(Key),
    /// Any other query.
    Search(Arc<Search>),
}

impl From<Search> for Query {
    fn from(search: Search) -> Self {
        Self::Search(Arc::new(search))
    }
}

/// A query that is not by name. Its first field is a namespace, or `None` for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Search {
    /// All objects.
    All(Option<Box<str>>),
    /// The objects that an index finds by this value.
    Indexed(Option<Box<str>>, IndexId, Box<str>),
    /// The objects whose labels fulfil these terms.
    Matching(Option<Box<str>>, Terms),
    /// The objects whose selectors these labels fulfil.
    Selecting(Option<Box<str>>, IndexId, Labels),
    /// The sum of a measure over the group of this value.
    Sum(Option<Box<str>>, SumId, Box<str>),
    /// The object that a reference names: its kind, its name, and the namespace of the reference. The namespace is
    /// last, so that all references to a cluster-scoped object are adjacent.
    Referred(KindName, Box<str>, Option<Box<str>>),
}

/// The memory of a query besides its strings, in bytes: the query itself and its entries in maps.
const QUERY: usize = 160;
/// The additional memory of a [`Search`], in bytes.
const SEARCH: usize = 96;
/// The memory of each source that has made a query, in bytes.
const DEPENDENT: usize = 8;

impl Query {
    fn search(&self) -> Option<&Search> {
        match self {
            Self::Search(search) => Some(search),
            Self::Availability | Self::Named(_) => None,
        }
    }

    /// The approximate memory, in bytes.
    fn size(&self) -> usize {
        QUERY
            + match self {
                Self::Availability => 0,
                Self::Named(key) => key.text().len(),
                Self::Search(search) => SEARCH + search.size(),
            }
    }
}

impl Search {
    fn size(&self) -> usize {
        let of_namespace =
            |namespace: &Option<Box<str>>| namespace.as_ref().map_or(0, |one| one.len());
        match self {
            Self::All(namespace) => of_namespace(namespace),
            // This reference may be the only one to its kind.
            Self::Referred(kind, name, namespace) => {
                let kind = QUERY + 2 * (kind.api_version().len() + kind.kind().len());
                kind + name.len() + of_namespace(namespace)
            }
            Self::Indexed(namespace, _, value) | Self::Sum(namespace, _, value) => {
                of_namespace(namespace) + value.len()
            }
            // The terms are also stored in an index.
            Self::Matching(namespace, terms) => of_namespace(namespace) + 2 * terms.size(),
            Self::Selecting(namespace, _, labels) => of_namespace(namespace) + labels.size(),
        }
    }
}

/// The id of a stored query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(u32);

/// The namespace and the id of a query about labels.
type Place = (Option<Box<str>>, QueryId);

/// The sources that must be computed again, by their keys or their numbers.
pub struct Invalidated<S> {
    /// Sources for which a change is not just a measurement.
    pub changed: HashSet<S>,
    /// Sources for which a measurement has changed.
    pub measured: HashSet<S>,
}

impl<S> Default for Invalidated<S> {
    fn default() -> Self {
        Self { changed: HashSet::new(), measured: HashSet::new() }
    }
}

struct RecordedQuery {
    query: Query,
    /// The sources whose computations have made the query.
    dependents: SmallSet<Dependent>,
}

/// All stored queries.
#[derive(Default)]
pub(super) struct Queries {
    ids: BTreeMap<Query, QueryId>,
    recorded: Numbered<RecordedQuery>,
    /// The queries since the last [`take_latest`](Self::take_latest).
    latest: BTreeSet<QueryId>,
    /// The namespaces whose objects another lookup has read since then.
    joined_namespaces: BTreeSet<Option<Box<str>>>,
    matching: BySelector<Place>,
    selecting: HashMap<IndexId, ByLabels<Place>>,
    /// Kinds without any query.
    released: Vec<KindName>,
    /// The invalidated sources of each computation that has not taken them yet.
    pending: HashMap<ComputationNumber, Invalidated<SourceNumber>>,
    /// The memory of these fields in bytes, except for `selecting`, which counts its own.
    bytes: usize,
}

impl Queries {
    /// Records a query.
    pub fn record(&mut self, query: Query) {
        if let Some(id) = self.ids.get(&query) {
            self.latest.insert(*id);
            return;
        }
        let recorded = RecordedQuery { query: query.clone(), dependents: SmallSet::default() };
        let id = QueryId(self.recorded.add(recorded));
        match query.search() {
            Some(Search::Matching(namespace, terms)) => {
                self.matching.insert(&(namespace.clone(), id), terms);
            }
            Some(Search::Selecting(namespace, index, labels)) => {
                self.selecting.entry(*index).or_default().insert(&(namespace.clone(), id), labels);
            }
            _ => {}
        }
        self.bytes += query.size();
        self.ids.insert(query, id);
        self.latest.insert(id);
    }

    /// Takes the queries since the last call, in order.
    pub fn take_latest(&mut self) -> Vec<QueryId> {
        self.joined_namespaces.clear();
        std::mem::take(&mut self.latest).into_iter().collect()
    }

    /// Records that another lookup reads the objects of a namespace, or of all namespaces. That lookup follows their
    /// changes itself.
    pub fn record_join(&mut self, namespace: Option<&str>) {
        self.joined_namespaces.insert(namespace.map(Box::from));
    }

    /// Whether a query since the last [`take_latest`](Self::take_latest) is about objects outside of this namespace.
    pub fn has_queried_outside(&self, namespace: Option<&str>) -> bool {
        if self.joined_namespaces.iter().any(|of| of.as_deref() != namespace) {
            return true;
        }
        let queries = self.latest.iter().filter_map(|id| self.recorded.get(id.0));
        queries.into_iter().any(|recorded| match &recorded.query {
            // The availability reveals nothing about an object.
            Query::Availability => false,
            Query::Named(key) => key.namespace() != namespace,
            Query::Search(search) => match &**search {
                // References can name objects in any namespace.
                Search::Referred(..) => false,
                Search::All(of)
                | Search::Indexed(of, ..)
                | Search::Matching(of, _)
                | Search::Selecting(of, ..)
                | Search::Sum(of, ..) => of.as_deref() != namespace,
            },
        })
    }

    /// Records the queries that the computation of a source has made. Replaces its earlier queries.
    pub fn set_dependencies(&mut self, source: Dependent, before: &[QueryId], now: &[QueryId]) {
        for id in now {
            if let Some(recorded) = self.recorded.get_mut(id.0)
                && recorded.dependents.insert(source)
            {
                self.bytes += DEPENDENT;
            }
        }
        for id in before.iter().filter(|id| now.binary_search(id).is_err()) {
            if let Some(recorded) = self.recorded.get_mut(id.0) {
                if recorded.dependents.remove(&source) {
                    self.bytes -= DEPENDENT;
                }
                if recorded.dependents.is_empty() {
                    self.forget(*id);
                }
            }
        }
    }

    fn forget(&mut self, id: QueryId) {
        let Some(RecordedQuery { query, dependents }) = self.recorded.remove(id.0) else { return };
        self.ids.remove(&query);
        self.bytes -= query.size() + dependents.len() * DEPENDENT;
        match query.search() {
            Some(Search::Matching(namespace, terms)) => {
                self.matching.remove(&(namespace.clone(), id), terms);
            }
            Some(Search::Selecting(namespace, index, labels)) => {
                if let Some(by_labels) = self.selecting.get_mut(index) {
                    by_labels.remove(&(namespace.clone(), id), labels);
                }
            }
            Some(Search::Referred(kind, ..)) if self.of_kind(kind).next().is_none() => {
                self.released.push(kind.clone());
            }
            _ => {}
        }
    }

    /// Takes the kinds that have no query any more, each once.
    pub fn take_released(&mut self) -> Vec<KindName> {
        let mut released = std::mem::take(&mut self.released);
        released.retain(|kind| self.of_kind(kind).next().is_none());
        released
    }

    /// The queries about a kind.
    fn of_kind(&self, kind: &KindName) -> impl Iterator<Item = QueryId> {
        self.from(Search::Referred(kind.clone(), Box::default(), None))
            .take_while(move |(search, _)| matches!(search, Search::Referred(of, ..) if of == kind))
            .map(|(_, id)| id)
    }

    /// The [`Search`] queries from `first` on, in order.
    fn from(&self, first: Search) -> impl Iterator<Item = (&Search, QueryId)> {
        let queries = self.ids.range(Query::from(first)..);
        queries.filter_map(|(query, id)| Some((query.search()?, *id)))
    }

    /// Invalidates the queries for objects of a kind.
    pub fn invalidate_kind(&mut self, kind: &KindName) {
        let ids: Vec<QueryId> = self.of_kind(kind).collect();
        self.invalidate(ids, false);
    }

    /// Invalidates the queries for this object of a kind.
    pub fn invalidate_referred(&mut self, kind: &KindName, key: &Key, is_namespaced: bool) {
        let name = key.name();
        let search = |namespace| Search::Referred(kind.clone(), name.into(), namespace);
        if is_namespaced {
            let id = self.id_of(search(key.namespace().map(Box::from)));
            return self.invalidate(id, false);
        }
        let of_name = self.from(search(None)).take_while(|(search, _)| {
            matches!(search, Search::Referred(of, named, _) if of == kind && &**named == name)
        });
        let ids: Vec<QueryId> = of_name.map(|(_, id)| id).collect();
        self.invalidate(ids, false);
    }

    /// Invalidates the query for the object with this key by its name.
    pub fn invalidate_named(&mut self, key: &Key, is_measured: bool) {
        let id = self.id_of(Query::Named(key.clone()));
        self.invalidate(id, is_measured);
    }

    /// Invalidates the queries whose result a change of an object may affect.
    pub fn invalidate_changed(&mut self, key: &Key, change: &IndexChange, is_measured: bool) {
        let affected = change.entries.iter().flat_map(|entries| self.affected(key, entries));
        let ids: Vec<QueryId> = affected.collect();
        self.invalidate(ids, is_measured);
        for group in &change.groups {
            self.invalidate_sum(key, group, is_measured);
        }
    }

    /// Invalidates the queries for the sum of a group that contains the object with this key.
    pub fn invalidate_sum(
        &mut self,
        key: &Key,
        (id, value): &(SumId, Box<str>),
        is_measured: bool,
    ) {
        for namespace in scopes(key) {
            let id = self.id_of(Search::Sum(namespace, *id, value.clone()));
            self.invalidate(id, is_measured);
        }
    }

    /// Invalidates all queries.
    pub fn invalidate_all(&mut self, is_measured: bool) {
        let ids: Vec<QueryId> = self.ids.values().copied().collect();
        self.invalidate(ids, is_measured);
    }

    /// The queries whose result contains the object with these entries.
    fn affected(&self, key: &Key, entries: &IndexEntries) -> Vec<QueryId> {
        let mut ids = Vec::new();
        for namespace in scopes(key) {
            ids.extend(self.id_of(Search::All(namespace.clone())));
            for (index, values) in entries.indexed() {
                ids.extend(values.iter().filter_map(|value| {
                    self.id_of(Search::Indexed(namespace.clone(), index, value.clone()))
                }));
            }
            let range = places(namespace);
            if let Some(labels) = entries.labels() {
                let candidates = self.matching.candidates(labels, &range).into_iter();
                ids.extend(candidates.map(|(_, id)| *id).filter(|id| match self.search(*id) {
                    Some(Search::Matching(_, terms)) => terms.matches(labels),
                    _ => false,
                }));
            }
            for (index, terms) in entries.selectors() {
                let Some(by_labels) = self.selecting.get(&index) else { continue };
                let candidates = by_labels.candidates(terms, &range).into_iter();
                ids.extend(candidates.map(|(_, id)| *id).filter(|id| match self.search(*id) {
                    Some(Search::Selecting(_, _, labels)) => terms.matches(labels),
                    _ => false,
                }));
            }
        }
        ids
    }

    fn id_of(&self, query: impl Into<Query>) -> Option<QueryId> {
        self.ids.get(&query.into()).copied()
    }

    fn search(&self, id: QueryId) -> Option<&Search> {
        self.recorded.get(id.0)?.query.search()
    }

    /// Stores the dependents of these queries until their computations take them.
    fn invalidate(&mut self, ids: impl IntoIterator<Item = QueryId>, is_measured: bool) {
        for id in ids {
            let Some(recorded) = self.recorded.get(id.0) else { continue };
            for dependent in recorded.dependents.iter() {
                let pending = self.pending.entry(dependent.computation()).or_default();
                let sources =
                    if is_measured { &mut pending.measured } else { &mut pending.changed };
                sources.insert(dependent.source());
            }
        }
    }

    /// Takes the invalidated sources of a computation, and adds them to `invalidated`.
    pub fn take_invalidated(
        &mut self,
        computation: ComputationNumber,
        invalidated: &mut Invalidated<SourceNumber>,
    ) {
        if let Some(pending) = self.pending.remove(&computation) {
            invalidated.changed.extend(pending.changed);
            invalidated.measured.extend(pending.measured);
        }
    }

    /// The approximate memory of all queries, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.selecting.values().map(ByLabels::bytes).sum::<usize>()
    }

    /// The number of stored queries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.ids.len(), self.recorded.iter().count());
        self.ids.len()
    }
}

/// The namespaces of queries whose result can contain the object with this key: all namespaces, and its own.
fn scopes(key: &Key) -> impl Iterator<Item = Option<Box<str>>> {
    [None].into_iter().chain(key.namespace().map(|namespace| Some(namespace.into())))
}

/// The range of queries about a namespace.
fn places(namespace: Option<Box<str>>) -> Range<Place> {
    let last = (namespace.clone(), QueryId(u32::MAX));
    (Bound::Included((namespace, QueryId(0))), Bound::Included(last))
}
