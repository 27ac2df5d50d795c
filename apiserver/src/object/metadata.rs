//! ObjectMeta: its fields and their types.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Tree;
use crate::error::{go_type, quote};

#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Time,
    Integer,
    TextMap,
    TextList,
    ObjectList,
}

/// So many unknown members are told; nobody mends more at a time.
pub const UNKNOWN_LIMIT: usize = 100;

/// Members that every object has, and no schema needs to name.
pub const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

const FIELDS: [(&str, FieldType); 15] = [
    ("annotations", FieldType::TextMap),
    ("creationTimestamp", FieldType::Time),
    ("deletionGracePeriodSeconds", FieldType::Integer),
    ("deletionTimestamp", FieldType::Time),
    ("finalizers", FieldType::TextList),
    ("generateName", FieldType::Text),
    ("generation", FieldType::Integer),
    ("labels", FieldType::TextMap),
    ("managedFields", FieldType::ObjectList),
    ("name", FieldType::Text),
    ("namespace", FieldType::Text),
    ("ownerReferences", FieldType::ObjectList),
    ("resourceVersion", FieldType::Text),
    ("selfLink", FieldType::Text),
    ("uid", FieldType::Text),
];

/// Changes the metadata of an object.
///
/// Anything else under `metadata`, null among it, is replaced by an empty object.
pub fn edit(tree: &mut Tree, change: impl FnOnce(&mut Tree)) {
    let mut metadata = match tree.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    change(&mut metadata);
    tree.insert("metadata".to_owned(), Value::Object(metadata));
}

/// The metadata of an object; nothing if there is none.
pub fn of(tree: &Tree) -> &Tree {
    static NOTHING: LazyLock<Tree> = LazyLock::new(Tree::new);
    tree.get("metadata").and_then(Value::as_object).unwrap_or(&NOTHING)
}

/// A text in the metadata of an object, or nothing.
pub fn text<'a>(tree: &'a Tree, field: &str) -> &'a str {
    of(tree).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is being deleted: it is there until nothing holds it.
pub fn is_being_deleted(tree: &Tree) -> bool {
    of(tree).contains_key("deletionTimestamp")
}

/// The finalizers of an object, in their order.
pub fn finalizers(tree: &Tree) -> Vec<&str> {
    let list = of(tree).get("finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The name of an object, or nothing.
pub fn name(tree: &Tree) -> &str {
    text(tree, "name")
}

/// The prefix that a name is made from, if one is given.
pub fn prefix(tree: &Tree) -> Option<&str> {
    let metadata = tree.get("metadata")?;
    metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty())
}

/// Drops what ObjectMeta does not know and answers with its paths; drops
/// nulls, empty lists and empty maps, as a typed ObjectMeta would.
///
/// # Errors
/// When a field has the wrong type.
pub fn coerce(tree: &mut Tree) -> Result<Vec<String>, String> {
    check_type(tree)?;
    let mut unknown = Vec::new();
    let mut fault = None;
    edit(tree, |metadata| {
        metadata.retain(|key, value| {
            let Some((_, field_type)) = FIELDS.iter().find(|(name, _)| name == key) else {
                if unknown.len() < UNKNOWN_LIMIT {
                    unknown.push(format!("metadata.{key}"));
                }
                return false;
            };
            match coerce_field(key, *field_type, value, &mut unknown) {
                Ok(is_absent) => !is_absent,
                Err(why) => {
                    fault.get_or_insert(why);
                    false
                }
            }
        });
    });
    fault.map_or(Ok(unknown), Err)
}

fn check_type(tree: &Tree) -> Result<(), String> {
    match tree.get("metadata") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => {
            let found = go_type(other);
            Err(format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"))
        }
    }
}

/// Answers whether the field is as good as absent.
fn coerce_field(
    key: &str,
    field_type: FieldType,
    value: &mut Value,
    unknown: &mut Vec<String>,
) -> Result<bool, String> {
    let field = format!("ObjectMeta.{key}");
    match (field_type, value) {
        (_, Value::Null) => Ok(true),
        (FieldType::Text, Value::String(text)) => Ok(text.is_empty()),
        (FieldType::Text, other) => Err(mismatch(other, &field, "string")),
        (FieldType::Time, Value::String(text)) => {
            let time = text.parse::<jiff::Timestamp>().ok().filter(|_| text.contains('T'));
            let whole = time.and_then(|time| jiff::Timestamp::from_second(time.as_second()).ok());
            match whole {
                Some(whole) => {
                    *text = whole.to_string();
                    Ok(false)
                }
                None => Err(format!("parsing time {} as RFC 3339", quote(text))),
            }
        }
        (FieldType::Time, other) => Err(mismatch(other, &field, "v1.Time")),
        (FieldType::Integer, Value::Number(number)) if number.is_i64() => Ok(false),
        (FieldType::Integer, other) => Err(mismatch(other, &field, "int64")),
        (FieldType::TextMap, Value::Object(map)) => {
            for value in map.values_mut() {
                match value {
                    Value::Null => *value = Value::String(String::new()),
                    Value::String(_) => {}
                    other => return Err(mismatch(other, &field, "string")),
                }
            }
            Ok(map.is_empty())
        }
        (FieldType::TextMap, other) => Err(mismatch(other, &field, "map[string]string")),
        (FieldType::TextList, Value::Array(list)) => {
            for item in list.iter_mut().filter(|item| item.is_null()) {
                *item = Value::String(String::new());
            }
            match list.iter().find(|item| !item.is_string()) {
                Some(item) => Err(mismatch(item, &field, "string")),
                None => Ok(list.is_empty()),
            }
        }
        (FieldType::TextList, other) => Err(mismatch(other, &field, "[]string")),
        (FieldType::ObjectList, Value::Array(list)) => {
            for item in list.iter_mut().filter(|item| item.is_null()) {
                *item = Value::Object(Map::new());
            }
            if key == "ownerReferences" {
                for (index, owner) in list.iter_mut().enumerate() {
                    coerce_owner(index, owner, unknown)?;
                }
            } else if let Some(other) = list.iter().find(|item| !item.is_object()) {
                return Err(mismatch(other, &field, "v1.ManagedFieldsEntry"));
            }
            Ok(list.is_empty())
        }
        (FieldType::ObjectList, other) => Err(mismatch(other, &field, "[]object")),
    }
}

fn coerce_owner(index: usize, owner: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    const TEXTS: [&str; 4] = ["apiVersion", "kind", "name", "uid"];
    const FLAGS: [&str; 2] = ["blockOwnerDeletion", "controller"];
    let Value::Object(owner) = owner else {
        return Err(mismatch(owner, "ObjectMeta.ownerReferences", "v1.OwnerReference"));
    };
    owner.retain(|key, value| {
        let is_known = TEXTS.contains(&key.as_str()) || FLAGS.contains(&key.as_str());
        if !is_known && unknown.len() < UNKNOWN_LIMIT {
            unknown.push(format!("metadata.ownerReferences[{index}].{key}"));
        }
        is_known && !value.is_null()
    });
    for (key, value) in owner.iter() {
        let field = format!("OwnerReference.ownerReferences.{key}");
        if TEXTS.contains(&key.as_str()) && !value.is_string() {
            return Err(mismatch(value, &field, "string"));
        }
        if FLAGS.contains(&key.as_str()) && !value.is_boolean() {
            return Err(mismatch(value, &field, "bool"));
        }
    }
    for key in TEXTS {
        owner.entry(key).or_insert_with(|| Value::String(String::new()));
    }
    Ok(())
}

fn mismatch(value: &Value, field: &str, expected: &str) -> String {
    let found = go_type(value);
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {expected}")
}
