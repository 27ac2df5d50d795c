//! Lists whose elements must be unique: sets, and lists with key fields.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::Value;

use super::{ListType, Type};
use crate::error::{FieldError, Path};
use crate::object::{Tree, to_json};

/// Returns an error for each duplicate in the lists of an object.
pub fn validate_list_types(of: Type<'_>, tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    members(of, tree, &Path::Root, &mut errors);
    errors
}

/// The elements of an old list by the values of their key fields.
pub struct ByKey<'a> {
    keys: &'a [String],
    items: HashMap<ItemKey<'a>, &'a Value>,
}

/// The values of the key fields of a list element.
#[derive(PartialEq, Eq, Hash)]
enum ItemKey<'a> {
    One(&'a Value),
    Several(Vec<&'a Value>),
}

/// Returns the elements of an old list with key fields. The result is empty for other lists.
pub fn by_key<'a>(list_type: &'a ListType, old: Option<&'a Vec<Value>>) -> ByKey<'a> {
    let ListType::Map(keys) = list_type else {
        return ByKey { keys: &[], items: HashMap::new() };
    };
    let named =
        old.into_iter().flatten().filter_map(|item| Some((key(item.as_object()?, keys)?, item)));
    // If several elements have the same key, the first one is used.
    let mut items = HashMap::new();
    for (name, item) in named {
        items.entry(name).or_insert(item);
    }
    ByKey { keys, items }
}

impl<'a> ByKey<'a> {
    /// Returns the old element with the key of this element.
    pub fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&key(item.as_object()?, self.keys)?).copied()
    }
}

fn members(of: Type<'_>, tree: &Tree, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !of.subtree.list_types {
        return;
    }
    for (name, value) in tree {
        if let Some((member, path)) = of.described(name, path) {
            node(member, value, &path, errors);
        }
    }
}

fn node(of: Type<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= super::ERRORS_LIMIT || !of.subtree.list_types {
        return;
    }
    match value {
        Value::Object(tree) => members(of, tree, path, errors),
        Value::Array(items) => {
            match &of.list_type {
                ListType::Unset | ListType::Atomic => {}
                ListType::Set => {
                    let identities = items.iter().map(|item| Identity::of(Some(item)));
                    twice(identities, |index| items[index].clone(), path, errors);
                }
                ListType::Map(keys) => map(items, keys, path, errors),
            }
            let Some(of) = of.of_items() else { return };
            for (index, item) in items.iter().enumerate() {
                node(of, item, &Path::Item(path, index), errors);
            }
        }
        _ => {}
    }
}

fn map(items: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    // A null element has no keys.
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let why = "must be an object for an array of list-type map";
        let field = format!("{path}[{index}]");
        errors.push(FieldError::invalid(field, to_json(&items[index]), why));
        return;
    }
    let identities = items.iter().map(|item| match keys {
        [key] => Identity::of(item.get(key)),
        keys => Identity::Compound(to_json(&Value::Object(identity(item, keys)))),
    });
    twice(identities, |index| Value::Object(identity(&items[index], keys)), path, errors);
}

/// The value that identifies a list element. Scalars are compared by their Go values, so `1` and `1.0` differ. Other
/// values are compared as JSON, where both are `1`.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    None,
    Scalar(&'a Value),
    Compound(String),
}

impl<'a> Identity<'a> {
    fn of(value: Option<&'a Value>) -> Self {
        match value {
            None => Self::None,
            Some(value @ (Value::Object(_) | Value::Array(_))) => Self::Compound(to_json(value)),
            Some(scalar) => Self::Scalar(scalar),
        }
    }
}

/// Returns the key of an element, if it has all key fields.
fn key<'a>(item: &'a Tree, keys: &[String]) -> Option<ItemKey<'a>> {
    let scalar = |key| item.get(key).filter(|value| !value.is_object() && !value.is_array());
    match keys {
        [key] => scalar(key).map(ItemKey::One),
        keys => keys.iter().map(scalar).collect::<Option<_>>().map(ItemKey::Several),
    }
}

/// Returns the key fields that an element has.
fn identity(item: &Value, keys: &[String]) -> Tree {
    let given = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    given.collect()
}

/// Reports each duplicate value once, at its second position.
fn twice<K: Hash + Eq>(
    identities: impl Iterator<Item = K>,
    show: impl Fn(usize) -> Value,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut seen: HashMap<K, u32> = HashMap::new();
    for (index, identity) in identities.enumerate() {
        let count = seen.entry(identity).or_default();
        *count += 1;
        if *count == 2 && errors.len() < super::ERRORS_LIMIT {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), to_json(&show(index))));
        }
    }
}
