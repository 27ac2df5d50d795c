//! Conditions of an object. Most objects of a kind have the same conditions, with different times.

use serde::de::{Deserialize, Deserializer};

use super::compact::{List, Moment, Shared, Word, pooled};

/// The conditions of an object, each with its last transition time.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    shape: Shared<List<Shape>>,
    /// The last transition time of each condition, in the order of `shape`.
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
    /// All conditions, in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = ConditionView<'_>> {
        self.shape.iter().zip(&self.since).map(|(shape, since)| ConditionView {
            type_: &shape.type_,
            status: &shape.status,
            reason: shape.reason.as_ref(),
            message: shape.message.as_ref(),
            last_transition_time: *since,
        })
    }

    /// The condition of this type; the first one, if there are several.
    pub fn get(&self, kind: &str) -> Option<ConditionView<'_>> {
        self.iter().find(|condition| **condition.type_ == *kind)
    }
}

/// A condition.
#[derive(Clone, Copy, Debug)]
pub struct ConditionView<'a> {
    /// The type of the condition.
    pub type_: &'a Word,
    /// `True`, `False` or `Unknown`.
    pub status: &'a Word,
    /// The reason, one word in CamelCase.
    pub reason: Option<&'a Word>,
    /// The message.
    pub message: Option<&'a Word>,
    /// The time of the last transition.
    pub last_transition_time: Moment,
}

impl ConditionView<'_> {
    /// Whether the status is `True`.
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
