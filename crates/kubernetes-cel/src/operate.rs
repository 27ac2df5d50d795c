//! Operators: equality, order, arithmetic, and membership.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value as JsonValue;

use crate::cost::Meter;
use crate::declared::{Equality, Shape};
use crate::library::Extension;
use crate::value::{Failure, Items, List, ListEquality, Map, Outcome, Value};

/// Whether two values are equal. Numbers are compared by value, regardless of their types.
pub(crate) fn equal(
    one: &Value<'_>,
    other: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, Failure> {
    meter.work(1)?;
    Ok(match (one, other) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => order_of_numbers(one, other) == Some(Ordering::Equal),
        (Value::String(a), Value::String(b)) => {
            meter.work(a.as_str().len().min(b.as_str().len()) / 64)?;
            a.as_str() == b.as_str()
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.look(a.len().min(b.len()))?;
            a == b
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, meter)?,
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::Extension(a), Value::Extension(b)) => a == b,
        (Value::List(a), Value::List(b)) => lists_are_equal(a, b, meter)?,
        (Value::Map(a), Value::Map(b)) => maps_are_equal(a, b, meter)?,
        (Value::Map(Map::Json(_, declared)), _) if declared.has_escaped_keys => false,
        // Comparing a value with a schema to a value of another kind is an error.
        (Value::List(List { equality: ListEquality::Declared(_), .. }), _)
        | (Value::Map(Map::Json(..)), _) => return Err(Failure::no_such_overload()),
        _ => false,
    })
}

fn lists_are_equal(a: &List<'_>, b: &List<'_>, meter: &mut Meter) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.work(a.len())?;
    match a.equality {
        ListEquality::Declared(Equality::Set) => {
            let mut set = HashSet::new();
            for item in a.iter() {
                set.insert(identity(item, meter)?);
            }
            for item in b.iter() {
                if !set.contains(&identity(item, meter)?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListEquality::Declared(Equality::ByKeys(keys)) => {
            let mut by_key = HashMap::new();
            for item in a.iter() {
                let item = item?;
                by_key.insert(identity_by(&item, keys, meter)?, item);
            }
            for item in b.iter() {
                let item = item?;
                match by_key.get(&identity_by(&item, keys, meter)?) {
                    Some(known) if equal(known, &item, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// A string that is equal for equal items of a set.
fn identity(item: Outcome<'_>, meter: &mut Meter) -> Result<String, Failure> {
    let mut identity = String::new();
    identify(&item?, &mut identity, meter)?;
    Ok(identity)
}

/// Writes the type and the whole value.
fn identify(value: &Value<'_>, into: &mut String, meter: &mut Meter) -> Result<(), Failure> {
    let written = {
        let mut counted = Counted { into, meter };
        counted
            .write_str(value.type_name())
            .and_then(|()| counted.write_str(":"))
            .and_then(|()| value.write(&mut counted))
    };
    written.map_err(|_| Failure::Limit)
}

/// A string whose size the meter counts while it is written.
struct Counted<'a> {
    into: &'a mut String,
    meter: &'a mut Meter,
}

impl fmt::Write for Counted<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.meter.make(text.len()).map_err(|_| fmt::Error)?;
        self.into.push_str(text);
        Ok(())
    }
}

/// A string that is equal for items with equal keys.
fn identity_by(item: &Value<'_>, keys: &[Box<str>], meter: &mut Meter) -> Result<String, Failure> {
    let Value::Map(map) = item else { return Err(Failure::no_such_overload()) };
    let mut identity = String::new();
    for key in keys {
        let escaped = crate::escape(key);
        let name = Value::text(escaped.as_deref().unwrap_or(key));
        if let Some(value) = map.find(&name)? {
            identify(&value, &mut identity, meter)?;
        }
        identity.push('\u{0}');
    }
    Ok(identity)
}

fn maps_are_equal(a: &Map<'_>, b: &Map<'_>, meter: &mut Meter) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.work(a.len())?;
    for key in a.keys() {
        let (value, other) = (a.find(&key)?, b.find(&key)?);
        match (value, other) {
            (Some(value), Some(other)) if equal(&value, &other, meter)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    // Fields that expressions cannot use are compared too, if both objects have them.
    if let (Map::Json(members, declared), Map::Json(others, _)) = (a, b) {
        let Shape::Object(known) = &declared.shape else { return Ok(true) };
        meter.work(known.by_name.len())?;
        let seen: HashSet<&str> = known.by_name.values().map(|(seen, _)| &**seen).collect();
        for (name, value) in members.iter().filter(|(name, _)| !seen.contains(name.as_str())) {
            if let Some(other) = others.get(name)
                && !is_same_json(value, other, meter)?
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether two JSON values are identical.
fn is_same_json(one: &JsonValue, other: &JsonValue, meter: &mut Meter) -> Result<bool, Failure> {
    match (one, other) {
        (JsonValue::Array(one), JsonValue::Array(other)) if one.len() == other.len() => {
            for (one, other) in one.iter().zip(other) {
                if !is_same_json(one, other, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (JsonValue::Object(one), JsonValue::Object(other)) if one.len() == other.len() => {
            for (name, one) in one {
                meter.look(name.len())?;
                match other.get(name) {
                    Some(other) if is_same_json(one, other, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (JsonValue::String(one), JsonValue::String(other)) => {
            meter.look(one.len().min(other.len()))?;
            Ok(one == other)
        }
        (
            JsonValue::Array(_) | JsonValue::Object(_),
            JsonValue::Array(_) | JsonValue::Object(_),
        ) => Ok(false),
        (one, other) => {
            meter.work(1)?;
            Ok(one == other)
        }
    }
}

fn order_of_numbers(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    match (one, other) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => order_of_double(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => order_of_double(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => {
            order_of_double(*b, i128::from(*a)).map(Ordering::reverse)
        }
        (Value::Uint(a), Value::Double(b)) => {
            order_of_double(*b, i128::from(*a)).map(Ordering::reverse)
        }
        _ => None,
    }
}

fn order_of_double(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    let floor = double.floor();
    match (floor as i128).cmp(&whole) {
        Ordering::Equal if double > floor => Some(Ordering::Greater),
        order => Some(order),
    }
}

/// The order of two values; `None` if one of them is NaN.
pub(crate) fn order(one: &Value<'_>, other: &Value<'_>) -> Result<Option<Ordering>, Failure> {
    Ok(match (one, other) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_str().cmp(b.as_str())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => order_of_numbers(one, other),
        _ => return Err(Failure::no_such_overload()),
    })
}

/// `one + other`
pub(crate) fn add<'v>(one: &Value<'v>, other: &Value<'v>, meter: &mut Meter) -> Outcome<'v> {
    let overflow = |what: &str| Failure::new(format!("{what} overflow"));
    Ok(match (one, other) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_add(*b).ok_or_else(|| overflow("integer"))?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_add(*b).ok_or_else(|| overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            meter.make(a.len() + b.len())?;
            Value::text([a, b].concat())
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.make(a.len() + b.len())?;
            Value::Bytes([&**a, &**b].concat().into())
        }
        (Value::List(a), Value::List(b)) => Value::List(join(a, b, meter)?),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(*b).ok_or_else(|| overflow("integer"))?)
        }
        (Value::Timestamp(at), Value::Duration(by))
        | (Value::Duration(by), Value::Timestamp(at)) => {
            let moved = at.plus(i128::from(*by));
            Value::Timestamp(moved.ok_or_else(|| overflow("timestamp"))?)
        }
        _ => return Err(Failure::no_such_overload()),
    })
}

/// The concatenation of two lists. Items of a set, and of a list with keys, occur once.
fn join<'v>(a: &List<'v>, b: &List<'v>, meter: &mut Meter) -> Result<List<'v>, Failure> {
    let items = match a.equality {
        ListEquality::Declared(Equality::Set) => {
            meter.work(a.len() + b.len())?;
            let mut items = a.items()?;
            let mut known = HashSet::new();
            for item in &items {
                known.insert(identity(Ok(item.clone()), meter)?);
            }
            for item in b.iter() {
                let item = item?;
                if known.insert(identity(Ok(item.clone()), meter)?) {
                    items.push(item);
                }
            }
            Items::Own(Arc::new(items))
        }
        ListEquality::Declared(Equality::ByKeys(keys)) => {
            meter.work(a.len() + b.len())?;
            let mut items = a.items()?;
            let mut known = HashMap::new();
            for (at, item) in items.iter().enumerate() {
                known.insert(identity_by(item, keys, meter)?, at);
            }
            for item in b.iter() {
                let item = item?;
                match known.get(&identity_by(&item, keys, meter)?) {
                    Some(at) => items[*at] = item,
                    None => items.push(item),
                }
            }
            Items::Own(Arc::new(items))
        }
        _ if a.len() == 0 => b.items.clone(),
        _ if b.len() == 0 => a.items.clone(),
        _ => {
            let length = a.len().checked_add(b.len()).ok_or(Failure::Limit)?;
            Items::Joined(Arc::new((a.clone(), b.clone())), length)
        }
    };
    Ok(List { items, equality: a.equality })
}

/// `one - other`
pub(crate) fn subtract<'v>(one: &Value<'v>, other: &Value<'v>) -> Outcome<'v> {
    let overflow = |what: &str| Failure::new(format!("{what} overflow"));
    Ok(match (one, other) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_sub(*b).ok_or_else(|| overflow("integer"))?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_sub(*b).ok_or_else(|| overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a - b),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_sub(*b).ok_or_else(|| overflow("integer"))?)
        }
        (Value::Timestamp(at), Value::Duration(by)) => {
            let moved = at.plus(-i128::from(*by));
            Value::Timestamp(moved.ok_or_else(|| overflow("timestamp"))?)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let between = i64::try_from(a.nanoseconds() - b.nanoseconds());
            Value::Duration(between.map_err(|_| overflow("integer"))?)
        }
        _ => return Err(Failure::no_such_overload()),
    })
}

/// `one * other`
pub(crate) fn multiply<'v>(one: &Value<'v>, other: &Value<'v>) -> Outcome<'v> {
    let overflow = |what: &str| Failure::new(format!("{what} overflow"));
    Ok(match (one, other) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_mul(*b).ok_or_else(|| overflow("integer"))?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_mul(*b).ok_or_else(|| overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a * b),
        _ => return Err(Failure::no_such_overload()),
    })
}

/// `one / other`
pub(crate) fn divide<'v>(one: &Value<'v>, other: &Value<'v>) -> Outcome<'v> {
    Ok(match (one, other) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Failure::new("division by zero"));
        }
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_div(*b).ok_or_else(|| Failure::new("integer overflow"))?)
        }
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a / b),
        (Value::Double(a), Value::Double(b)) => Value::Double(a / b),
        _ => return Err(Failure::no_such_overload()),
    })
}

/// `one % other`
pub(crate) fn remainder<'v>(one: &Value<'v>, other: &Value<'v>) -> Outcome<'v> {
    Ok(match (one, other) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Failure::new("modulus by zero"));
        }
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_rem(*b).ok_or_else(|| Failure::new("integer overflow"))?)
        }
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a % b),
        _ => return Err(Failure::no_such_overload()),
    })
}

/// `-value`
pub(crate) fn negate<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::Int(number) => {
            number.checked_neg().map(Value::Int).ok_or_else(|| Failure::new("integer overflow"))
        }
        Value::Double(number) => Ok(Value::Double(-number)),
        _ => Err(Failure::no_such_overload()),
    }
}

/// `value in container`
pub(crate) fn contains(
    value: &Value<'_>,
    container: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, Failure> {
    match container {
        Value::List(list) => {
            let mut fault = None;
            for item in list.iter() {
                meter.work(1)?;
                match item.and_then(|item| equal(&item, value, meter)) {
                    Ok(true) => return Ok(true),
                    Ok(false) => {}
                    Err(why @ (Failure::Limit | Failure::Broken(_))) => return Err(why),
                    Err(why) => fault = fault.or(Some(why)),
                }
            }
            fault.map_or(Ok(false), Err)
        }
        Value::Map(map) => Ok(map.find(value)?.is_some()),
        _ => Err(Failure::no_such_overload()),
    }
}

/// The content of an optional value after it was a variable or a branch. Go unwraps the content there to a native value
/// and wraps it again, and some values change.
pub(crate) fn made_native<'v>(value: &Value<'v>) -> Value<'v> {
    match value {
        Value::Optional(Some(value)) => made_native(value),
        Value::Optional(None) => Value::Null,
        Value::Type(name) => Value::text(Arc::clone(name)),
        Value::Extension(of) => Value::Extension(Arc::new(of.made_native())),
        other => other.clone(),
    }
}

/// The content of an optional value.
///
/// # Errors
/// If Go cannot wrap the value again.
pub(crate) fn held<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::Extension(of) if matches!(**of, Extension::Lost(..)) => {
            Err(Failure::new(of.to_string()))
        }
        other => Ok(other.clone()),
    }
}

/// Rejects values that cannot be an index of a list or a key of a map.
pub(crate) fn check_index(index: &Value<'_>) -> Result<(), String> {
    match index {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) => {
            Ok(())
        }
        other => Err(format!("invalid qualifier type: {}", other.go_type())),
    }
}

/// The item at an index of a list, or the value of a key of a map.
///
/// # Errors
/// An error if the index is invalid. A missing item or value is `None`.
pub(crate) fn at<'v>(
    container: &Value<'v>,
    index: &Value<'_>,
) -> Result<Option<Value<'v>>, Failure> {
    match container {
        Value::Map(map) => map.find(index),
        Value::List(list) => {
            let place = match index {
                Value::Int(place) => Some(*place),
                Value::Uint(place) => i64::try_from(*place).ok(),
                Value::Double(place) if place.fract() == 0.0 => Some(*place as i64),
                Value::Double(place) => {
                    return Err(Failure::new(format!("unsupported index value {place} in list")));
                }
                other => {
                    return Err(Failure::new(format!(
                        "unsupported index type '{}' in list",
                        other.type_name()
                    )));
                }
            };
            let item = place.and_then(|place| usize::try_from(place).ok());
            item.and_then(|place| list.get(place)).transpose()
        }
        _ => Ok(None),
    }
}

/// The error for a missing item or key.
pub(crate) fn missing(container: &Value<'_>, index: &Value<'_>) -> Failure {
    match container {
        Value::List(_) => Failure::new(format!("index out of bounds: {index}")),
        _ => Failure::no_such_key(index),
    }
}
