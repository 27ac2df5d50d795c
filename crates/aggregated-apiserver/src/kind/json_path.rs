//! Paths of columns, as Kubernetes writes them: `.spec.size`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! What a path finds is found step by step, in the order and with the faults of Kubernetes' own
//! library: what goes wrong with one value leaves the whole cell empty. Nothing is copied, and
//! a search stops after a number of steps that its caller sets.

mod compare;
mod find;
mod parse;

use std::borrow::Cow;

use serde_json::Value;

/// A path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

/// One step from values to others.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The member of this name.
    Field(String),
    /// Items: from, until and each how manieth.
    Slice(Slice),
    /// What each of these finds, one after the other.
    Union(Vec<Vec<Step>>),
    /// All members, items, or bytes of a text.
    Wildcard,
    /// Everything that holds something, from the outside to the inside.
    Recursive,
    /// Items for which this is so.
    Filter(Filter),
    /// This value, whatever there is.
    Literal(Value),
    /// What Kubernetes' library knows in templates only.
    Keyword,
}

/// Items of a list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    from: Option<i64>,
    until: Option<i64>,
    /// Whether it ends with the item that it begins with.
    is_one: bool,
    step: Option<i64>,
}

/// What must be so.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// With what it is compared, and how; it must be there, if nothing is said.
    right: Option<(String, Vec<Step>)>,
}

impl JsonPath {
    /// Reads a path; nothing if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        parse::path(text).map(Self)
    }

    /// The first value that it finds. Takes its steps from those that are left; nothing is found
    /// when they are not enough.
    pub fn first<'v>(&'v self, object: &'v Value, left: &mut usize) -> Option<Cow<'v, Value>> {
        find::find(&self.0, object, left)?.into_iter().next()
    }
}

#[cfg(test)]
mod tests;
