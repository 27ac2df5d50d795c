//! Unchanged: detects an apply that changes nothing. Most applied objects were applied before, and then no merge is
//! needed.

use serde_json::{Map, Value};

use super::list::{element_of, grouped};
use super::place::{Atom, ListAtom, MapAtom, Place, Relation};
use super::value::{SAME_DEPTH, are_equal};

/// Whether an apply certainly does not change the live object. If this is false, [`merge`](super::merge::merge)
/// computes the result.
pub fn is_unchanged(
    place: Place<'_>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
) -> bool {
    match place.atom(&Value::Null) {
        Atom::Map(atom) => members(atom, live, applied, 0),
        Atom::Scalar(_) | Atom::List(_) => false,
    }
}

fn value(place: Place<'_>, live: &Value, applied: &Value, depth: usize) -> bool {
    if depth <= SAME_DEPTH && live == applied {
        return true;
    }
    match (place.atom(applied), live, applied) {
        (Atom::List(ListAtom { relation: Some(relation), items, .. }), live, applied) => {
            match (live, applied) {
                (Value::Array(live), Value::Array(applied)) => {
                    list((relation, items), live, applied, depth)
                }
                _ => false,
            }
        }
        (Atom::Map(atom), Value::Object(live), Value::Object(applied))
            if !atom.is_atomic && !applied.is_empty() && !live.is_empty() =>
        {
            members(atom, live, applied, depth)
        }
        (Atom::Scalar(_) | Atom::List(_) | Atom::Map(_), live, applied) => are_equal(live, applied),
    }
}

fn members(
    atom: MapAtom<'_>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
    depth: usize,
) -> bool {
    applied.iter().all(|(name, applied)| {
        let (place, live) = (atom.member(name), live.get(name));
        matches!((place, live), (Some(place), Some(live)) if value(place, live, applied, depth + 1))
    })
}

/// Whether the live list has the same elements in the same order, and the apply changes none of them.
fn list(
    (relation, items): (Relation<'_>, Place<'_>),
    live: &[Value],
    applied: &[Value],
    depth: usize,
) -> bool {
    if live.len() != applied.len() {
        return false;
    }
    let (told_apart, is_whole) = grouped(relation, items, applied);
    if !is_whole || told_apart.len() != applied.len() {
        return false;
    }
    let element = |item| element_of(relation, items, item).ok().map(|keyed| keyed.element);
    live.iter().zip(applied).all(|(live, applied)| {
        depth < SAME_DEPTH && live == applied
            || element(live).is_some_and(|one| element(applied) == Some(one))
                && value(items, live, applied, depth + 1)
    })
}
