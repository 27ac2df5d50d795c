//! Reconcile: a set of fields becomes one of a type that has changed since.
//!
//! What was taken apart and is one value now belongs to whoever owned a part of it.

use super::field_set::{FieldSet, Node};
use super::path_element::PathElement;
use super::place::Place;

/// The set as the type is now.
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
