//! A step of a path: a field, or an item of a list.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::value::{compare_values, write_shown};

/// A step of a path into an object.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A member of an object.
    Field(Box<str>),
    /// The item of a list in which these members are so, in the order of their names.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set that is equal.
    Value(Value),
    /// The item at this place.
    Index(i64),
    /// An item that is told by a list or an object, which no item of a type is: as it is written
    /// down.
    Composite(Box<str>),
}

impl PathElement {
    /// A member of an object.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The item in which these members are so.
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

/// As messages show it: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
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
