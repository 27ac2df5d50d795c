//! JSONPaths of columns in Kubernetes' syntax: `.spec.size`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! A path is evaluated step by step, in the order and with the errors of Kubernetes' own library: an error at one value
//! leaves the whole cell empty. Nothing is copied, and a search stops after a number of steps that the caller sets.

mod compare;
mod find;
mod parse;

use std::borrow::Cow;

use serde_json::Value;

/// A parsed JSONPath.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

/// One step of a path, from a set of values to another.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The field with this name.
    Field(String),
    /// Elements of a list: start, end and step.
    Slice(Slice),
    /// The results of each of these paths in turn.
    Union(Vec<Vec<Step>>),
    /// All fields of an object, elements of a list, or bytes of a string.
    Wildcard,
    /// All values that contain others, from the outside to the inside.
    Recursive,
    /// Elements that match a condition.
    Filter(Filter),
    /// A constant, independent of the values.
    Literal(Value),
    /// A keyword that Kubernetes' library supports only in templates.
    Keyword,
}

/// Elements of a list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    from: Option<i64>,
    until: Option<i64>,
    /// Whether the slice contains only the element at `from`.
    is_one: bool,
    step: Option<i64>,
}

/// The condition of a filter.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// The operator and the right side of a comparison. Without them, the left side must exist.
    right: Option<(String, Vec<Step>)>,
}

impl JsonPath {
    /// Parses a path; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        parse::path(text).map(Self)
    }

    /// The first value that the path finds. Subtracts the steps that it takes from `left`. `None` if the steps do not
    /// suffice.
    pub fn first<'v>(&'v self, object: &'v Value, left: &mut usize) -> Option<Cow<'v, Value>> {
        find::find(&self.0, object, left)?.into_iter().next()
    }
}

#[cfg(test)]
mod tests;
