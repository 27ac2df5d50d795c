//! Types that a schema declares, and the sizes of their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parser::RESERVED;
use crate::types::{Object, Type};

/// The largest size of a request, in bytes. It limits values that no schema limits.
const REQUEST: u64 = 3 * 1024 * 1024;
/// The largest size of a duration and of a time as JSON, in bytes.
const LONGEST_TIME: u64 = 32;
/// The size of a date as JSON, in bytes.
const DATE: u64 = 12;

/// The type of a value, as a schema declares it and expressions use it.
///
/// A JSON value is read with its declared type without a copy (`Value::of`). Types are checked against declared types,
/// and costs are estimated by the sizes that they allow.
#[derive(Debug)]
pub struct Declared {
    pub(crate) shape: Shape,
    /// The largest number of fields, items or bytes.
    pub(crate) largest: u64,
    /// The smallest size as JSON, in bytes.
    pub(crate) smallest: u64,
    pub(crate) is_nullable: bool,
    /// Whether expressions can use the escaped names of keys of the map.
    pub(crate) has_escaped_keys: bool,
    /// The name of an object type; by default it is the path of the value.
    name: Option<Box<str>>,
}

/// The kind of a declared type.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Any JSON value, whose numbers are doubles.
    Any,
    /// Any JSON value, whose whole numbers are integers.
    Dyn,
    /// An integer or a string.
    IntOrString,
    Bool,
    Int,
    Double,
    String(Format),
    List(Arc<Declared>, Equality),
    Map(Arc<Declared>),
    Object(Members),
}

/// The format of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    None,
    Bytes,
    Duration,
    Date,
    DateTime,
}

/// The equality of lists, which also determines their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// Compared item by item, in order.
    Ordered,
    /// Compared as sets, in any order.
    Set,
    /// Compared by items with equal values of these fields, in any order.
    ByKeys(Arc<[Box<str>]>),
}

/// The fields of an object.
#[derive(Debug)]
pub(crate) struct Members {
    /// The fields, by their escaped names in expressions.
    pub by_name: BTreeMap<Box<str>, (Box<str>, Arc<Declared>)>,
}

impl Members {
    /// A field by its name in an expression. A reserved word of the language can also be used without escapes:
    /// `self.namespace`.
    pub(crate) fn get(&self, name: &str) -> Option<&(Box<str>, Arc<Declared>)> {
        let as_it_is = || {
            let word = RESERVED.contains(&name).then(|| crate::escape(name))??;
            self.by_name.get(&*word)
        };
        self.by_name.get(name).or_else(as_it_is)
    }
}

/// The comparison of two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Item by item, in order.
    #[default]
    Atomic,
    /// As a set of items, in any order.
    Set,
    /// By the fields that identify an item, in any order.
    Map(Vec<String>),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name of the field in JSON.
    pub name: String,
    /// The type of the values; `None` if expressions cannot use the field.
    pub of: Option<Arc<Declared>>,
    /// Whether the field is required.
    pub is_required: bool,
    /// Whether a missing field is set to a default.
    pub has_default: bool,
}

impl Declared {
    fn new(shape: Shape, largest: u64, smallest: u64) -> Self {
        Self { shape, largest, smallest, is_nullable: false, has_escaped_keys: false, name: None }
    }

    /// The same type, with `null` as another value.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.is_nullable = true;
        self
    }

    /// The same object type with this name in error messages.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same map, whose keys expressions can also select by their escaped names: `claims.a__dot__b` is the value of
    /// the key `a.b`.
    #[must_use]
    pub fn with_escaped_keys(mut self) -> Self {
        self.has_escaped_keys = true;
        self
    }

    /// Any JSON value, whose type is known at run time. Numbers are doubles, and keys of objects can be escaped. The range
    /// of a macro must be `dyn(value)`, same as in kube-apiserver.
    pub fn any() -> Self {
        Self::new(Shape::Any, REQUEST - 2, 1).nullable().with_escaped_keys()
    }

    /// Any JSON value, whose type is known at run time, as in an object without a schema: whole numbers are integers.
    pub fn dynamic() -> Self {
        Self::new(Shape::Dyn, REQUEST, 1).nullable()
    }

    /// `true` or `false`.
    pub fn boolean() -> Self {
        Self::new(Shape::Bool, 0, 4)
    }

    /// An integer.
    pub fn integer() -> Self {
        Self::new(Shape::Int, 0, 1)
    }

    /// Any number.
    pub fn number() -> Self {
        Self::new(Shape::Double, 0, 1)
    }

    /// An integer, or a string of at most `longest` characters.
    pub fn int_or_string(longest: Option<u64>) -> Self {
        let largest = longest.map_or(REQUEST - 2, |longest| longest.saturating_mul(4));
        Self::new(Shape::IntOrString, largest, 1)
    }

    /// A string with its format, the largest number of its characters, and its allowed values.
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

    /// A list of at most `most` items.
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

    /// A map with values of one type, and with at most `most` entries.
    pub fn map(values: Arc<Self>, most: Option<u64>) -> Self {
        let largest = most.unwrap_or((REQUEST - 2) / (values.smallest + 6));
        Self::new(Shape::Map(values), largest, 2)
    }

    /// An object with these fields.
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

    /// The largest number of values of this type in one request.
    pub fn most_in_a_request(&self) -> u64 {
        REQUEST / (self.smallest + 1)
    }

    /// The type of the values in expressions. `name` is the path of the value; the types of objects have it as their
    /// name.
    pub(crate) fn of_type(self: &Arc<Self>, name: &str) -> Type {
        match &self.shape {
            Shape::Any => Type::Any,
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
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
                let name = self.name.as_deref().unwrap_or(name);
                Type::Object(Object { name: name.into(), declared: Some(Arc::clone(self)) })
            }
        }
    }

    /// A field of an object, by its name in expressions.
    pub(crate) fn member(&self, name: &str) -> Option<&(Box<str>, Arc<Self>)> {
        match &self.shape {
            Shape::Object(members) => members.get(name),
            _ => None,
        }
    }
}
