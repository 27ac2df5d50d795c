//! Normalizes an object before it is validated: drops unknown fields, converts its metadata as Go does, and fills in
//! defaults.

use serde_json::Value;

use super::coerce::{coerce, coerce_members};
use super::{Type, Types, fill_defaults, prune};
use crate::error::{FieldError, Path, go_type};
use crate::object::metadata::UNKNOWN_LIMIT;
use crate::object::{Tree, metadata, to_json};

/// The treatment of fields of a wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The whole object is rejected.
    Refused,
    /// The fields are dropped.
    Dropped,
}

/// Drops the unknown fields of an object and fills in its defaults. Returns the paths of dropped fields.
///
/// # Errors
/// The first value of a wrong type: anywhere in an object of a Go type, otherwise in the metadata of an embedded
/// resource. There is no error if such values are dropped.
pub fn normalize(
    of: Type<'_>,
    tree: &mut Tree,
    malformed: Malformed,
) -> Result<Vec<String>, String> {
    if of.go.is_some() {
        return coerce(of, tree);
    }
    let mut unknown = prune(of, tree);
    let mut of_embedded = Vec::new();
    embedded_members(of, tree, &Path::Root, malformed, &mut of_embedded)
        .map_err(|error| error.to_string())?;
    of_embedded.sort_unstable();
    unknown.append(&mut of_embedded);
    fill_defaults(of, tree);
    Ok(unknown)
}

/// Drops unknown and malformed fields of an object of a CustomResourceDefinition, without filling in defaults.
pub fn normalize_without_defaults(of: Type<'_>, tree: &mut Tree) {
    prune(of, tree);
    drop_unknown_metadata(of, tree);
}

/// Converts the metadata of an object as Go does, whatever the type of the object. Returns the paths of fields that
/// ObjectMeta does not have.
///
/// # Errors
/// The first value of a wrong type, unless such values are dropped.
pub fn coerce_metadata(tree: &mut Tree, malformed: Malformed) -> Result<Vec<String>, String> {
    if let Some(found) = tree.get("metadata").filter(|found| !found.is_object() && !found.is_null())
    {
        let found = go_type(found);
        return Err(format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"));
    }
    let Some(of) = Types::meta().named("meta/v1", "ObjectMeta") else { return Ok(Vec::new()) };
    let path = Path::Member(&Path::Root, "metadata");
    let mut coerced = Ok(Vec::new());
    metadata::edit(tree, |metadata| coerced = coerce_members(of, &path, metadata, malformed));
    coerced
}

/// Converts the metadata of each embedded resource in a value as Go does. The value is at `path`.
///
/// # Errors
/// The first value of a wrong type.
pub fn normalize_embedded_metadata(
    of: Type<'_>,
    value: &mut Value,
    path: &Path<'_>,
) -> Result<(), FieldError> {
    embedded(of, value, path, Malformed::Refused, &mut Vec::new())
}

/// Drops fields from the metadata of embedded resources that ObjectMeta does not have, or that have a wrong type.
pub(super) fn drop_unknown_metadata(of: Type<'_>, tree: &mut Tree) {
    // Dropped fields are not errors.
    let _ = embedded_members(of, tree, &Path::Root, Malformed::Dropped, &mut Vec::new());
}

fn embedded(
    of: Type<'_>,
    value: &mut Value,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !of.subtree.embedded {
        return Ok(());
    }
    match value {
        Value::Object(tree) => {
            if of.embedded {
                resource(tree, path, malformed, unknown)?;
            }
            embedded_members(of, tree, path, malformed, unknown)
        }
        Value::Array(items) => {
            let Some(of) = of.of_items() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                embedded(of, item, &Path::Item(path, index), malformed, unknown)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn embedded_members(
    of: Type<'_>,
    tree: &mut Tree,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !of.subtree.embedded {
        return Ok(());
    }
    for (name, value) in tree {
        if let Some((member, path)) = of.described(name, path) {
            embedded(member, value, &path, malformed, unknown)?;
        }
    }
    Ok(())
}

fn resource(
    tree: &mut Tree,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        match tree.get(field) {
            None | Some(Value::String(_)) => {}
            Some(_) if malformed == Malformed::Dropped => {
                tree.remove(field);
            }
            Some(other) => {
                let field = format!("{path}.{field}");
                return Err(FieldError::invalid(field, to_json(other), "must be a string"));
            }
        }
    }
    let Some(given) = tree.get("metadata") else { return Ok(()) };
    let before = (malformed == Malformed::Refused).then(|| given.clone());
    match (coerce_metadata(tree, malformed), malformed) {
        (Ok(found), _) => {
            let left = UNKNOWN_LIMIT.saturating_sub(unknown.len());
            unknown.extend(found.into_iter().take(left).map(|member| format!("{path}.{member}")));
        }
        // Metadata that is not an object stays, as in kube-apiserver.
        (Err(_), Malformed::Dropped) => {}
        (Err(why), Malformed::Refused) => {
            let shown = before.as_ref().map(to_json).unwrap_or_default();
            return Err(FieldError::invalid(format!("{path}.metadata"), shown, &why));
        }
    }
    Ok(())
}
