//! Which questions were asked of a lookup, and what asked them.
//!
//! A question is kept once, however many computations have asked it, and as long as the last result
//! of one of them depends on it. A change of an object finds the questions whose answer it may be
//! in, or was, without looking at the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::labels::{Labelled, Range, Selecting, Terms};
use super::pool::Asking;
use super::small_set::SmallSet;
use super::view::{Footprint, IndexId, TotalsId, Touched};
use crate::cluster::KindName;
use crate::definition::numbered::Numbered;
use crate::object::{Key, Labels};

/// What a computation has asked of a lookup. A copy takes no more room.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// Whether the objects can be looked at.
    Availability,
    /// The object under this key. Most questions are of this sort, and asked by one source alone.
    Named(Key),
    /// Anything else.
    About(Arc<About>),
}

impl From<About> for Question {
    fn from(about: About) -> Self {
        Self::About(Arc::new(about))
    }
}

/// What is asked that is more than a name. Of a namespace, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// All objects.
    All(Option<Box<str>>),
    /// The objects that an index finds by this text.
    Indexed(Option<Box<str>>, IndexId, Box<str>),
    /// The objects whose labels fulfil these terms.
    Matching(Option<Box<str>>, Terms),
    /// The objects whose selector these labels fulfil.
    Selecting(Option<Box<str>>, IndexId, Labels),
    /// The sum of a measure over the group of this text.
    Total(Option<Box<str>>, TotalsId, Box<str>),
    /// The object that a reference names: its kind, its name, and the namespace of the reference. An object in no
    /// namespace may be meant by references in all of them, so they stand side by side.
    Referred(KindName, Box<str>, Option<Box<str>>),
}

/// What a question takes besides its texts, in bytes: itself, and its places in maps.
const QUESTION: usize = 160;
/// What one takes that is more than a name, besides that.
const ABOUT: usize = 96;
/// What a source takes that has asked it.
const ASKER: usize = 8;

impl Question {
    fn about(&self) -> Option<&About> {
        match self {
            Self::About(about) => Some(about),
            Self::Availability | Self::Named(_) => None,
        }
    }

    /// How many bytes it takes, about.
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
            // The kind may be named by this reference alone.
            Self::Referred(kind, name, namespace) => {
                let kind = QUESTION + 2 * (kind.api_version().len() + kind.kind().len());
                kind + name.len() + of_namespace(namespace)
            }
            Self::Indexed(namespace, _, text) | Self::Total(namespace, _, text) => {
                of_namespace(namespace) + text.len()
            }
            // They are in an index, too.
            Self::Matching(namespace, terms) => of_namespace(namespace) + 2 * terms.size(),
            Self::Selecting(namespace, _, labels) => of_namespace(namespace) + labels.size(),
        }
    }
}

/// A question, as long as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(u32);

/// A question about labels, by the namespace that it is about.
type Place = (Option<Box<str>>, QuestionId);

/// Sources whose computations have asked something.
pub(super) type Sources = HashSet<Asking>;

struct Asked {
    question: Question,
    /// The sources whose computation has asked it.
    by: SmallSet<Asking>,
}

/// All questions that are kept.
#[derive(Default)]
pub(super) struct Questions {
    ids: BTreeMap<Question, QuestionId>,
    asked: Numbered<Asked>,
    /// What was asked since this was last taken.
    seen: BTreeSet<QuestionId>,
    /// The namespaces in which another lookup has gone through the objects since then.
    gone_through: BTreeSet<Option<Box<str>>>,
    matching: Selecting<Place>,
    selecting: HashMap<IndexId, Labelled<Place>>,
    /// Kinds of which nothing is asked any more.
    released: Vec<KindName>,
    /// What all of it takes but for what `selecting` counts itself.
    bytes: usize,
}

impl Questions {
    /// Notes a question.
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

    /// What was asked since this was last called, in order.
    pub fn take_seen(&mut self) -> Vec<QuestionId> {
        self.gone_through.clear();
        std::mem::take(&mut self.seen).into_iter().collect()
    }

    /// Notes that another lookup goes through the objects of a namespace, or of all: it is told of their changes itself.
    pub fn go_through(&mut self, namespace: Option<&str>) {
        self.gone_through.insert(namespace.map(Box::from));
    }

    /// Whether one of the questions since the last were taken is about objects that are not of this namespace.
    pub fn are_outside(&self, namespace: Option<&str>) -> bool {
        if self.gone_through.iter().any(|of| of.as_deref() != namespace) {
            return true;
        }
        let questions = self.seen.iter().filter_map(|id| self.asked.get(id.0));
        questions.into_iter().any(|asked| match &asked.question {
            // That says nothing of an object.
            Question::Availability => false,
            Question::Named(key) => key.namespace() != namespace,
            Question::About(about) => match &**about {
                // What references name may be anywhere.
                About::Referred(..) => false,
                About::All(of)
                | About::Indexed(of, ..)
                | About::Matching(of, _)
                | About::Selecting(of, ..)
                | About::Total(of, ..) => of.as_deref() != namespace,
            },
        })
    }

    /// Notes what the computation of a source has asked now, in place of what it had asked before.
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

    /// Lets go of questions that were asked and are not noted for any source.
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

    /// The kinds of which nothing is asked any more, once.
    pub fn take_released(&mut self) -> Vec<KindName> {
        let mut released = std::mem::take(&mut self.released);
        released.retain(|kind| self.of_kind(kind).next().is_none());
        released
    }

    /// What is asked of a kind.
    fn of_kind(&self, kind: &KindName) -> impl Iterator<Item = QuestionId> {
        self.from(About::Referred(kind.clone(), Box::default(), None))
            .take_while(move |(about, _)| matches!(about, About::Referred(of, ..) if of == kind))
            .map(|(_, id)| id)
    }

    /// The questions from one on that is more than a name, in order.
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

    /// Adds the sources that have asked a question whose answer may be another one since an object has
    /// changed.
    pub fn find_touched(&self, key: &Key, touched: &Touched, due: &mut Sources) {
        for footprint in &touched.footprints {
            self.find_by_footprint(key, footprint, due);
        }
        for group in &touched.groups {
            self.find_total(key, group, due);
        }
    }

    /// Adds the sources that have asked for the sum of a group, in which an object of this key is.
    pub fn find_total(&self, key: &Key, (id, text): &(TotalsId, Box<str>), due: &mut Sources) {
        for namespace in scopes(key) {
            self.add(&About::Total(namespace, *id, text.clone()).into(), due);
        }
    }

    /// Adds the sources that have asked a question whose answer an object is in that leaves this
    /// footprint.
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

    /// Adds the sources that have asked anything.
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

    /// How many bytes all of it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.selecting.values().map(Labelled::bytes).sum::<usize>()
    }

    /// How many questions are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.ids.len(), self.asked.iter().count());
        self.ids.len()
    }
}

/// What is asked of when the answer is an object of this key.
fn scopes(key: &Key) -> impl Iterator<Item = Option<Box<str>>> {
    [None].into_iter().chain(key.namespace().map(|namespace| Some(namespace.into())))
}

/// The places of questions about a namespace.
fn places(namespace: Option<Box<str>>) -> Range<Place> {
    let last = (namespace.clone(), QuestionId(u32::MAX));
    (Bound::Included((namespace, QuestionId(0))), Bound::Included(last))
}
