//! Functions of the language itself, and functions of optional values.

use std::cmp::Ordering;

use super::{Invocation, Native};
use crate::ast::operators;
use crate::convert;
use crate::operate::{self, held};
use crate::value::{Failure, Outcome, Value};

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        operators::ADD => |call, all| match all {
            [a, b] => operate::add(a, b, call.meter),
            _ => Err(Failure::no_such_overload()),
        },
        "_-_" => |_, all| binary(all, operate::subtract),
        "_*_" => |_, all| binary(all, operate::multiply),
        "_/_" => |_, all| binary(all, operate::divide),
        "_%_" => |_, all| binary(all, operate::remainder),
        operators::NEGATE => |_, all| unary(all, operate::negate),
        operators::NOT => |_, all| match all {
            [Value::Bool(flag)] => Ok(Value::Bool(!flag)),
            _ => Err(Failure::no_such_overload()),
        },
        "_<_" => |_, all| ordered(all, Ordering::is_lt),
        "_<=_" => |_, all| ordered(all, Ordering::is_le),
        "_>_" => |_, all| ordered(all, Ordering::is_gt),
        "_>=_" => |_, all| ordered(all, Ordering::is_ge),
        operators::IN => |call, all| match all {
            [value, container] => operate::contains(value, container, call.meter).map(Value::Bool),
            _ => Err(Failure::no_such_overload()),
        },
        operators::MAP_INSERT => insert_all,
        // The evaluator implements this function, because an error in the argument does not cause an error.
        operators::NOT_STRICTLY_FALSE => |_, _| Ok(Value::Bool(true)),
        "size" => |_, all| match all {
            [value] => match value.size() {
                Some(size) => Ok(Value::Int(size as i64)),
                None => Err(Failure::no_such_overload()),
            },
            _ => Err(Failure::no_such_overload()),
        },
        "type" => |_, all| match all {
            [value] => Ok(Value::Type(value.type_name().into())),
            _ => Err(Failure::no_such_overload()),
        },
        "dyn" => |_, all| unary(all, |value| Ok(value.clone())),
        "bool" => |_, all| unary(all, convert::to_bool),
        "bytes" => |_, all| unary(all, convert::to_bytes),
        "double" => |_, all| unary(all, convert::to_double),
        "duration" => |_, all| unary(all, convert::to_duration),
        "int" => |_, all| unary(all, convert::to_int),
        "string" => |_, all| unary(all, convert::to_string),
        "timestamp" => |_, all| unary(all, convert::to_timestamp),
        "uint" => |_, all| unary(all, convert::to_uint),
        "optional.of" => |_, all| unary(all, |value| Ok(Value::optional(value.clone()))),
        "optional.ofNonZeroValue" => |_, all| {
            unary(all, |value| {
                Ok(if is_zero(value) {
                    Value::Optional(None)
                } else {
                    Value::optional(value.clone())
                })
            })
        },
        "optional.none" => |_, _| Ok(Value::Optional(None)),
        "hasValue" => |_, all| match all {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(not_optional("hasValue", all)),
        },
        "value" => |_, all| match all {
            [Value::Optional(Some(value))] => held(value),
            [Value::Optional(None)] => Err(Failure::new("optional.none() dereference")),
            _ => Err(not_optional("value", all)),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap_all,
        _ => return None,
    })
}

/// The error of functions whose message contains the types of the arguments.
fn not_optional(function: &str, all: &[Value<'_>]) -> Failure {
    let types: Vec<&str> = all.iter().map(Value::type_name).collect();
    Failure::new(format!("no such overload: {function}({})", types.join(", ")))
}

fn unary<'v>(all: &[Value<'v>], of: impl Fn(&Value<'v>) -> Outcome<'v>) -> Outcome<'v> {
    match all {
        [value] => of(value),
        _ => Err(Failure::no_such_overload()),
    }
}

fn binary<'v>(
    all: &[Value<'v>],
    of: impl Fn(&Value<'v>, &Value<'v>) -> Outcome<'v>,
) -> Outcome<'v> {
    match all {
        [one, other] => of(one, other),
        _ => Err(Failure::no_such_overload()),
    }
}

fn ordered<'v>(all: &[Value<'v>], is: fn(Ordering) -> bool) -> Outcome<'v> {
    match all {
        [one, other] => match operate::order(one, other)? {
            Some(order) => Ok(Value::Bool(is(order))),
            None => Err(Failure::new("NaN values cannot be ordered")),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) | Value::Duration(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Optional(value) => value.is_none(),
        Value::Timestamp(moment) => moment.is_first(),
        other => other.size() == Some(0),
    }
}

fn unwrap_all<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::List(list)] = all else { return Err(Failure::no_such_overload()) };
    call.meter.work(list.len())?;
    let mut values = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(Failure::new(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(values))
}

/// Merges two maps. A key in both maps is an error.
fn insert_all<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    use crate::value::{Entries, Map};
    let [Value::Map(into), Value::Map(from)] = all else {
        return Err(Failure::no_such_overload());
    };
    call.meter.work(into.len() + from.len())?;
    let mut entries = match into {
        Map::Own(entries) => (**entries).clone(),
        Map::Json(..) => Entries::new(),
    };
    for given in from.keys() {
        let key = given.key().ok_or_else(Failure::no_such_overload)?;
        if entries.contains_key(&key) {
            return Err(Failure::new(format!("insert failed: key {given} already exists")));
        }
        let value = from.find(&given)?.unwrap_or(Value::Null);
        entries.insert(key, (given, value));
    }
    Ok(Value::Map(Map::own(entries)))
}
