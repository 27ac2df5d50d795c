//! The questions that computations have asked of a lookup, and their askers.
//!
//! A question is stored once for all computations that have asked it, as long as the last result of one of them depends
//! on it. A change of an object finds the affected questions, before and after the change, without visiting the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::labels::{Labelled, Range, Selecting, Terms};
use super::pool::Asking;
use super::small_set::SmallSet;
use super::view::{Footprint, IndexId, TotalsId, Touched};
use crate::cluster::KindName;
use crate::definition::numbered_values::Numbered;
use crate::object::{Key, Labels};

/// A question that a computation asks of a lookup. Clones share its strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// Whether the objects can be read.
    Availability,
    /// The object with this key. Most questions are of this variant and are asked by a single source.
    Named(Key),
    /// Any other question.
    About(Arc<About>),
}

impl From<About> for Question {
    fn from(about: About) -> Self {
        Self::About(Arc::new(about))
    }
}

/// A question that is not by name. Its first field is a namespace, or `None` for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// All objects.
    All(Option<Box<str>>),
    /// The objects that an index finds by this value.
    Indexed(Option<Box<str>>, IndexId, Box<str>),
    /// The objects whose labels fulfil these terms.
    Matching(Option<Box<str>>, Terms),
    /// The objects whose selectors these labels fulfil.
    Selecting(Option<Box<str>>, IndexId, Labels),
    /// The sum of a measure over the group of this value.
    Aggregate(Option<Box<str>>, TotalsId, Box<str>),
    /// The object that a reference names: its kind, its name, and the namespace of the reference. The namespace is
    /// last, so that all references to a cluster-scoped object are adjacent.
    Referred(KindName, Box<str>, Option<Box<str>>),
}

/// The memory of a question besides its strings, in bytes: the question itself and its entries in maps.
const QUESTION: usize = 160;
/// The additional memory of an [`About`], in bytes.
const ABOUT: usize = 96;
/// The memory of each source that has asked a question, in bytes.
const ASKER: usize = 8;

impl Question {
    fn about(&self) -> Option<&About> {
        match self {
            Self::About(about) => Some(about),
            Self::Availability | Self::Named(_) => None,
        }
    }

    /// The approximate memory, in bytes.
    fn size(&self) -> usize {
        QUESTION
            + match self {
                Self::Availability => 0,
                Self::Named(key) => key.text().len(),
                Self::About(about) => ABOUT + about.size(),
            }
    }
}

impl About {
    fn size(&self) -> usize {
        let of_namespace =
            |namespace: &Option<Box<str>>| namespace.as_ref().map_or(0, |one| one.len());
        match self {
            Self::All(namespace) => of_namespace(namespace),
            // This reference may be the only one to its kind.
            Self::Referred(kind, name, namespace) => {
                let kind = QUESTION + 2 * (kind.api_version().len() + kind.kind().len());
                kind + name.len() + of_namespace(namespace)
            }
            Self::Indexed(namespace, _, text) | Self::Aggregate(namespace, _, text) => {
                of_namespace(namespace) + text.len()
            }
            // The terms are also stored in an index.
            Self::Matching(namespace, terms) => of_namespace(namespace) + 2 * terms.size(),
            Self::Selecting(namespace, _, labels) => of_namespace(namespace) + labels.size(),
        }
    }
}

/// The id of a stored question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(u32);

/// The namespace and the id of a question about labels.
type Place = (Option<Box<str>>, QuestionId);

/// The sources whose computations have asked a question.
pub(super) type Sources = HashSet<Asking>;

struct Asked {
    question: Question,
    /// The sources whose computations have asked the question.
    by: SmallSet<Asking>,
}

/// All stored questions.
#[derive(Default)]
pub(super) struct Questions {
    ids: BTreeMap<Question, QuestionId>,
    asked: Numbered<Asked>,
    /// The questions since the last [`take_seen`](Self::take_seen).
    seen: BTreeSet<QuestionId>,
    /// The namespaces whose objects another lookup has read since then.
    gone_through: BTreeSet<Option<Box<str>>>,
    matching: Selecting<Place>,
    selecting: HashMap<IndexId, Labelled<Place>>,
    /// Kinds without any question.
    released: Vec<KindName>,
    /// The memory of all fields in bytes, except for `selecting`, which counts its own.
    bytes: usize,
}

impl Questions {
    /// Records a question.
    pub fn ask(&mut self, question: Question) {
        if let Some(id) = self.ids.get(&question) {
            self.seen.insert(*id);
            return;
        }
        let asked = Asked { question: question.clone(), by: SmallSet::default() };
        let id = QuestionId(self.asked.add(asked));
        match question.about() {
            Some(About::Matching(namespace, terms)) => {
                self.matching.insert(&(namespace.clone(), id), terms);
            }
            Some(About::Selecting(namespace, index, labels)) => {
                self.selecting.entry(*index).or_default().insert(&(namespace.clone(), id), labels);
            }
            _ => {}
        }
        self.bytes += question.size();
        self.ids.insert(question, id);
        self.seen.insert(id);
    }

    /// Takes the questions since the last call, in order.
    pub fn take_seen(&mut self) -> Vec<QuestionId> {
        self.gone_through.clear();
        std::mem::take(&mut self.seen).into_iter().collect()
    }

    /// Records that another lookup reads the objects of a namespace, or of all namespaces. That lookup follows their
    /// changes itself.
    pub fn go_through(&mut self, namespace: Option<&str>) {
        self.gone_through.insert(namespace.map(Box::from));
    }

    /// Whether a question since the last [`take_seen`](Self::take_seen) is about objects outside of this namespace.
    pub fn are_outside(&self, namespace: Option<&str>) -> bool {
        if self.gone_through.iter().any(|of| of.as_deref() != namespace) {
            return true;
        }
        let questions = self.seen.iter().filter_map(|id| self.asked.get(id.0));
        questions.into_iter().any(|asked| match &asked.question {
            // The availability reveals nothing about an object.
            Question::Availability => false,
            Question::Named(key) => key.namespace() != namespace,
            Question::About(about) => match &**about {
                // References can name objects in any namespace.
                About::Referred(..) => false,
                About::All(of)
                | About::Indexed(of, ..)
                | About::Matching(of, _)
                | About::Selecting(of, ..)
                | About::Aggregate(of, ..) => of.as_deref() != namespace,
            },
        })
    }

    /// Records the questions that the computation of a source has asked. Replaces its earlier questions.
    pub fn settle(&mut self, source: Asking, before: &[QuestionId], now: &[QuestionId]) {
        for id in now {
            if let Some(asked) = self.asked.get_mut(id.0)
                && asked.by.insert(source)
            {
                self.bytes += ASKER;
            }
        }
        for id in before.iter().filter(|id| now.binary_search(id).is_err()) {
            if let Some(asked) = self.asked.get_mut(id.0) {
                if asked.by.remove(&source) {
                    self.bytes -= ASKER;
                }
                if asked.by.is_empty() {
                    self.forget(*id);
                }
            }
        }
    }

    /// Drops questions that have been asked but are not recorded for any source.
    pub fn drop_unsettled(&mut self, ids: &[QuestionId]) {
        for id in ids {
            if self.asked.get(id.0).is_some_and(|asked| asked.by.is_empty()) {
                self.forget(*id);
            }
        }
    }

    fn forget(&mut self, id: QuestionId) {
        let Some(Asked { question, by }) = self.asked.remove(id.0) else { return };
        self.ids.remove(&question);
        self.bytes -= question.size() + by.len() * ASKER;
        match question.about() {
            Some(About::Matching(namespace, terms)) => {
                self.matching.remove(&(namespace.clone(), id), terms);
            }
            Some(About::Selecting(namespace, index, labels)) => {
                if let Some(labelled) = self.selecting.get_mut(index) {
                    labelled.remove(&(namespace.clone(), id), labels);
                }
            }
            Some(About::Referred(kind, ..)) if self.of_kind(kind).next().is_none() => {
                self.released.push(kind.clone());
            }
            _ => {}
        }
    }

    /// Takes the kinds that have no question any more, each once.
    pub fn take_released(&mut self) -> Vec<KindName> {
        let mut released = std::mem::take(&mut self.released);
        released.retain(|kind| self.of_kind(kind).next().is_none());
        released
    }

    /// The questions about a kind.
    fn of_kind(&self, kind: &KindName) -> impl Iterator<Item = QuestionId> {
        self.from(About::Referred(kind.clone(), Box::default(), None))
            .take_while(move |(about, _)| matches!(about, About::Referred(of, ..) if of == kind))
            .map(|(_, id)| id)
    }

    /// The [`About`] questions from `first` on, in order.
    fn from(&self, first: About) -> impl Iterator<Item = (&About, QuestionId)> {
        let questions = self.ids.range(Question::from(first)..);
        questions.filter_map(|(question, id)| Some((question.about()?, *id)))
    }

    /// Adds the sources that have asked for an object of a kind.
    pub fn find_of_kind(&self, kind: &KindName, due: &mut Sources) {
        self.of_kind(kind).for_each(|id| self.add_if(id, due, |_| true));
    }

    /// Adds the sources that have asked for this object of a kind.
    pub fn find_referred(
        &self,
        kind: &KindName,
        key: &Key,
        is_namespaced: bool,
        due: &mut Sources,
    ) {
        let name = key.name();
        if is_namespaced {
            let namespace = key.namespace().map(Box::from);
            self.add(&About::Referred(kind.clone(), name.into(), namespace).into(), due);
            return;
        }
        let all = self.from(About::Referred(kind.clone(), name.into(), None));
        let of_name = all.take_while(|(about, _)| {
            matches!(about, About::Referred(of, named, _) if of == kind && &**named == name)
        });
        of_name.for_each(|(_, id)| self.add_if(id, due, |_| true));
    }

    /// Adds the sources that have asked for the object under this key by its name.
    pub fn find_named(&self, key: &Key, due: &mut Sources) {
        self.add(&Question::Named(key.clone()), due);
    }

    /// Adds the sources that have asked a question whose result may have changed with an object.
    pub fn find_touched(&self, key: &Key, touched: &Touched, due: &mut Sources) {
        for footprint in &touched.footprints {
            self.find_by_footprint(key, footprint, due);
        }
        for group in &touched.groups {
            self.find_total(key, group, due);
        }
    }

    /// Adds the sources that have asked for the sum of a group that contains the object with this key.
    pub fn find_total(&self, key: &Key, (id, text): &(TotalsId, Box<str>), due: &mut Sources) {
        for namespace in scopes(key) {
            self.add(&About::Aggregate(namespace, *id, text.clone()).into(), due);
        }
    }

    /// Adds the sources that have asked a question whose result contains the object with this footprint.
    fn find_by_footprint(&self, key: &Key, footprint: &Footprint, due: &mut Sources) {
        for namespace in scopes(key) {
            self.add(&About::All(namespace.clone()).into(), due);
            for (index, texts) in footprint.indexed() {
                for text in texts {
                    let about = About::Indexed(namespace.clone(), index, text.clone());
                    self.add(&about.into(), due);
                }
            }
            let range = places(namespace);
            if let Some(labels) = footprint.labels() {
                for (_, id) in self.matching.candidates(labels, &range) {
                    self.add_if(*id, due, |question| match question.about() {
                        Some(About::Matching(_, terms)) => terms.matches(labels),
                        _ => false,
                    });
                }
            }
            for (index, terms) in footprint.selectors() {
                let Some(labelled) = self.selecting.get(&index) else { continue };
                for (_, id) in labelled.candidates(terms, &range) {
                    self.add_if(*id, due, |question| match question.about() {
                        Some(About::Selecting(_, _, labels)) => terms.matches(labels),
                        _ => false,
                    });
                }
            }
        }
    }

    /// Adds all sources that have asked a question.
    pub fn find_all(&self, due: &mut Sources) {
        due.extend(self.asked.iter().flat_map(|asked| asked.by.iter()));
    }

    fn add(&self, question: &Question, due: &mut Sources) {
        if let Some(id) = self.ids.get(question) {
            self.add_if(*id, due, |_| true);
        }
    }

    fn add_if(&self, id: QuestionId, due: &mut Sources, is_meant: impl Fn(&Question) -> bool) {
        if let Some(asked) = self.asked.get(id.0).filter(|asked| is_meant(&asked.question)) {
            due.extend(asked.by.iter());
        }
    }

    /// The approximate memory of all questions, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.selecting.values().map(Labelled::bytes).sum::<usize>()
    }

    /// The number of stored questions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.ids.len(), self.asked.iter().count());
        self.ids.len()
    }
}

/// The namespaces of questions whose result can contain the object with this key: all namespaces, and its own.
fn scopes(key: &Key) -> impl Iterator<Item = Option<Box<str>>> {
    [None].into_iter().chain(key.namespace().map(|namespace| Some(namespace.into())))
}

/// The range of questions about a namespace.
fn places(namespace: Option<Box<str>>) -> Range<Place> {
    let last = (namespace.clone(), QuestionId(u32::MAX));
    (Bound::Included((namespace, QuestionId(0))), Bound::Included(last))
}
