//! Values of expressions: computed values, and borrowed JSON values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Map as Json;

use crate::declared::{Declared, Equality};
use crate::library::Extension;
use crate::moment::Moment;

/// A value. JSON is borrowed for `'v`.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'v>),
    Bytes(Arc<[u8]>),
    Timestamp(Moment),
    /// A duration in nanoseconds.
    Duration(i64),
    List(List<'v>),
    Map(Map<'v>),
    Type(Arc<str>),
    Optional(Option<Arc<Value<'v>>>),
    /// A value of a type that Kubernetes adds.
    Extension(Arc<Extension>),
}

/// A string.
#[derive(Clone, Debug)]
pub(crate) enum Text<'v> {
    Borrowed(&'v str),
    Owned(Arc<str>),
}

/// A list.
#[derive(Clone, Debug)]
pub(crate) struct List<'v> {
    pub items: Items<'v>,
    /// The comparison with other lists.
    pub equality: ListEquality<'v>,
}

/// The comparison of a list with other lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListEquality<'v> {
    /// The list is a literal or a computed list.
    Computed,
    /// The schema of the list determines the comparison.
    Declared(&'v Equality),
}

impl List<'_> {
    fn go_type(&self) -> &'static str {
        match (&self.items, self.equality) {
            (Items::Own(_), _) => "*types.baseList",
            (Items::Joined(..), _) => "*types.concatList",
            (Items::Json(..), ListEquality::Declared(Equality::Set)) => {
                "*common.unstructuredSetList"
            }
            (Items::Json(..), ListEquality::Declared(Equality::ByKeys(_))) => {
                "*common.unstructuredMapList"
            }
            (Items::Json(..), _) => "*common.unstructuredList",
        }
    }
}

/// The items of a list.
#[derive(Clone, Debug)]
pub(crate) enum Items<'v> {
    Json(&'v [serde_json::Value], &'v Declared),
    Own(Arc<Vec<Value<'v>>>),
    /// The items of two lists, and their number. Concatenation takes constant time, regardless of the number of items.
    Joined(Arc<(List<'v>, List<'v>)>, usize),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub(crate) enum Map<'v> {
    Json(&'v Json<String, serde_json::Value>, &'v Declared),
    Own(Arc<Entries<'v>>),
}

/// Entries by their keys. Each entry contains its original key too.
pub(crate) type Entries<'v> = BTreeMap<Key, (Value<'v>, Value<'v>)>;

/// A key of a map. Integers with the same value are the same key, regardless of their types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    /// A number that is not an integer, as its bits.
    Fraction(u64),
    String(Arc<str>),
}

/// The reason why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error in the values. `&&` and `||` can have a result in spite of it.
    Error(String),
    /// An error that ends the evaluation, like a panic in Go. `&&` and `||` have no result.
    Broken(&'static str),
    /// The cost limit was exceeded.
    Limit,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error(why) => why,
            Self::Broken(why) => why,
            Self::Limit => "operation cancelled: actual cost limit exceeded",
        })
    }
}

pub(crate) type Outcome<'v> = Result<Value<'v>, Failure>;

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self::Error(why.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(key: &Value<'_>) -> Self {
        Self::new(format!("no such key: {key}"))
    }
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'v> Value<'v> {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::own(items))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Some(Arc::new(of)))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The number of characters, bytes, items or fields, if the value has any.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::String(text) => Some(count_chars(text.as_str())),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::List(list) => Some(list.len() as u64),
            Self::Map(map) => Some(map.len() as u64),
            _ => None,
        }
    }

    /// The name of the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Extension(of) => of.type_name(),
        }
    }

    /// The Go type in error messages of cel-go.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Duration(_) => "types.Duration",
            Self::List(list) => list.go_type(),
            Self::Map(Map::Json(..)) => "*common.unstructuredMap",
            Self::Map(Map::Own(_)) => "*types.baseMap",
            Self::Type(_) => "*types.Type",
            Self::Optional(_) => "*types.Optional",
            Self::Extension(of) => of.go_type(),
        }
    }

    /// The value as a key of a map.
    pub(crate) fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(flag) => Some(Key::Bool(*flag)),
            Self::Int(number) => Some(Key::Number(i128::from(*number))),
            Self::Uint(number) => Some(Key::Number(i128::from(*number))),
            Self::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => {
                Some(Key::Number(*number as i128))
            }
            Self::Double(number) if !number.is_nan() => Some(Key::Fraction(number.to_bits())),
            Self::String(Text::Owned(text)) => Some(Key::String(Arc::clone(text))),
            Self::String(text) => Some(Key::String(text.as_str().into())),
            _ => None,
        }
    }
}

/// The last character boundary at or before this byte offset.
pub(crate) fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// The number of characters in a string.
pub(crate) fn count_chars(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().count() as u64 }
}

impl<'v> List<'v> {
    pub(crate) fn own(items: Vec<Value<'v>>) -> Self {
        Self { items: Items::Own(Arc::new(items)), equality: ListEquality::Computed }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.items {
            Items::Json(items, _) => items.len(),
            Items::Own(items) => items.len(),
            Items::Joined(_, length) => *length,
        }
    }

    /// The item at an index.
    pub(crate) fn get(&self, at: usize) -> Option<Outcome<'v>> {
        let (mut list, mut at) = (self, at);
        loop {
            match &list.items {
                Items::Json(items, declared) => {
                    return items.get(at).map(|item| Value::of(item, declared));
                }
                Items::Own(items) => return items.get(at).cloned().map(Ok),
                Items::Joined(parts, _) => match at.checked_sub(parts.0.len()) {
                    None => list = &parts.0,
                    Some(after) => {
                        at = after;
                        list = &parts.1;
                    }
                },
            }
        }
    }

    /// All items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Outcome<'v>> + '_ {
        (0..self.len()).map_while(|at| self.get(at))
    }

    /// All items, or the first error.
    pub(crate) fn items(&self) -> Result<Vec<Value<'v>>, Failure> {
        self.iter().collect()
    }
}

impl<'v> Map<'v> {
    pub(crate) fn own(entries: Entries<'v>) -> Self {
        Self::Own(Arc::new(entries))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(members, _) => members.len(),
            Self::Own(entries) => entries.len(),
        }
    }

    /// The value of a key, if the map contains the key.
    pub(crate) fn find(&self, key: &Value<'_>) -> Result<Option<Value<'v>>, Failure> {
        match self {
            Self::Json(members, declared) => match key.as_str() {
                Some(name) => declared.find(members, name),
                None => Err(Failure::no_such_overload()),
            },
            Self::Own(entries) => {
                let found = key.key().and_then(|key| entries.get(&key));
                Ok(found.map(|(_, value)| value.clone()))
            }
        }
    }

    /// All keys that expressions can use.
    pub(crate) fn keys(&self) -> Vec<Value<'v>> {
        match self {
            Self::Json(members, declared) => declared.keys(members),
            Self::Own(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
        }
    }
}

/// The largest part of a value that messages contain, in bytes. The value itself can be huge, because its parts may be
/// shared.
const SHOWN: usize = 16 << 10;

/// A writer that accepts only a limited number of bytes.
struct Cut<'a, 'f> {
    sink: &'a mut fmt::Formatter<'f>,
    left: usize,
    is_full: bool,
}

impl fmt::Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = char_boundary(text, self.left);
        self.left -= end;
        self.is_full = end < text.len();
        self.sink.write_str(&text[..end])?;
        if self.is_full { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Value<'_> {
    /// Formats the value for error messages. Long values are truncated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { sink: f, left: SHOWN, is_full: false };
        match self.write(&mut cut) {
            Err(_) if cut.is_full => Ok(()),
            written => written,
        }
    }
}

impl Value<'_> {
    /// Writes the whole value.
    pub(crate) fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Uint(number) => write!(f, "{number}"),
            Self::Double(number) => f.write_str(&crate::convert::double_text(*number)),
            Self::String(text) => f.write_str(text.as_str()),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Timestamp(at) => write!(f, "{at}"),
            Self::Duration(nanoseconds) => {
                f.write_str(&crate::convert::duration_text(*nanoseconds))
            }
            Self::List(list) => {
                f.write_str("[")?;
                for (at, item) in list.iter().enumerate() {
                    let separator = if at > 0 { ", " } else { "" };
                    f.write_str(separator)?;
                    match item {
                        Ok(item) => item.write(f)?,
                        Err(_) => f.write_str("error")?,
                    }
                }
                f.write_str("]")
            }
            Self::Map(map) => {
                f.write_str("{")?;
                for (at, key) in map.keys().iter().enumerate() {
                    let separator = if at > 0 { ", " } else { "" };
                    f.write_str(separator)?;
                    key.write(f)?;
                    f.write_str(": ")?;
                    match map.find(key) {
                        Ok(Some(value)) => value.write(f)?,
                        _ => f.write_str("error")?,
                    }
                }
                f.write_str("}")
            }
            Self::Type(name) => f.write_str(name),
            Self::Optional(Some(value)) => {
                f.write_str("optional(")?;
                value.write(f)?;
                f.write_str(")")
            }
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Extension(of) => write!(f, "{of}"),
        }
    }
}
