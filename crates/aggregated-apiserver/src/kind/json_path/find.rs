//! Evaluates a path.

use std::borrow::Cow;

use serde_json::Value;

use super::compare::is_so;
use super::{Filter, Slice, Step};

/// The number of string bytes that are compared in one step.
const STEP_BYTES: usize = 64;

type Found<'v> = Vec<Cow<'v, Value>>;

/// An error, and whether Kubernetes' library returns values with it: an existence filter checks those.
struct Fault {
    is_something: bool,
}

/// All values that a path finds; `None` after an error, or if the steps do not suffice.
pub(super) fn find<'v>(path: &'v [Step], object: &'v Value, left: &mut usize) -> Option<Found<'v>> {
    let found = walk(path, vec![Cow::Borrowed(object)], left).ok();
    found.filter(|_| *left > 0)
}

fn walk<'v>(path: &'v [Step], from: Found<'v>, left: &mut usize) -> Result<Found<'v>, Fault> {
    path.iter().try_fold(from, |from, step| take(step, from, left))
}

fn take<'v>(step: &'v Step, from: Found<'v>, left: &mut usize) -> Result<Found<'v>, Fault> {
    let fault = |from: &Found<'v>| Fault { is_something: !from.is_empty() };
    let mut found = Found::new();
    // Every visited value and every found value counts as a step.
    *left = left.saturating_sub(from.len());
    match step {
        Step::Field(name) => {
            for value in from {
                if let Some(member) = member(value, name) {
                    found.push(member);
                }
            }
        }
        Step::Slice(slice) => {
            for value in &from {
                let items = match kept(value) {
                    Some(Value::Array(items)) => items,
                    Some(Value::Null) => continue,
                    _ => return Err(fault(&from)),
                };
                let items = part(slice, items).ok_or_else(|| fault(&from))?;
                // An empty slice ends this step of the JSONPath, also for the values that were not searched yet.
                let Some(items) = items else { return Ok(found) };
                let step = slice.step.map_or(Some(1), |step| usize::try_from(step).ok());
                let step = step.filter(|step| *step > 0).ok_or_else(|| fault(&from))?;
                spend(left, items.len());
                if *left > 0 {
                    found.extend(items.iter().step_by(step).map(Cow::Borrowed));
                }
            }
        }
        Step::Union(parts) => {
            for part in parts {
                spend(left, from.len());
                if *left == 0 {
                    break;
                }
                match walk(part, from.clone(), left) {
                    Ok(of_part) => found.extend(of_part),
                    Err(_) => return Err(fault(&from)),
                }
            }
        }
        Step::Wildcard => {
            for value in from.iter().filter_map(kept) {
                all_in(value, left, &mut found);
            }
        }
        Step::Recursive => {
            for value in from.iter().filter_map(kept) {
                descend(value, left, &mut found);
            }
        }
        Step::Filter(filter) => {
            for value in &from {
                let Some(Value::Array(items)) = kept(value) else { return Err(fault(&from)) };
                for item in items {
                    spend(left, 1);
                    if *left == 0 {
                        return Ok(found);
                    }
                    match is_wanted(filter, item, left) {
                        Some(true) => found.push(Cow::Borrowed(item)),
                        Some(false) => {}
                        None => return Err(fault(&from)),
                    }
                }
            }
        }
        Step::Literal(value) => found.push(Cow::Borrowed(value)),
        Step::Keyword => return Err(fault(&from)),
    }
    Ok(found)
}

fn spend(left: &mut usize, steps: usize) {
    *left = left.saturating_sub(steps);
}

/// A value of the object itself, not one that was created during the search.
fn kept<'v>(value: &Cow<'v, Value>) -> Option<&'v Value> {
    match value {
        Cow::Borrowed(value) => Some(value),
        Cow::Owned(_) => None,
    }
}

fn member<'v>(value: Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(Value::Object(members)) => members.get(name).map(Cow::Borrowed),
        _ => None,
    }
}

/// The elements of a slice; `Some(None)` for an empty slice, `None` for an invalid one.
#[allow(clippy::option_option)] // a fault is another thing than nothing
fn part<'v>(slice: &Slice, items: &'v [Value]) -> Option<Option<&'v [Value]>> {
    let length = i64::try_from(items.len()).ok()?;
    let mut from = slice.from.unwrap_or(0);
    let mut until = match slice.is_one {
        true => from.checked_add(1)?,
        false => slice.until.unwrap_or(length),
    };
    if from < 0 {
        from += length;
    }
    if until < 0 || (until == 0 && slice.is_one) {
        until += length;
    }
    if from == until {
        return Some(None);
    }
    let is_within = (0..length).contains(&from) && (0..=length).contains(&until) && from <= until;
    let range = usize::try_from(from).ok()?..usize::try_from(until).ok()?;
    is_within.then(|| Some(items.get(range).unwrap_or_default()))
}

/// All values that a value contains, one level down.
fn all_in<'v>(value: &'v Value, left: &mut usize, found: &mut Found<'v>) {
    let count = match value {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        Value::String(text) => text.len(),
        _ => 0,
    };
    spend(left, count);
    if *left == 0 {
        return;
    }
    match value {
        Value::Object(members) => found.extend(members.values().map(Cow::Borrowed)),
        Value::Array(items) => found.extend(items.iter().map(Cow::Borrowed)),
        Value::String(text) => {
            found.extend(text.bytes().map(|byte| Cow::Owned(Value::from(byte))));
        }
        _ => {}
    }
}

/// Adds a value that contains others, and all such values below it. The depth of stored objects is limited.
fn descend<'v>(value: &'v Value, left: &mut usize, found: &mut Found<'v>) {
    let mut below = Found::new();
    all_in(value, left, &mut below);
    if below.is_empty() || *left == 0 {
        return;
    }
    found.push(Cow::Borrowed(value));
    for value in below.iter().filter_map(kept) {
        descend(value, left, found);
    }
}

/// Whether an element matches a filter; `None` after an error.
fn is_wanted<'v>(filter: &'v Filter, item: &'v Value, left: &mut usize) -> Option<bool> {
    let found = walk(&filter.left, vec![Cow::Borrowed(item)], left);
    let Some((operator, right)) = &filter.right else {
        return Some(match found {
            Ok(found) => !found.is_empty(),
            Err(fault) => fault.is_something,
        });
    };
    // Each operand of a comparison must be a single value. Several values are an error. If there is no value, the
    // comparison is false.
    let found = found.ok()?;
    let [one] = found.as_slice() else { return found.is_empty().then_some(false) };
    let others = walk(right, vec![Cow::Borrowed(item)], left).ok()?;
    let [other] = others.as_slice() else { return others.is_empty().then_some(false) };
    if let (Value::String(one), Value::String(other)) = (&**one, &**other) {
        spend(left, one.len().min(other.len()) / STEP_BYTES);
    }
    is_so(one, operator, other)
}
