//! Functions of lists and of sets.

use std::cmp::Ordering;

use super::{Invocation, Native};
use crate::ast::operators;
use crate::operate::{add, contains, equal, order};
use crate::value::{Failure, List, Outcome, Value};

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "max" => |call, all| extreme(call, all, "max", Ordering::Greater),
        "min" => |call, all| extreme(call, all, "min", Ordering::Less),
        "slice" => slice,
        "flatten" => flatten,
        "sort" => sort,
        operators::SORT_BY_KEYS => sort_by_keys,
        "lists.range" => |call, all| match all {
            [Value::Int(count)] => {
                let count = usize::try_from(*count).unwrap_or_default();
                call.meter.work(count)?;
                call.meter.make_list(count)?;
                Ok(Value::list((0..count).map(|at| Value::Int(at as i64)).collect()))
            }
            _ => Err(Failure::no_such_overload()),
        },
        "reverse" => |call, all| {
            let mut items = items(call, all)?;
            items.reverse();
            Ok(Value::list(items))
        },
        "distinct" => distinct,
        "first" => |_, all| end(all, |_| 0),
        "last" => |_, all| end(all, |length| length - 1),
        "sets.contains" => |call, all| match all {
            [set, Value::List(part)] => contains_all(call, set, part).map(Value::Bool),
            _ => Err(Failure::no_such_overload()),
        },
        "sets.equivalent" => |call, all| match all {
            [Value::List(one), Value::List(other)] => Ok(Value::Bool(
                contains_all(call, &all[0], other)? && contains_all(call, &all[1], one)?,
            )),
            _ => Err(Failure::no_such_overload()),
        },
        "sets.intersects" => |call, all| match all {
            [Value::List(one), other] => {
                for item in one.iter() {
                    if contains(&item?, other, call.meter)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            _ => Err(Failure::no_such_overload()),
        },
        _ => return None,
    })
}

/// The items of the only argument.
fn items<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Result<Vec<Value<'v>>, Failure> {
    match all {
        [Value::List(list)] => {
            call.meter.work(list.len())?;
            list.items()
        }
        _ => Err(Failure::no_such_overload()),
    }
}

/// The index of a value in a list; -1 if the list does not contain it.
pub(super) fn index_of<'v>(
    call: &mut Invocation<'_>,
    list: &List<'v>,
    value: &Value<'v>,
    is_last: bool,
) -> Outcome<'v> {
    let mut found = -1;
    for (at, item) in list.iter().enumerate() {
        if equal(&item?, value, call.meter)? {
            found = at as i64;
            if !is_last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn compare(one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, Failure> {
    order(one, other).map(|order| order.unwrap_or(Ordering::Equal))
}

fn is_sorted<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let items = items(call, all)?;
    for pair in items.windows(2) {
        if compare(&pair[0], &pair[1])?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let items = items(call, all)?;
    let mut sum = match call.overload {
        "list_uint_sum_uint" => Value::Uint(0),
        "list_double_sum_double" => Value::Double(0.0),
        "list_duration_sum_duration" => Value::Duration(0),
        "list_int_sum_int" => Value::Int(0),
        // If the overload does not determine the type of the sum, the first item does.
        _ => match items.first() {
            Some(Value::Uint(_)) => Value::Uint(0),
            Some(Value::Double(_)) => Value::Double(0.0),
            Some(Value::Duration(_)) => Value::Duration(0),
            _ => Value::Int(0),
        },
    };
    for item in &items {
        sum = add(&sum, item, call.meter)?;
    }
    Ok(sum)
}

fn extreme<'v>(
    call: &mut Invocation<'_>,
    all: &[Value<'v>],
    name: &str,
    wanted: Ordering,
) -> Outcome<'v> {
    let mut items = items(call, all)?.into_iter();
    let Some(mut extreme) = items.next() else {
        return Err(Failure::new(format!("{name} called on empty list")));
    };
    for item in items {
        if compare(&item, &extreme)? == wanted {
            extreme = item;
        }
    }
    Ok(extreme)
}

fn slice<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = all else {
        return Err(Failure::no_such_overload());
    };
    let wrong = |why: &str| Err(Failure::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return wrong("negative indexes not supported");
    };
    if from > to {
        return wrong("start index must be less than or equal to end index");
    }
    if to > list.len() {
        return wrong(&format!("list is length {}", list.len()));
    }
    call.meter.work(to - from)?;
    let items = (from..to).filter_map(|at| list.get(at)).collect::<Result<_, _>>()?;
    Ok(Value::list(items))
}

fn flatten<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (list, depth) = match all {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(Failure::no_such_overload()),
    };
    if depth < 0 {
        return Err(Failure::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(call, list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'v>(
    call: &mut Invocation<'_>,
    list: &List<'v>,
    depth: i64,
    into: &mut Vec<Value<'v>>,
) -> Result<(), Failure> {
    for item in list.iter() {
        call.meter.work(1)?;
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(call, &inner, depth - 1, into)?,
            other => into.push(other),
        }
    }
    Ok(())
}

/// Sorts pairs by their first value. The sort is stable.
fn sorted<'v>(
    mut pairs: Vec<(Value<'v>, Value<'v>)>,
) -> Result<Vec<(Value<'v>, Value<'v>)>, Failure> {
    for pair in pairs.windows(2) {
        let names = (pair[0].0.type_name(), pair[1].0.type_name());
        if names.0 != names.1 {
            return Err(Failure::new("list elements must have the same type"));
        }
        compare(&pair[0].0, &pair[1].0)?;
    }
    pairs.sort_by(|(one, _), (other, _)| compare(one, other).unwrap_or(Ordering::Equal));
    Ok(pairs)
}

fn sort<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let items = items(call, all)?;
    let pairs = items.into_iter().map(|item| (item, Value::Null)).collect();
    Ok(Value::list(sorted(pairs)?.into_iter().map(|(item, _)| item).collect()))
}

fn sort_by_keys<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::List(list), Value::List(keys)] = all else {
        return Err(Failure::no_such_overload());
    };
    if list.len() != keys.len() {
        let (given, expected) = (keys.len(), list.len());
        let message = format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {expected} and {given} elements respectively"
        );
        return Err(Failure::new(message));
    }
    call.meter.work(2 * list.len())?;
    let pairs = keys.items()?.into_iter().zip(list.items()?).collect();
    Ok(Value::list(sorted(pairs)?.into_iter().map(|(_, item)| item).collect()))
}

fn distinct<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let mut kept: Vec<Value<'v>> = Vec::new();
    'items: for item in items(call, all)? {
        for known in &kept {
            if equal(&item, known, call.meter)? {
                continue 'items;
            }
        }
        kept.push(item);
    }
    Ok(Value::list(kept))
}

fn end<'v>(all: &[Value<'v>], of: fn(usize) -> usize) -> Outcome<'v> {
    match all {
        [Value::List(list)] if list.len() == 0 => Ok(Value::Optional(None)),
        [Value::List(list)] => match list.get(of(list.len())) {
            Some(item) => item.map(Value::optional),
            None => Ok(Value::Optional(None)),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn contains_all<'v>(
    call: &mut Invocation<'_>,
    set: &Value<'v>,
    part: &List<'v>,
) -> Result<bool, Failure> {
    for item in part.iter() {
        if !contains(&item?, set, call.meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}
