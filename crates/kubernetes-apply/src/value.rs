//! Comparison of values for field ownership: numbers are compared by value, not by notation.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Number, Value};

use crate::error::{go_float, quote};

/// The depth down to which walks first test whether two values are exactly equal, as most values are. At greater depth,
/// this test would compare the same values too often.
pub const SAME_DEPTH: usize = 8;

/// Compares values in this order: numbers, strings, `false`, `true`, lists, objects, null.
pub fn compare_values(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => compare_lists(one, other),
        (Value::Object(one), Value::Object(other)) => compare_maps(one, other),
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Whether two values are equal.
pub fn are_equal(one: &Value, other: &Value) -> bool {
    compare_values(one, other).is_eq()
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one.partial_cmp(&other).unwrap_or(Ordering::Equal),
            _ => Ordering::Equal,
        },
    }
}

fn compare_lists(one: &[Value], other: &[Value]) -> Ordering {
    let mut pairs = one.iter().zip(other).map(|(one, other)| compare_values(one, other));
    pairs.find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

fn compare_maps(one: &Map<String, Value>, other: &Map<String, Value>) -> Ordering {
    let pairs = sorted(one).zip(sorted(other));
    let mut orders = pairs.map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare_values(x, y)));
    orders.find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

/// Returns the fields in the order of their names. They are in this order already, unless the build selects another
/// order for `serde_json`.
fn sorted(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let is_sorted = members.keys().is_sorted();
    let mut others: Vec<(&String, &Value)> =
        if is_sorted { Vec::new() } else { members.iter().collect() };
    others.sort_unstable_by_key(|(name, _)| *name);
    members.iter().filter(move |_| is_sorted).chain(others)
}

/// Whether two objects are equal.
pub fn are_same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.len() == other.len()
        && one.iter().all(|(name, x)| other.get(name).is_some_and(|y| are_equal(x, y)))
}

/// Writes a value in the format of paths in messages.
pub(super) fn write_shown(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::String(text) => f.write_str(&quote(text)),
        Value::Null => f.write_str("null"),
        Value::Bool(is) => write!(f, "{is}"),
        Value::Number(number) => write_number(f, number),
        Value::Array(items) => {
            f.write_str("[")?;
            for (index, item) in items.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { "," })?;
                write_shown(f, item)?;
            }
            f.write_str("]")
        }
        Value::Object(members) => {
            for (name, member) in members {
                write!(f, "{name}=")?;
                write_shown(f, member)?;
            }
            Ok(())
        }
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, number: &Number) -> fmt::Result {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) => f.write_str(&go_float(float)),
        _ => write!(f, "{number}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_an_order() {
        let ordered = [
            json!(-1),
            json!(1.5),
            json!(2),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([1]),
            json!([1, 2]),
            json!({"a": 1}),
            json!({"a": 2}),
            json!({"b": 0}),
            json!(null),
        ];
        for (index, one) in ordered.iter().enumerate() {
            for (place, other) in ordered.iter().enumerate() {
                assert_eq!(compare_values(one, other), index.cmp(&place), "{one} {other}");
            }
        }
        let (one, other) =
            (json!({"a": 1, "b": {"c": 2, "d": 3}}), json!({"b": {"d": 3, "c": 2}, "a": 1}));
        assert!(are_equal(&one, &other));
        assert!(are_equal(&json!(80), &json!(80.0)));
        assert!(are_equal(&json!(0), &json!(-0.0)));
        assert!(!are_equal(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
    }
}
