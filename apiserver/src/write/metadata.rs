//! ObjectMeta: its fields, their types and their rules.

use serde_json::{Map, Value};

use crate::error::{FieldError, go_type, quote};
use crate::object::Tree;
use crate::object::names::{check_label, check_label_key, check_label_value, check_subdomain};

/// All annotations of an object together; as kube-apiserver.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Time,
    Integer,
    TextMap,
    TextList,
    ObjectList,
}

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
pub(super) fn edit(tree: &mut Tree, change: impl FnOnce(&mut Tree)) {
    let mut metadata = match tree.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    change(&mut metadata);
    tree.insert("metadata".to_owned(), Value::Object(metadata));
}

/// The name of an object, or nothing.
pub(super) fn name(tree: &Tree) -> &str {
    tree.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default()
}

/// The prefix that a name is made from, if one is given.
pub(super) fn prefix(tree: &Tree) -> Option<&str> {
    let metadata = tree.get("metadata")?;
    metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty())
}

/// Drops what ObjectMeta does not know and answers with its paths; drops
/// nulls, empty lists and empty maps, as a typed ObjectMeta would.
///
/// # Errors
/// When a field has the wrong type.
pub(super) fn coerce(tree: &mut Tree) -> Result<Vec<String>, String> {
    match tree.get("metadata") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(other) => {
            let found = go_type(other);
            return Err(format!(
                "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
            ));
        }
    }
    let mut unknown = Vec::new();
    let mut fault = None;
    edit(tree, |metadata| {
        metadata.retain(|key, value| {
            let Some((_, field_type)) = FIELDS.iter().find(|(name, _)| name == key) else {
                if unknown.len() < super::ERRORS_LIMIT {
                    unknown.push(format!("metadata.{key}"));
                }
                return false;
            };
            match coerce_field(key, *field_type, value) {
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

/// Answers whether the field is as good as absent.
fn coerce_field(key: &str, field_type: FieldType, value: &mut Value) -> Result<bool, String> {
    let field = format!("ObjectMeta.{key}");
    match (field_type, value) {
        (_, Value::Null) => Ok(true),
        (FieldType::Text, Value::String(text)) => Ok(text.is_empty()),
        (FieldType::Text, other) => Err(mismatch(other, &field, "string")),
        (FieldType::Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(_) => Ok(false),
            Err(_) => Err(format!("parsing time {} as RFC 3339", quote(text))),
        },
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
            match list.iter().find(|item| !item.is_string()) {
                Some(item) => Err(mismatch(item, &field, "string")),
                None => Ok(list.is_empty()),
            }
        }
        (FieldType::TextList, other) => Err(mismatch(other, &field, "[]string")),
        (FieldType::ObjectList, Value::Array(list)) => {
            if key == "ownerReferences" {
                list.iter_mut().try_for_each(coerce_owner)?;
            }
            Ok(list.is_empty())
        }
        (FieldType::ObjectList, other) => Err(mismatch(other, &field, "[]object")),
    }
}

fn coerce_owner(owner: &mut Value) -> Result<(), String> {
    const TEXTS: [&str; 4] = ["apiVersion", "kind", "name", "uid"];
    const FLAGS: [&str; 2] = ["blockOwnerDeletion", "controller"];
    let Value::Object(owner) = owner else {
        return Err(mismatch(owner, "ObjectMeta.ownerReferences", "v1.OwnerReference"));
    };
    owner.retain(|key, value| {
        !value.is_null() && (TEXTS.contains(&key.as_str()) || FLAGS.contains(&key.as_str()))
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

/// What is wrong with the metadata of a new object.
pub(super) fn validate(tree: &Tree) -> Vec<FieldError> {
    let empty = Map::new();
    let metadata = tree.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = Vec::new();
    validate_names(metadata, &mut errors);
    for (key, value) in texts(metadata, "labels") {
        if errors.len() >= super::ERRORS_LIMIT {
            return errors;
        }
        let faults = check_label_key(key);
        errors.extend(invalid("metadata.labels", key, faults));
        errors.extend(invalid("metadata.labels", value, check_label_value(value)));
    }
    let mut annotations = 0;
    for (key, value) in texts(metadata, "annotations") {
        if errors.len() >= super::ERRORS_LIMIT {
            return errors;
        }
        annotations += key.len() + value.len();
        errors.extend(invalid("metadata.annotations", key, check_label_key(&key.to_lowercase())));
    }
    if annotations > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT as u64));
    }
    // Both are taken away again by PATCH, which is not served yet: deletions of
    // the object, or of its owner, would wait for ever.
    for field in ["finalizers", "ownerReferences"] {
        if metadata.contains_key(field) {
            let why = "is not supported yet: nobody could remove it from the object";
            errors.push(FieldError::forbidden(format!("metadata.{field}"), why));
        }
    }
    errors
}

fn validate_names(metadata: &Tree, errors: &mut Vec<FieldError>) {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    if let Some(prefix) = text("generateName") {
        // A trailing dash is what the suffix is put behind; as kube-apiserver
        // masks it, what is before it goes too.
        let masked = prefix.strip_suffix('-').and_then(|rest| {
            let last = rest.chars().next_back()?;
            Some(format!("{}a", &rest[..rest.len() - last.len_utf8()]))
        });
        let faults = check_subdomain(masked.as_deref().unwrap_or(prefix));
        errors.extend(invalid("metadata.generateName", prefix, faults));
    }
    match text("name") {
        None => {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        }
        Some(name) => errors.extend(invalid("metadata.name", name, check_subdomain(name))),
    }
    if let Some(namespace) = text("namespace") {
        errors.extend(invalid("metadata.namespace", namespace, check_label(namespace)));
    }
}

fn texts<'a>(metadata: &'a Tree, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = metadata.get(field).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn invalid(field: &str, value: &str, faults: Vec<String>) -> impl Iterator<Item = FieldError> {
    let value = quote(value);
    let field = field.to_owned();
    faults.into_iter().map(move |fault| FieldError::invalid(&field, &value, &fault))
}
