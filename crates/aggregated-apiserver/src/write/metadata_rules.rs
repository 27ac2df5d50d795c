//! The validation of ObjectMeta, with the messages of kube-apiserver.

use std::collections::HashSet;

use serde_json::Value;

use super::draft::Draft;
use crate::apply::Managers;
use crate::error::{FieldError, is_printed, quote};
use crate::kind::NameRule;
use crate::object::names::{
    check_dns_1123_label, check_label_key, check_label_value, check_path_segment,
    check_path_segment_prefix,
};
use crate::object::{Tree, metadata};
use crate::schema::ERRORS_LIMIT;

/// The largest size of all annotations of an object together, in bytes; same as kube-apiserver.
const ANNOTATIONS_LIMIT: usize = 256 << 10;
/// The largest text of all owner references that several errors repeat, in bytes.
const SHOWN_LIMIT: usize = 4_096;
/// The finalizers of the garbage collector: dependents lose their owner reference first, or are deleted first.
pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The largest length of the names of field managers, and of the subresources by which they write; same as
/// kube-apiserver.
const MANAGER_LIMIT: u64 = 128;
const SUBRESOURCE_LIMIT: u64 = 256;
/// Finalizers that are valid without a domain in their name.
const WITHOUT_DOMAIN: [&str; 3] = [ORPHAN, FOREGROUND, "kubernetes"];

/// Returns the invalid fields in the metadata of an object, for creates and updates.
pub(super) fn validate(draft: &Draft, names: NameRule) -> Vec<FieldError> {
    let tree = &draft.tree;
    let metadata = metadata::of(tree);
    let mut errors = Vec::new();
    validate_names(metadata, names, &mut errors);
    validate_contents(metadata, &mut errors);
    validate_finalizers(tree, &mut errors);
    validate_managers(&draft.managers, &mut errors);
    errors
}

/// Returns the invalid names in `managedFields`.
fn validate_managers(managers: &Managers, errors: &mut Vec<FieldError>) {
    for (index, managed) in managers.in_order().into_iter().enumerate() {
        let path = |field: &str| format!("metadata.managedFields[{index}].{field}");
        check_manager(&managed.manager.name, &path("manager"), errors);
        if managed.manager.subresource.len() as u64 > SUBRESOURCE_LIMIT {
            errors.push(FieldError::too_long(path("subresource"), SUBRESOURCE_LIMIT));
        }
    }
}

/// Checks the name of a field manager.
pub fn check_manager(manager: &str, path: &str, errors: &mut Vec<FieldError>) {
    if manager.len() as u64 > MANAGER_LIMIT {
        errors.push(FieldError::too_long(path, MANAGER_LIMIT));
    }
    for (position, odd) in manager.char_indices().filter(|(_, c)| !is_printed(*c)) {
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        let detail = format!("invalid character U+{:04X} (at position {position})", odd as u32);
        errors.push(FieldError::invalid(path, quote(manager), &detail));
    }
}

/// Returns the invalid fields in the metadata of an embedded resource. It may have any name that is a valid path
/// segment, or no name.
pub(super) fn validate_embedded(tree: &Tree) -> Vec<FieldError> {
    let metadata = metadata::of(tree);
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    let mut errors = Vec::new();
    if let Some(prefix) = text("generateName") {
        let faults = check_path_segment_prefix(prefix);
        errors.extend(invalid("metadata.generateName", prefix, faults));
    }
    if let Some(name) = text("name") {
        errors.extend(invalid("metadata.name", name, check_path_segment(name)));
    }
    if let Some(namespace) = text("namespace") {
        errors.extend(invalid("metadata.namespace", namespace, check_dns_1123_label(namespace)));
    }
    if let Some(generation) = metadata.get("generation").filter(|at| at.as_i64() < Some(0)) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("metadata.generation", generation, why));
    }
    validate_contents(metadata, &mut errors);
    validate_finalizers(tree, &mut errors);
    errors
}

/// Returns the invalid fields of a change of metadata. Errors of the new metadata itself are repeated, same as in
/// kube-apiserver.
pub(super) fn validate_update(tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let (new, old_metadata) = (metadata::of(tree), metadata::of(old));
    let mut errors = Vec::new();
    if metadata::is_being_deleted(old) {
        let known: HashSet<&str> = metadata::finalizers(old).into_iter().collect();
        let mut added: Vec<&str> = metadata::finalizers(tree);
        added.retain(|finalizer| !known.contains(finalizer));
        added.sort_unstable();
        added.dedup();
        added.truncate(ERRORS_LIMIT);
        if !added.is_empty() {
            let added: Vec<String> = added.into_iter().map(quote).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &why));
        }
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new.get(field) != old_metadata.get(field) {
            let value = new.get(field).unwrap_or(&Value::Null);
            let field = format!("metadata.{field}");
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
    }
    validate_contents(new, &mut errors);
    errors
}

/// Returns the warnings about new finalizers whose names are not domain-qualified.
pub(super) fn finalizer_warnings(tree: &Tree, old: Option<&Tree>) -> Vec<String> {
    let known = old.map(metadata::finalizers).unwrap_or_default();
    let known: HashSet<&str> = known.into_iter().collect();
    let is_odd = |finalizer: &&str| {
        !finalizer.contains('/')
            && !WITHOUT_DOMAIN.contains(finalizer)
            && !known.contains(finalizer)
    };
    let warn = |finalizer: &str| {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers",
            quote(finalizer)
        )
    };
    let mut odd: Vec<&str> = metadata::finalizers(tree).into_iter().filter(is_odd).collect();
    odd.sort_unstable();
    odd.dedup();
    odd.truncate(ERRORS_LIMIT);
    odd.into_iter().map(warn).collect()
}

fn validate_contents(metadata: &Tree, errors: &mut Vec<FieldError>) {
    for (key, value) in texts(metadata, "labels") {
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        let faults = check_label_key(key);
        errors.extend(invalid("metadata.labels", key, faults));
        errors.extend(invalid("metadata.labels", value, check_label_value(value)));
    }
    let mut annotations = 0;
    for (key, value) in texts(metadata, "annotations") {
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        annotations += key.len() + value.len();
        errors.extend(invalid("metadata.annotations", key, check_label_key(&key.to_lowercase())));
    }
    if annotations > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT as u64));
    }
    validate_owners(metadata, errors);
}

fn validate_owners(metadata: &Tree, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.ownerReferences";
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let mut controller: Option<String> = None;
    let mut all: Option<String> = None;
    for owner in owners.into_iter().flatten() {
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let version = match text("apiVersion").split_once('/') {
            None => text("apiVersion"),
            Some((_, version)) if !version.contains('/') => version,
            Some(_) => "",
        };
        if version.is_empty() {
            let field = format!("{FIELD}.apiVersion");
            let value = quote(text("apiVersion"));
            errors.push(FieldError::invalid(field, value, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                let field = format!("{FIELD}.{field}");
                errors.push(FieldError::invalid(field, "\"\"", "must not be empty"));
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(FIELD, shown(owner), why));
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                // Each error contains all references. One error is enough if they are long.
                if all.as_ref().is_some_and(|all| all.len() > SHOWN_LIMIT) {
                    continue;
                }
                let all = all.get_or_insert_with(|| {
                    let shown = owners.into_iter().flatten().map(shown);
                    shown.collect::<Vec<_>>().join(",")
                });
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(FieldError::invalid(FIELD, format!("[{all}]"), &why));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// A reference in the format of messages: its fields are in the order of the Go type.
fn shown(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let given = fields.iter().filter_map(|field| Some((*field, owner.get(*field)?)));
    let members: Vec<String> = given.map(|(field, value)| format!("\"{field}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn validate_finalizers(tree: &Tree, errors: &mut Vec<FieldError>) {
    let finalizers = metadata::finalizers(tree);
    for finalizer in &finalizers {
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        errors.extend(invalid("metadata.finalizers", finalizer, check_label_key(finalizer)));
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let shown: Vec<String> = finalizers.iter().map(|finalizer| quote(finalizer)).collect();
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        let shown = format!("[{}]", shown.join(","));
        errors.push(FieldError::invalid("metadata.finalizers", shown, why));
    }
}

fn validate_names(metadata: &Tree, names: NameRule, errors: &mut Vec<FieldError>) {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    if let Some(prefix) = text("generateName") {
        // The generated suffix replaces a trailing dash. Same as kube-apiserver, the masking also replaces the
        // character before the dash.
        let masked = prefix.strip_suffix('-').and_then(|rest| {
            let last = rest.chars().next_back()?;
            Some(format!("{}a", &rest[..rest.len() - last.len_utf8()]))
        });
        let faults = names.check(masked.as_deref().unwrap_or(prefix));
        errors.extend(invalid("metadata.generateName", prefix, faults));
    }
    match text("name") {
        None => {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        }
        Some(name) => errors.extend(invalid("metadata.name", name, names.check(name))),
    }
    if let Some(namespace) = text("namespace") {
        errors.extend(invalid("metadata.namespace", namespace, check_dns_1123_label(namespace)));
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
