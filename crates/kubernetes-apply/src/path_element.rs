//! A step of a path: a field or a list element.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::value::{compare_values, write_shown};

/// A step of a path into an object.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object.
    Field(Box<str>),
    /// The list element whose key fields have these values, in the order of their names.
    Key(Box<[(Box<str>, Value)]>),
    /// The element of a set with this value.
    Value(Value),
    /// The list element at this index.
    Index(i64),
    /// A list element that is identified by a list or an object, in the encoding of `fieldsV1`. No valid element of a
    /// typed list is identified so.
    Composite(Box<str>),
}

impl PathElement {
    /// Returns the path element of a field.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Returns the path element of the list element whose key fields have these values.
    pub fn key(mut members: Vec<(Box<str>, Value)>) -> Self {
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(members.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
            Self::Composite(_) => 4,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => {
                let pairs = one
                    .iter()
                    .zip(other.iter())
                    .map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare_values(x, y)));
                let first = pairs.into_iter().find(|order| order.is_ne());
                first.unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            (Self::Value(one), Self::Value(other)) => compare_values(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            (Self::Composite(one), Self::Composite(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Formats the path element as in messages: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(members) => {
                f.write_str("[")?;
                for (index, (name, value)) in members.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{name}=")?;
                    write_shown(f, value)?;
                }
                f.write_str("]")
            }
            Self::Value(value) => {
                f.write_str("[=")?;
                write_shown(f, value)?;
                f.write_str("]")
            }
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Composite(written) => write!(f, "[{written}]"),
        }
    }
}
