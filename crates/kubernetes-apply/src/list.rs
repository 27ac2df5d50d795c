//! The elements of lists: how each element is identified, and how elements are grouped.

use serde_json::Value;

use super::path_element::PathElement;
use super::place::{Atom, Place, Relation};
use crate::error::quote;

/// A list element with the path element that identifies it.
pub struct Keyed<'a> {
    pub element: PathElement,
    pub item: &'a Value,
}

/// Returns the path element that identifies a list element.
///
/// # Errors
/// The reason why the element cannot be identified.
pub fn element_of<'a>(
    relation: Relation<'_>,
    items: Place<'_>,
    item: &'a Value,
) -> Result<Keyed<'a>, String> {
    let element = match relation {
        Relation::Set => of_set(item),
        Relation::Map(keys) => of_map(keys, items, item),
    };
    element.map(|element| Keyed { element, item })
}

fn of_set(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type"),
        Value::Array(_) => Err("not supported: associative list with lists as elements"),
        Value::Null => Err("associative list without keys has an element that's an explicit null"),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Ok(PathElement::Value(item.clone()));
        }
    }
    .map_err(str::to_owned)
}

fn of_map(keys: &[String], items: Place<'_>, item: &Value) -> Result<PathElement, String> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let atom = match items.atom(item) {
        Atom::Map(atom) => Some(atom),
        Atom::Scalar(_) | Atom::List(_) => None,
    };
    let default = |key: &str| atom.and_then(|atom| atom.default_of(key));
    let named = keys.iter().filter_map(|key| {
        let value = members.get(key).cloned().or_else(|| default(key))?;
        Some((key.as_str().into(), value))
    });
    let named: Vec<(Box<str>, Value)> = named.collect();
    if named.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::key(named))
}

/// List elements with the same path element.
pub enum Group<'a> {
    /// A single element.
    One(&'a Value),
    /// Several elements, in the order of the list.
    Many(Vec<&'a Value>),
}

impl<'a> Group<'a> {
    /// Returns the element if there is only one.
    pub fn single(&self) -> Option<&'a Value> {
        match self {
            Self::One(one) => Some(one),
            Self::Many(_) => None,
        }
    }
}

/// Groups the elements of a list by path element, in the order of path elements. Also returns whether every element
/// could be identified.
pub fn grouped<'a>(
    relation: Relation<'_>,
    items: Place<'_>,
    list: &'a [Value],
) -> (Vec<(PathElement, Group<'a>)>, bool) {
    let keyed = |item| element_of(relation, items, item).ok();
    let mut all: Vec<Keyed<'a>> = list.iter().filter_map(keyed).collect();
    let is_whole = all.len() == list.len();
    all.sort_by(|one, other| one.element.cmp(&other.element));
    let mut groups: Vec<(PathElement, Group<'a>)> = Vec::with_capacity(all.len());
    for Keyed { element, item } in all {
        match groups.last_mut() {
            Some((last, Group::Many(items))) if *last == element => items.push(item),
            Some((last, group @ Group::One(_))) if *last == element => {
                let Group::One(first) = *group else { continue };
                *group = Group::Many(vec![first, item]);
            }
            _ => groups.push((element, Group::One(item))),
        }
    }
    (groups, is_whole)
}
