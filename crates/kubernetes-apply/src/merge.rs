//! Merge: combines the live object and an applied object. A merge removes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::list::element_of;
use super::path_element::PathElement;
use super::place::{Atom, ListAtom, MapAtom, Place, Relation};
use super::value::SAME_DEPTH;

/// Returns the live object with the fields of the applied object.
///
/// # Errors
/// If an element of a list cannot be identified, or if a field is not declared.
pub fn merge(
    place: Place<'_>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    match place.atom(&Value::Null) {
        Atom::Map(atom) => Ok(members(atom, Some(live), Some(applied), 0)?.unwrap_or_default()),
        Atom::Scalar(_) | Atom::List(_) => Ok(applied.clone()),
    }
}

/// Merges two values. Returns `None` if there is no value, or if the result is empty.
fn value(
    place: Place<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
    depth: usize,
) -> Result<Option<Value>, String> {
    // The applied value determines the structure.
    let Some(deciding) = applied.or(live) else { return Ok(None) };
    let leaf = || Ok(Some(deciding.clone()));
    if depth <= SAME_DEPTH && live == applied {
        return leaf();
    }
    match place.atom(deciding) {
        Atom::Scalar(_) => leaf(),
        Atom::List(atom) => {
            let Some(relation) = atom.relation else { return leaf() };
            match (list(live), list(applied)) {
                ([], []) => leaf(),
                (live, applied) => {
                    let merged = items(atom, relation, (live, applied), depth)?;
                    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
                }
            }
        }
        Atom::Map(atom) => match (map(live), map(applied)) {
            _ if atom.is_atomic => leaf(),
            (None, None) => leaf(),
            (live, applied) => Ok(members(atom, live, applied, depth)?.map(Value::Object)),
        },
    }
}

/// Returns the elements of a list; none for any other value.
fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the fields of an object that is not empty.
fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|members| !members.is_empty())
}

fn members(
    atom: MapAtom<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
    depth: usize,
) -> Result<Option<Map<String, Value>>, String> {
    let mut merged = Map::new();
    let mut member = |name: &String, live: Option<&Value>, applied: Option<&Value>| {
        let Some(place) = atom.member(name) else {
            return Err(format!(".{name}: field not declared in schema"));
        };
        if let Some(member) = value(place, live, applied, depth + 1)? {
            merged.insert(name.clone(), member);
        }
        Ok(())
    };
    for (name, before) in live.into_iter().flatten() {
        member(name, Some(before), applied.and_then(|applied| applied.get(name)))?;
    }
    for (name, after) in applied.into_iter().flatten() {
        if live.is_none_or(|live| !live.contains_key(name)) {
            member(name, None, Some(after))?;
        }
    }
    Ok((!merged.is_empty()).then_some(merged))
}

/// Merges two lists. Elements of both lists are in the order of the applied list. Elements of the live list alone stay
/// next to their neighbors.
fn items(
    atom: ListAtom<'_>,
    relation: Relation<'_>,
    (live, applied): (&[Value], &[Value]),
    depth: usize,
) -> Result<Vec<Value>, String> {
    let keyed = |item: &'_ Value| element_of(relation, atom.items, item).map(|keyed| keyed.element);
    let left: Vec<PathElement> = live.iter().map(keyed).collect::<Result<_, _>>()?;
    let right: Vec<PathElement> = applied.iter().map(keyed).collect::<Result<_, _>>()?;
    // The live elements by path element. Elements that occur twice are merged as null.
    let mut there: BTreeMap<&PathElement, Vec<&Value>> = BTreeMap::new();
    for (element, item) in left.iter().zip(live) {
        there.entry(element).or_default().push(item);
    }
    let wanted: BTreeSet<&PathElement> = right.iter().collect();
    let mut shared = right.iter().filter(|element| there.contains_key(element)).peekable();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let merge_item = |element: &PathElement, item: &Value| {
        let before = there.get(element).map(Vec::as_slice);
        let null = Value::Null;
        let before = match before {
            None => None,
            Some([one]) => Some(*one),
            Some(_) => Some(&null),
        };
        value(atom.items, before, Some(item), depth + 1)
    };
    let (mut i, mut j) = (0, 0);
    while i < live.len() || j < applied.len() {
        if i < live.len() && j < applied.len() && left[i] == right[j] {
            merged.extend(merge_item(&right[j], &applied[j])?);
            done.insert(&right[j]);
            (i, j) = (i + 1, j + 1);
            shared.next();
            continue;
        }
        if i < live.len() && j < applied.len() && wanted.contains(&left[i]) {
            // The element is inserted at its position in the applied list.
            if shared.peek().is_some_and(|next| **next != left[i]) {
                i += 1;
                continue;
            }
        }
        if i < live.len() {
            if !wanted.contains(&left[i]) {
                merged.push(live[i].clone());
                i += 1;
                continue;
            }
            if done.contains(&left[i]) {
                i += 1;
            }
        }
        if j < applied.len() {
            merged.extend(merge_item(&right[j], &applied[j])?);
            done.insert(&right[j]);
            if shared.peek().is_some_and(|next| **next == right[j]) {
                shared.next();
            }
            j += 1;
        }
    }
    Ok(merged)
}
