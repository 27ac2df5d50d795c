//! What the system says about a new object, whatever its author said.

use serde_json::Value;

use super::metadata;
use crate::ambient::{Ambient, to_seconds};
use crate::error::ApiError;
use crate::object::Tree;

/// So much of a prefix is used for a generated name; as kube-apiserver.
const GENERATE_NAME_LIMIT: usize = 58;

/// Fields that only the system sets.
const SYSTEM: [&str; 5] = [
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "managedFields",
    "resourceVersion",
    "selfLink",
];

/// Sets name (if a prefix is given), uid, creation time and generation;
/// answers with the prefix that the name was made from.
pub(super) fn stamp(tree: &mut Tree, ambient: &Ambient) -> Option<String> {
    let mut generated_from = None;
    metadata::edit(tree, |metadata| {
        for field in SYSTEM {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), ambient.uid().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), to_seconds(ambient.now()).into());
        metadata.insert("generation".to_owned(), 1.into());
        let prefix = metadata.get("generateName").and_then(Value::as_str);
        if let (Some(prefix), false) = (prefix, metadata.contains_key("name")) {
            let mut base = prefix.to_owned();
            let mut limit = base.len().min(GENERATE_NAME_LIMIT);
            while !base.is_char_boundary(limit) {
                limit -= 1;
            }
            base.truncate(limit);
            generated_from = Some(prefix.to_owned());
            metadata.insert("name".to_owned(), (base + &ambient.name_suffix()).into());
        }
    });
    generated_from
}

/// A new object has no revision yet: a client that sends one means another verb.
pub(super) fn refuse_revision(tree: &Tree) -> Result<(), ApiError> {
    let revision = tree.get("metadata").and_then(|metadata| metadata["resourceVersion"].as_str());
    match revision.map(str::parse::<u64>) {
        Some(Ok(number)) if number != 0 => {
            Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}
