//! Conditions: of most objects of a kind the same ones are so, at other times.

use serde::de::{Deserialize, Deserializer};

use super::compact::{List, Moment, Shared, Word, pooled};

/// What is so, and since when.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    shape: Shared<List<Shape>>,
    /// Since when each of them is so.
    since: List<Moment>,
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    type_: Word,
    status: Word,
    reason: Option<Word>,
    message: Option<Word>,
}

pooled!(List<Shape>);

impl Conditions {
    /// All of them, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = ConditionView<'_>> {
        self.shape.iter().zip(&self.since).map(|(shape, since)| ConditionView {
            type_: &shape.type_,
            status: &shape.status,
            reason: shape.reason.as_ref(),
            message: shape.message.as_ref(),
            last_transition_time: *since,
        })
    }

    /// The condition of this type: the first one, if there are several.
    pub fn get(&self, kind: &str) -> Option<ConditionView<'_>> {
        self.iter().find(|condition| **condition.type_ == *kind)
    }
}

/// A condition.
#[derive(Clone, Copy, Debug)]
pub struct ConditionView<'a> {
    /// What it says.
    pub type_: &'a Word,
    /// `True`, `False` or `Unknown`.
    pub status: &'a Word,
    /// Why, in a word.
    pub reason: Option<&'a Word>,
    /// Why, in words.
    pub message: Option<&'a Word>,
    /// Since when.
    pub last_transition_time: Moment,
}

impl ConditionView<'_> {
    /// Whether it is so.
    pub fn is_true(self) -> bool {
        **self.status == *"True"
    }
}

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Read {
            #[serde(rename = "type")]
            type_: Word,
            status: Word,
            reason: Option<Word>,
            message: Option<Word>,
            last_transition_time: Moment,
        }

        let read = List::<Read>::deserialize(deserializer)?;
        let since: Vec<Moment> = read.iter().map(|one| one.last_transition_time).collect();
        let shape = |one: &Read| Shape {
            type_: one.type_.clone(),
            status: one.status.clone(),
            reason: one.reason.clone(),
            message: one.message.clone(),
        };
        let shape: Vec<Shape> = read.iter().map(shape).collect();
        Ok(Self { shape: List::from(shape).into(), since: since.into() })
    }
}
