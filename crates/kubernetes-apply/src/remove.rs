//! Remove: removes fields from an object.

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Node};
use super::list::element_of;
use super::path_element::PathElement;
use super::place::{Atom, MapAtom, Place};

/// Returns an object without these fields and list elements. A map or list that loses everything, and was not removed
/// itself, becomes null, as in kube-apiserver.
pub fn remove(
    place: Place<'_>,
    object: &Map<String, Value>,
    removed: &FieldSet,
) -> Map<String, Value> {
    match place.atom(&Value::Null) {
        Atom::Map(atom) => members(atom, object, removed).unwrap_or_default(),
        Atom::Scalar(_) | Atom::List(_) => object.clone(),
    }
}

fn value(place: Place<'_>, found: &Value, removed: &FieldSet) -> Value {
    match (place.atom(found), found) {
        (Atom::Scalar(_), found) => found.clone(),
        (Atom::List(atom), Value::Array(list)) if !list.is_empty() => {
            let Some(relation) = atom.relation else { return Value::Null };
            let left = list.iter().filter_map(|item| {
                let Ok(keyed) = element_of(relation, atom.items, item) else {
                    return Some(item.clone());
                };
                kept(atom.items, item, removed.get(&keyed.element))
            });
            let left: Vec<Value> = left.collect();
            if left.is_empty() { Value::Null } else { left.into() }
        }
        (Atom::Map(atom), Value::Object(found)) if !found.is_empty() && !atom.is_atomic => {
            members(atom, found, removed).map_or(Value::Null, Value::Object)
        }
        _ => Value::Null,
    }
}

/// Returns the remaining fields; `None` if no field remains.
fn members(
    atom: MapAtom<'_>,
    found: &Map<String, Value>,
    removed: &FieldSet,
) -> Option<Map<String, Value>> {
    let left = found.iter().filter_map(|(name, member)| {
        let place = atom.member(name).unwrap_or(Place::Untyped);
        let member = kept(place, member, removed.field(name))?;
        Some((name.clone(), member))
    });
    let left: Map<String, Value> = left.collect();
    (!left.is_empty()).then_some(left)
}

fn kept(place: Place<'_>, found: &Value, removed: Option<&Node>) -> Option<Value> {
    match removed {
        Some(removed) if removed.is_member => None,
        Some(removed) if !removed.children.is_empty() => {
            Some(value(place, found, &removed.children))
        }
        _ => Some(found.clone()),
    }
}

/// Returns the set with all declared fields that are parents of its paths.
#[must_use]
pub fn with_declared_parents(place: Place<'_>, set: FieldSet) -> FieldSet {
    with_parents(Some(place), set)
}

fn with_parents(place: Option<Place<'_>>, set: FieldSet) -> FieldSet {
    let (map, list) = match place {
        Some(place) => place.containers(),
        None => (None, None),
    };
    let nodes = set.into_nodes().map(|(element, node)| {
        let (is_declared, below) = match &element {
            PathElement::Field(name) => {
                (map.is_some_and(|map| map.declares(name)), map.and_then(|map| map.member(name)))
            }
            _ => (false, list.map(|list| list.items)),
        };
        let is_parent = is_declared && !node.children.is_empty();
        let children = with_parents(below, node.children);
        (element, Node { is_member: node.is_member || is_parent, children })
    });
    FieldSet::of(nodes.collect())
}
