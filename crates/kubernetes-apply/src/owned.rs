//! Owned: the fields that the manager of an applied object owns.

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Node};
use super::list::{Group, grouped};
use super::path_element::PathElement;
use super::place::{Atom, MapAtom, Place};

/// Returns the paths that the manager of an applied object owns.
pub fn owned(place: Place<'_>, object: &Map<String, Value>) -> FieldSet {
    match place.atom(&Value::Null) {
        Atom::Map(atom) => members(atom, object),
        Atom::Scalar(_) | Atom::List(_) => FieldSet::default(),
    }
}

fn value(place: Place<'_>, value: &Value) -> Node {
    match (place.atom(value), value) {
        (Atom::Scalar(_), _) => Node::member(),
        (Atom::List(atom), list) => match (atom.relation, list) {
            (None, _) => Node::member(),
            (Some(relation), Value::Array(list)) => {
                let (groups, _) = grouped(relation, atom.items, list);
                let nodes = groups.into_iter().map(|(element, items)| {
                    let node = match items {
                        Group::One(one) => Node { is_member: true, ..self::value(atom.items, one) },
                        Group::Many(_) => Node::member(),
                    };
                    (element, node)
                });
                Node { is_member: false, children: FieldSet::of(nodes.collect()) }
            }
            (Some(_), _) => Node::default(),
        },
        (Atom::Map(atom), _) if atom.is_atomic => Node::member(),
        (Atom::Map(atom), Value::Object(found)) => {
            Node { is_member: false, children: members(atom, found) }
        }
        (Atom::Map(_), _) => Node::default(),
    }
}

fn members(atom: MapAtom<'_>, found: &Map<String, Value>) -> FieldSet {
    let nodes = found.iter().filter_map(|(name, member)| {
        let mut node = value(atom.member(name)?, member);
        let is_empty = match member {
            Value::Null => true,
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        node.is_member |= is_empty || !atom.declares(name);
        Some((PathElement::field(name), node))
    });
    FieldSet::of(nodes.collect())
}
