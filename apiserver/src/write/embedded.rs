//! Resources that stand in an object: a template of what a controller is to
//! make has `apiVersion`, `kind` and `metadata` of its own.

use serde_json::Value;

use super::member::member;
use super::metadata_rules;
use crate::error::{FieldError, quote};
use crate::kind::Schema;
use crate::object::names::check_dns_1035_label;
use crate::object::{Tree, metadata, to_json};

/// Makes the metadata of each what a typed ObjectMeta would be; answers with
/// the paths of what it does not know.
///
/// # Errors
/// The first member of a wrong type.
pub(super) fn coerce(schema: &Schema, tree: &mut Tree) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    coerce_members(schema, tree, "", &mut unknown)?;
    Ok(unknown)
}

/// The same of one value of a schema.
pub(super) fn coerce_value(
    schema: &Schema,
    value: &mut Value,
    path: &str,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    coerce_node(schema, value, path, &mut unknown)?;
    Ok(unknown)
}

fn coerce_node(
    schema: &Schema,
    value: &mut Value,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    match value {
        Value::Object(tree) => {
            if schema.embedded {
                coerce_resource(tree, path, unknown)?;
            }
            coerce_members(schema, tree, path, unknown)
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce_node(schema, item, &format!("{path}[{index}]"), unknown)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn coerce_members(
    schema: &Schema,
    tree: &mut Tree,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    for (name, value) in tree {
        if let Some((member, path)) = member(schema, name, path) {
            coerce_node(member, value, &path, unknown)?;
        }
    }
    Ok(())
}

fn coerce_resource(
    tree: &mut Tree,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        if let Some(value) = tree.get(field).filter(|value| !value.is_string()) {
            let shown = to_json(value);
            return Err(FieldError::invalid(format!("{path}.{field}"), shown, "must be a string"));
        }
    }
    let Some(given) = tree.get("metadata") else { return Ok(()) };
    let shown = to_json(given);
    let found = metadata::coerce(tree)
        .map_err(|why| FieldError::invalid(format!("{path}.metadata"), shown, &why))?;
    let left = super::ERRORS_LIMIT.saturating_sub(unknown.len());
    unknown.extend(found.into_iter().take(left).map(|member| format!("{path}.{member}")));
    Ok(())
}

/// What is wrong with each.
pub(super) fn validate(schema: &Schema, tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_members(schema, tree, "", &mut errors);
    errors
}

/// The same of one value of a schema.
pub(super) fn validate_value(schema: &Schema, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_node(schema, value, path, &mut errors);
    errors
}

fn validate_node(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !schema.has_embedded || errors.len() >= super::ERRORS_LIMIT {
        return;
    }
    match value {
        Value::Object(tree) => {
            if schema.embedded {
                validate_resource(tree, path, errors);
            }
            validate_members(schema, tree, path, errors);
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                validate_node(schema, item, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

fn validate_members(schema: &Schema, tree: &Tree, path: &str, errors: &mut Vec<FieldError>) {
    if !schema.has_embedded {
        return;
    }
    for (name, value) in tree {
        if let Some((member, path)) = member(schema, name, path) {
            validate_node(member, value, &path, errors);
        }
    }
}

fn validate_resource(tree: &Tree, path: &str, errors: &mut Vec<FieldError>) {
    for (field, check) in [("apiVersion", api_version_fault as fn(&str) -> _), ("kind", kind_fault)]
    {
        let field_path = format!("{path}.{field}");
        match tree.get(field) {
            None => errors.push(FieldError::required(field_path, "")),
            Some(Value::String(text)) => {
                let fault = if text.is_empty() {
                    Some("must not be empty".to_owned())
                } else {
                    check(text)
                };
                errors.extend(fault.map(|why| FieldError::invalid(field_path, quote(text), &why)));
            }
            Some(other) => {
                errors.push(FieldError::invalid(field_path, to_json(other), "must be a string"));
            }
        }
    }
    let Some(given) = tree.get("metadata") else { return };
    let mut typed = Tree::new();
    typed.insert("metadata".to_owned(), given.clone());
    match metadata::coerce(&mut typed) {
        Ok(_) => {
            let faults = metadata_rules::validate_embedded(&typed);
            errors.extend(faults.into_iter().map(|fault| fault.below(path)));
        }
        Err(why) => {
            let field = format!("{path}.metadata");
            errors.push(FieldError::invalid(field, to_json(given), &why));
        }
    }
}

fn api_version_fault(text: &str) -> Option<String> {
    let is_read = text == "/" || text.matches('/').count() <= 1;
    (!is_read).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind_fault(text: &str) -> Option<String> {
    let faults = check_dns_1035_label(&text.to_lowercase());
    (!faults.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", faults.join(",")))
}
