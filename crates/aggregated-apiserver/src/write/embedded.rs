//! Embedded resources: parts of an object with their own `apiVersion`, `kind` and `metadata`, for example the template
//! of a controller.

use serde_json::Value;

use super::metadata_rules;
use crate::error::{FieldError, Path, quote};
use crate::object::names::check_dns_1035_label;
use crate::object::{Tree, to_json};
use crate::schema::{ERRORS_LIMIT, Malformed, Type, coerce_metadata};

/// Returns the invalid fields of all resources that are embedded in an object.
pub(super) fn validate(of: Type<'_>, tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_members(of, tree, &Path::Root, &mut errors);
    errors
}

/// Returns the invalid names and metadata of one resource, with paths relative to it.
pub(super) fn validate_resource(resource: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_names(resource, &Path::Root, &mut errors);
    errors
}

/// Returns the invalid fields of all resources that are embedded in one value of a schema.
pub(super) fn validate_value(of: Type<'_>, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_node(of, value, path, &mut errors);
    errors
}

fn validate_node(of: Type<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !of.subtree.embedded || errors.len() >= ERRORS_LIMIT {
        return;
    }
    match value {
        Value::Object(tree) => {
            if of.embedded {
                validate_names(tree, path, errors);
            }
            validate_members(of, tree, path, errors);
        }
        Value::Array(items) => {
            let Some(of) = of.of_items() else { return };
            for (index, item) in items.iter().enumerate() {
                validate_node(of, item, &Path::Item(path, index), errors);
            }
        }
        _ => {}
    }
}

fn validate_members(of: Type<'_>, tree: &Tree, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !of.subtree.embedded {
        return;
    }
    for (name, value) in tree {
        if let Some((member, path)) = of.described(name, path) {
            validate_node(member, value, &path, errors);
        }
    }
}

fn validate_names(tree: &Tree, path: &Path<'_>, errors: &mut Vec<FieldError>) {
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
    match coerce_metadata(&mut typed, Malformed::Refused) {
        Ok(_) => {
            let faults = metadata_rules::validate_embedded(&typed);
            errors.extend(faults.into_iter().map(|fault| fault.below(&path.to_string())));
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
