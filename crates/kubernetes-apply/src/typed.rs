//! Typed: checks values against their types, as far as field ownership requires it.
//!
//! An applied object passes this check before it is merged. Validation of the object to store comes later and reports
//! more.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::list::{Keyed, element_of};
use super::place::{Atom, ListAtom, MapAtom, Place, Relation, Scalar};
use super::value::SAME_DEPTH;
use crate::error::{go_value, joined, quote};

/// The largest number of errors that are reported for one object.
const FAULTS_LIMIT: usize = 100;
/// The largest size of a value in an error message, in bytes.
const SHOWN: usize = 1 << 10;

/// Checks an object against its type. Duplicate list elements are errors.
///
/// # Errors
/// All errors of the object, with the messages of kube-apiserver.
pub fn check(place: Place<'_>, object: &Map<String, Value>) -> Result<(), String> {
    faults_of(place, object, None, true)
}

/// Checks an object against its type. Duplicate list elements are allowed.
///
/// # Errors
/// All errors of the object.
pub fn check_loosely(place: Place<'_>, object: &Map<String, Value>) -> Result<(), String> {
    faults_of(place, object, None, false)
}

/// Checks the parts of an object that differ from `checked`, an object without errors. Duplicate list elements are
/// allowed.
///
/// # Errors
/// All errors of these parts.
pub fn check_loosely_beside(
    place: Place<'_>,
    object: &Map<String, Value>,
    checked: &Map<String, Value>,
) -> Result<(), String> {
    faults_of(place, object, Some(checked), false)
}

/// Whether a value matches the type of its place. Parts that are equal in `checked`, a value without errors, are not
/// checked.
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

/// The path of a value. It is formatted only for error messages.
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

/// Returns the error of a value that should be a scalar; `None` if the value is valid.
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

/// Formats a value as Go's `%v` formats a pointer to a struct with this value.
fn boxed(value: &Value) -> String {
    format!("&{{{}}}", beginning(go_value(value)))
}

fn beginning(text: String) -> String {
    match text.char_indices().find(|(place, _)| *place >= SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Formats a value as Go's `%#v`.
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
