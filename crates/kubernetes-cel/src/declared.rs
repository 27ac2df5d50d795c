//! Types that a schema declares, and how large their values may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parser::RESERVED;
use crate::types::{Object, Type};

/// How large a request may be, in bytes: it bounds what no schema bounds.
const REQUEST: u64 = 3 * 1024 * 1024;
/// The largest duration and the largest time, as JSON, in bytes.
const LONGEST_TIME: u64 = 32;
/// A date as JSON, in bytes.
const DATE: u64 = 12;

/// What a schema says of a value, as far as expressions see it.
///
/// Values of JSON are read by it where they are (`Value::of`), types are checked against it, and
/// costs are estimated by the sizes that it admits.
#[derive(Debug)]
pub struct Declared {
    pub(crate) shape: Shape,
    /// How many members, items or bytes it may have at most.
    pub(crate) largest: u64,
    /// How many bytes it takes at least as JSON.
    pub(crate) smallest: u64,
    pub(crate) is_nullable: bool,
}

/// What values are.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A whole number or a text.
    IntOrString,
    Bool,
    Int,
    Double,
    String(Format),
    List(Arc<Declared>, Equality),
    Map(Arc<Declared>),
    Object(Members),
}

/// What a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    None,
    Bytes,
    Duration,
    Date,
    DateTime,
}

/// When lists are equal, and what their sum is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// Item by item.
    Ordered,
    /// Whatever the order is.
    Set,
    /// Item by item with the same values of these members, whatever the order is.
    ByKeys(Arc<[Box<str>]>),
}

/// Members of an object.
#[derive(Debug)]
pub(crate) struct Members {
    /// By the names that expressions call them by.
    pub by_name: BTreeMap<Box<str>, (Box<str>, Arc<Declared>)>,
}

impl Members {
    /// A member by its name in an expression. Of a word of the language it may be written as it is, too:
    /// `self.namespace`.
    pub(crate) fn get(&self, name: &str) -> Option<&(Box<str>, Arc<Declared>)> {
        let as_it_is = || {
            let word = RESERVED.contains(&name).then(|| crate::escape(name))??;
            self.by_name.get(&*word)
        };
        self.by_name.get(name).or_else(as_it_is)
    }
}

/// How a list is compared with another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Item by item.
    #[default]
    Atomic,
    /// As a set of items.
    Set,
    /// By the members that identify an item.
    Map(Vec<String>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// What its values are; `None` if expressions do not see it.
    pub of: Option<Arc<Declared>>,
    /// Whether it must be there.
    pub is_required: bool,
    /// Whether it is filled in if it is not.
    pub has_default: bool,
}

impl Declared {
    fn new(shape: Shape, largest: u64, smallest: u64) -> Self {
        Self { shape, largest, smallest, is_nullable: false }
    }

    /// The same, where `null` is a value too.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.is_nullable = true;
        self
    }

    /// `true` or `false`.
    pub fn boolean() -> Self {
        Self::new(Shape::Bool, 0, 4)
    }

    /// A whole number.
    pub fn integer() -> Self {
        Self::new(Shape::Int, 0, 1)
    }

    /// Any number.
    pub fn number() -> Self {
        Self::new(Shape::Double, 0, 1)
    }

    /// A whole number or a text of so many characters at most.
    pub fn int_or_string(longest: Option<u64>) -> Self {
        let largest = longest.map_or(REQUEST - 2, |longest| longest.saturating_mul(4));
        Self::new(Shape::IntOrString, largest, 1)
    }

    /// A text: its format, the most characters that it may have, and the values that are allowed.
    pub fn string(format: &str, longest: Option<u64>, allowed: &[&str]) -> Self {
        match format {
            "byte" => {
                let largest = longest.unwrap_or(REQUEST - 2);
                Self::new(Shape::String(Format::Bytes), largest, 2)
            }
            "duration" => Self::new(Shape::String(Format::Duration), LONGEST_TIME, 3),
            "date" => Self::new(Shape::String(Format::Date), DATE, DATE),
            "date-time" => Self::new(Shape::String(Format::DateTime), LONGEST_TIME, 21),
            _ => {
                let of_allowed = allowed.iter().map(|text| text.len() as u64).max();
                let largest = longest.map(|longest| longest.saturating_mul(4));
                let largest = largest.or(of_allowed).unwrap_or(REQUEST - 2);
                Self::new(Shape::String(Format::None), largest, 2)
            }
        }
    }

    /// A list of so many items at most.
    pub fn list(items: Arc<Self>, most: Option<u64>, kind: &ListKind) -> Self {
        let largest = most.unwrap_or((REQUEST - 2) / (items.smallest + 1));
        let equality = match kind {
            ListKind::Atomic => Equality::Ordered,
            ListKind::Set => Equality::Set,
            ListKind::Map(keys) => {
                Equality::ByKeys(keys.iter().map(|key| key.as_str().into()).collect())
            }
        };
        Self::new(Shape::List(items, equality), largest, 2)
    }

    /// An object with any members, all of one type, and so many of them at most.
    pub fn map(values: Arc<Self>, most: Option<u64>) -> Self {
        let largest = most.unwrap_or((REQUEST - 2) / (values.smallest + 6));
        Self::new(Shape::Map(values), largest, 2)
    }

    /// An object with these members.
    pub fn object(fields: Vec<Field>) -> Self {
        let mut smallest = 2;
        let mut by_name = BTreeMap::new();
        for field in fields {
            let Some(of) = field.of else { continue };
            if field.is_required && !field.has_default {
                smallest += field.name.len() as u64 + of.smallest + 4;
            }
            if let Some(escaped) = crate::escape(&field.name) {
                by_name.insert(escaped.into(), (field.name.into(), of));
            }
        }
        Self::new(Shape::Object(Members { by_name }), 0, smallest)
    }

    /// How often a value of this type can stand in one request at most.
    pub fn most_in_a_request(&self) -> u64 {
        REQUEST / (self.smallest + 1)
    }

    /// The type of its values. Objects are called by the path that leads to them.
    pub(crate) fn of_type(self: &Arc<Self>, name: &str) -> Type {
        match &self.shape {
            Shape::IntOrString => Type::Dyn,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String(Format::None) => Type::String,
            Shape::String(Format::Bytes) => Type::Bytes,
            Shape::String(Format::Duration) => Type::Duration,
            Shape::String(Format::Date | Format::DateTime) => Type::Timestamp,
            Shape::List(items, _) => Type::list(items.of_type(&format!("{name}.@idx"))),
            Shape::Map(values) => Type::map(Type::String, values.of_type(&format!("{name}.@elem"))),
            Shape::Object(_) => {
                Type::Object(Object { name: name.into(), declared: Some(Arc::clone(self)) })
            }
        }
    }

    /// A member of an object, by the name that expressions call it by.
    pub(crate) fn member(&self, name: &str) -> Option<&(Box<str>, Arc<Self>)> {
        match &self.shape {
            Shape::Object(members) => members.get(name),
            _ => None,
        }
    }
}
