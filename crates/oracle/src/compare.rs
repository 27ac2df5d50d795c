//! The comparison of two normalized responses.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::row::KnownDifference;

/// The first difference between two responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, for example `body.items[0].spec`.
    pub path: String,
    /// The value in the response of the reference server; `None` if it has none.
    pub reference: Option<Value>,
    /// The value in the response of the other server; `None` if it has none.
    pub other: Option<Value>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The first unknown difference.
    pub difference: Option<Difference>,
    /// Known differences that no longer occur.
    pub outdated: Vec<KnownDifference>,
}

/// Compares two responses, except for the known differences.
pub fn compare(
    mut reference: Value,
    mut other: Value,
    known: &[KnownDifference],
) -> Result<Compared> {
    let mut compared = Compared::default();
    for difference in known {
        let steps = steps(&difference.path)?;
        let (mut there, mut here) = (Vec::new(), Vec::new());
        take(&mut reference, &steps, &mut there);
        take(&mut other, &steps, &mut here);
        if there == here {
            compared.outdated.push(difference.clone());
        }
    }
    compared.difference = first_difference(String::new(), Some(&reference), Some(&other));
    Ok(compared)
}

enum Step {
    Member(String),
    Item(usize),
    AnyItem,
    /// Elements whose field has this value.
    ItemsWith(String, String),
}

fn steps(path: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let mut parts = part.split('[');
        steps.extend(parts.next().filter(|name| !name.is_empty()).map(|n| Step::Member(n.into())));
        for item in parts {
            let index = item.strip_suffix(']').with_context(|| format!("{path}: [ without ]"))?;
            steps.push(match index {
                "*" => Step::AnyItem,
                with if with.contains('=') => {
                    let (key, value) = with.split_once('=').unwrap_or_default();
                    Step::ItemsWith(key.to_owned(), value.to_owned())
                }
                index => Step::Item(index.parse().with_context(|| path.to_owned())?),
            });
        }
    }
    Ok(steps)
}

/// Removes the values at a path and appends them to `taken`.
fn take(value: &mut Value, steps: &[Step], taken: &mut Vec<Value>) {
    let Some((step, rest)) = steps.split_first() else {
        taken.push(value.take());
        return;
    };
    match (step, value) {
        (Step::Member(name), Value::Object(members)) if rest.is_empty() => {
            taken.extend(members.remove(name));
        }
        (Step::Member(name), Value::Object(members)) => {
            if let Some(member) = members.get_mut(name) {
                take(member, rest, taken);
            }
        }
        (Step::Item(index), Value::Array(items)) => {
            if let Some(item) = items.get_mut(*index) {
                take(item, rest, taken);
            }
        }
        (Step::ItemsWith(key, value), Value::Array(items)) => {
            let has = |item: &Value| item[key] == value.as_str();
            if rest.is_empty() {
                taken.extend(items.iter().filter(|item| has(item)).cloned());
                items.retain(|item| !has(item));
            } else {
                items.iter_mut().filter(|item| has(item)).for_each(|item| take(item, rest, taken));
            }
        }
        (Step::AnyItem, Value::Array(items)) => {
            items.iter_mut().for_each(|item| take(item, rest, taken));
        }
        _ => {}
    }
}

fn first_difference(
    path: String,
    reference: Option<&Value>,
    other: Option<&Value>,
) -> Option<Difference> {
    match (reference, other) {
        (Some(Value::Object(there)), Some(Value::Object(here))) => {
            let keys: std::collections::BTreeSet<&String> =
                there.keys().chain(here.keys()).collect();
            keys.into_iter().find_map(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                first_difference(path, there.get(key), here.get(key))
            })
        }
        (Some(Value::Array(there)), Some(Value::Array(here))) => (0..there.len().max(here.len()))
            .find_map(|index| {
                first_difference(format!("{path}[{index}]"), there.get(index), here.get(index))
            }),
        (there, here) if there == here => None,
        (there, here) => Some(Difference { path, reference: there.cloned(), other: here.cloned() }),
    }
}

impl Difference {
    /// Formats the difference as text.
    pub fn to_text(&self, reference: &str, other: &str) -> String {
        let show = |value: &Option<Value>| match value {
            None => "(nothing)".to_owned(),
            Some(value) => value.to_string(),
        };
        let mut text = format!("they part at {}\n", self.path);
        let width = reference.len().max(other.len());
        let _ = writeln!(text, "  {reference:width$}  {}", show(&self.reference));
        let _ = writeln!(text, "  {other:width$}  {}", show(&self.other));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known(path: &str) -> KnownDifference {
        KnownDifference { path: path.to_owned(), reason: "because".to_owned(), status: None }
    }

    #[test]
    fn a_difference_is_reported_with_its_path() {
        let check = |there: Value, here: Value, expected: Option<&str>| {
            let compared = compare(there, here, &[]).unwrap();
            assert_eq!(compared.difference.map(|d| d.path).as_deref(), expected);
        };
        check(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 2}]}), None);
        check(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), Some("a[1].b"));
        check(json!({"a": [1]}), json!({"a": [1, 2]}), Some("a[1]"));
        check(json!({"a": null}), json!({}), Some("a"));
    }

    #[test]
    fn known_differences_are_ignored_and_outdated_ones_are_reported() {
        let there = json!({"status": 200, "body": {"items": [{"a": 1}, {"a": 2}]}});
        let here = json!({"status": 200, "body": {"items": [{"a": 3}, {"a": 4}]}});
        let with = [known("body.items[a=x]")];
        let more = json!({"body": {"items": [{"a": "x"}, {"a": "y"}]}});
        let fewer = json!({"body": {"items": [{"a": "y"}]}});
        assert_eq!(compare(more, fewer, &with).unwrap(), Compared::default());
        let all = compare(there.clone(), here.clone(), &[known("body.items[*].a")]).unwrap();
        assert_eq!(all, Compared::default());
        let one = compare(there.clone(), here.clone(), &[known("body.items[0].a")]).unwrap();
        assert_eq!(one.difference.unwrap().path, "body.items[1].a");
        assert_eq!(compare(there.clone(), here, &[known("")]).unwrap(), Compared::default());
        let none = compare(there.clone(), there, &[known("body.items"), known("x.y")]).unwrap();
        assert_eq!(none.outdated, [known("body.items"), known("x.y")]);
        assert!(compare(json!({}), json!({}), &[known("a[x]")]).is_err());
    }
}
