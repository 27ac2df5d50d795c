//! What the system says about a new object, whatever its author said.

use crate::ambient::{Ambient, to_seconds};
use crate::error::ApiError;
use crate::object::{Tree, metadata};

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

/// Sets name (if only a prefix is given), uid, creation time and, where changes
/// are counted, generation; answers whether the name was made.
pub(super) fn stamp(tree: &mut Tree, has_generation: bool, ambient: &Ambient) -> bool {
    metadata::edit(tree, |metadata| {
        for field in SYSTEM {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), ambient.uid().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), to_seconds(ambient.now()).into());
        metadata.remove("generation");
        if has_generation {
            metadata.insert("generation".to_owned(), 1.into());
        }
    });
    let is_generated = metadata::name(tree).is_empty() && metadata::prefix(tree).is_some();
    if is_generated {
        rename(tree, ambient);
    }
    is_generated
}

/// Makes a name from the prefix.
pub(super) fn rename(tree: &mut Tree, ambient: &Ambient) {
    let Some(prefix) = metadata::prefix(tree) else { return };
    let mut limit = prefix.len().min(GENERATE_NAME_LIMIT);
    while !prefix.is_char_boundary(limit) {
        limit -= 1;
    }
    let name = prefix[..limit].to_owned() + &ambient.name_suffix();
    metadata::edit(tree, |metadata| {
        metadata.insert("name".to_owned(), name.into());
    });
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
