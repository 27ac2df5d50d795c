//! Reconcile: adapts a set of fields to a type that has changed since the set was recorded.
//!
//! If a value was split into fields and is now one value, each manager of a part owns the whole value.

use super::field_set::{FieldSet, Node};
use super::path_element::PathElement;
use super::place::Place;

/// Returns the set adapted to the current type.
#[must_use]
pub fn reconcile(place: Place<'_>, set: FieldSet) -> FieldSet {
    let Some((map, list)) = place.taken_apart() else { return set };
    let nodes = set.into_nodes().map(|(element, node)| {
        let below = match &element {
            PathElement::Field(name) => map.and_then(|map| map.member(name)),
            _ => list.map(|list| list.items),
        };
        let node = match below {
            Some(below) if !node.children.is_empty() => match below.is_one_value() {
                true => Node::member(),
                false => {
                    Node { is_member: node.is_member, children: reconcile(below, node.children) }
                }
            },
            _ => node,
        };
        (element, node)
    });
    FieldSet::of(nodes.collect())
}
