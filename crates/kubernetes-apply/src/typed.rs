//! Typed: whether a value is what its type says, as far as managers of fields must know.
//!
//! An applied object is held against this before anything is merged. Validation of what is
//! kept comes later, and says more.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::list::{Keyed, element_of};
use super::place::{Atom, ListAtom, MapAtom, Place, Relation, Scalar};
use super::value::SAME_DEPTH;
use crate::error::{go_value, joined, quote};

/// At most this many faults of one object are told.
const FAULTS_LIMIT: usize = 100;
/// At most this many bytes of a value are shown.
const SHOWN: usize = 1 << 10;

/// Holds an object against its type.
///
/// # Errors
/// All that is wrong with it, in the words of kube-apiserver.
pub fn check(place: Place<'_>, object: &Map<String, Value>) -> Result<(), String> {
    faults_of(place, object, None, true)
}

/// The same of an object that may have items twice.
///
/// # Errors
/// All that is wrong with it.
pub fn check_loosely(place: Place<'_>, object: &Map<String, Value>) -> Result<(), String> {
    faults_of(place, object, None, false)
}

/// The same of what is not as in another object, against which nothing was said.
///
/// # Errors
/// All that is wrong with it.
pub fn check_loosely_beside(
    place: Place<'_>,
    object: &Map<String, Value>,
    checked: &Map<String, Value>,
) -> Result<(), String> {
    faults_of(place, object, Some(checked), false)
}

/// Whether a value is what the type of its place says, but for what is as in another one, against
/// which nothing was said.
pub(super) fn fits(place: Place<'_>, found: &Value, checked: Option<&Value>) -> bool {
    let mut faults = Faults { all: Vec::new(), are_items_once: false };
    value(place, found, checked, &Path::ROOT, &mut faults);
    faults.all.is_empty()
}

fn faults_of(
    place: Place<'_>,
    object: &Map<String, Value>,
    checked: Option<&Map<String, Value>>,
    are_items_once: bool,
) -> Result<(), String> {
    let mut faults = Faults { all: Vec::new(), are_items_once };
    match place.atom(&Value::Null) {
        Atom::Map(atom) => members(atom, object, checked, Path::ROOT, &mut faults),
        Atom::Scalar(_) | Atom::List(_) => {}
    }
    match faults.all.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(many.iter().fold("errors:".to_owned(), |text, one| format!("{text}\n  {one}"))),
    }
}

/// Where a value stands. It is written down only if something is wrong there.
#[derive(Clone, Copy)]
struct Path<'p> {
    depth: usize,
    step: Step<'p>,
    before: Option<&'p Path<'p>>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Member(&'p str),
    Index(usize),
    Item(Relation<'p>, Place<'p>, &'p Value),
}

impl Path<'_> {
    const ROOT: Path<'static> = Path { depth: 0, step: Step::Root, before: None };
}

impl<'p> Path<'p> {
    fn then<'q>(&'q self, step: Step<'q>) -> Path<'q>
    where
        'p: 'q,
    {
        Path { depth: self.depth + 1, step, before: Some(self) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before {
            write!(f, "{before}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Member(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Item(relation, items, item) => match element_of(relation, items, item) {
                Ok(Keyed { element, .. }) => write!(f, "{element}"),
                Err(_) => Ok(()),
            },
        }
    }
}

struct Faults {
    all: Vec<String>,
    are_items_once: bool,
}

impl Faults {
    fn add(&mut self, path: &Path<'_>, what: &str) {
        if self.all.len() < FAULTS_LIMIT {
            let path = path.to_string();
            self.all.push(if path.is_empty() {
                what.to_owned()
            } else {
                format!("{path}: {what}")
            });
        }
    }
}

fn value(
    place: Place<'_>,
    found: &Value,
    checked: Option<&Value>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    if path.depth <= SAME_DEPTH && checked == Some(found) {
        return;
    }
    match (place.atom(found), found) {
        (_, Value::Null) => {}
        (Atom::Scalar(scalar), found) => {
            if let Some(what) = unfit(scalar, found) {
                faults.add(path, &what);
            }
        }
        (Atom::List(atom), Value::Array(found)) => {
            items(atom, found, checked.and_then(Value::as_array), path, faults);
        }
        (Atom::List(_), found) => faults.add(path, &format!("expected list, got {}", boxed(found))),
        (Atom::Map(atom), Value::Object(found)) => {
            members(atom, found, checked.and_then(Value::as_object), *path, faults);
        }
        (Atom::Map(_), found) => faults.add(path, &format!("expected map, got {}", boxed(found))),
    }
}

fn members(
    atom: MapAtom<'_>,
    found: &Map<String, Value>,
    checked: Option<&Map<String, Value>>,
    path: Path<'_>,
    faults: &mut Faults,
) {
    for (name, member) in found {
        let path = path.then(Step::Member(name));
        let checked = checked.and_then(|checked| checked.get(name));
        match atom.member(name) {
            Some(place) => value(place, member, checked, &path, faults),
            None => {
                faults.add(&path, "field not declared in schema");
                return;
            }
        }
    }
}

fn items(
    atom: ListAtom<'_>,
    found: &[Value],
    checked: Option<&Vec<Value>>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    let mut seen = BTreeSet::new();
    for (index, item) in found.iter().enumerate() {
        let step = match atom.relation {
            None => Step::Index(index),
            Some(relation) => match element_of(relation, atom.items, item) {
                Ok(Keyed { element, .. }) => {
                    if faults.are_items_once && seen.contains(&element) {
                        let what = format!("duplicate entries for key {element}");
                        faults.add(path, &what);
                    }
                    if faults.are_items_once {
                        seen.insert(element);
                    }
                    Step::Item(relation, atom.items, item)
                }
                Err(why) => {
                    faults.add(path, &format!("element {index}: {why}"));
                    return;
                }
            },
        };
        let checked = checked.and_then(|checked| checked.get(index));
        value(atom.items, item, checked, &path.then(step), faults);
    }
}

/// What is wrong with a value without parts.
fn unfit(scalar: Scalar, found: &Value) -> Option<String> {
    match (scalar, found) {
        (Scalar::Text, Value::String(_))
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Any, Value::String(_) | Value::Number(_) | Value::Bool(_)) => None,
        (Scalar::Text, _) => {
            let shown = beginning(go_syntax(found));
            Some(format!("expected string, got &value.valueUnstructured{{Value:{shown}}}"))
        }
        (Scalar::Numeric, _) => {
            let sort = match found {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            Some(format!("expected numeric (int or float), got {sort}"))
        }
        (Scalar::Boolean, _) => Some(format!("expected boolean, got {}", boxed(found))),
        (Scalar::Any, _) => Some(format!("expected any scalar, got {}", boxed(found))),
    }
}

/// A value as Go's `%v` shows it in the box that it is in.
fn boxed(value: &Value) -> String {
    format!("&{{{}}}", beginning(go_value(value)))
}

fn beginning(text: String) -> String {
    match text.char_indices().find(|(place, _)| *place >= SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// As Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", joined(items.iter().map(go_syntax), ", "))
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, member)| format!("{}:{}", quote(name), go_syntax(member)));
            format!("map[string]interface {{}}{{{}}}", joined(members, ", "))
        }
        Value::Bool(_) | Value::Number(_) => go_value(value),
    }
}
