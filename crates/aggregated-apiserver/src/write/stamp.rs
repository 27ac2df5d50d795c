//! The fields that the system sets in a new object, whatever the client has sent.

use serde_json::Value;

use crate::clock::{Clock, to_rfc_3339};
use crate::error::ApiError;
use crate::object::{Tree, metadata};

/// At most this many bytes of a prefix are used for a generated name; as kube-apiserver.
const GENERATE_NAME_LIMIT: usize = 58;

/// Fields that say something about an object as it is elsewhere, or was.
const ELSEWHERE: [&str; 4] =
    ["deletionGracePeriodSeconds", "deletionTimestamp", "resourceVersion", "selfLink"];

/// Fields that only the system sets, and that stay.
const SYSTEM: [&str; 3] = ["creationTimestamp", "generation", "uid"];

/// Drops the fields that only the system sets; `keeps` keeps uid, creation time and generation.
pub(super) fn wipe(tree: &mut Tree, keeps: bool) {
    metadata::edit(tree, |metadata| {
        for field in ELSEWHERE {
            metadata.remove(field);
        }
        for field in SYSTEM {
            if !keeps || metadata.get(field).is_some_and(Value::is_null) {
                metadata.remove(field);
            }
        }
    });
}

/// Sets what was not kept: name (if only a prefix is given), uid, creation time and, where
/// changes are counted, generation; answers whether the name was made.
pub(super) fn stamp(tree: &mut Tree, has_generation: bool, clock: &Clock) -> bool {
    metadata::edit(tree, |metadata| {
        metadata.entry("uid").or_insert_with(|| clock.uid().to_string().into());
        metadata.entry("creationTimestamp").or_insert_with(|| to_rfc_3339(clock.now()).into());
        if has_generation {
            metadata.entry("generation").or_insert_with(|| 1.into());
        }
    });
    let is_generated = metadata::name(tree).is_empty() && metadata::prefix(tree).is_some();
    if is_generated {
        rename(tree, clock);
    }
    is_generated
}

/// Makes a name from the prefix.
fn rename(tree: &mut Tree, clock: &Clock) {
    let Some(prefix) = metadata::prefix(tree) else { return };
    let mut limit = prefix.len().min(GENERATE_NAME_LIMIT);
    while !prefix.is_char_boundary(limit) {
        limit -= 1;
    }
    let name = prefix[..limit].to_owned() + &clock.name_suffix();
    metadata::edit(tree, |metadata| {
        metadata.insert("name".to_owned(), name.into());
    });
}

/// Refuses a new object with a revision: a client that sends one means another verb.
pub(super) fn refuse_revision(revision: &str) -> Result<(), ApiError> {
    match revision.parse::<u64>() {
        Ok(number) if number != 0 => {
            Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}
