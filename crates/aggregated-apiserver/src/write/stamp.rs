//! The metadata that the server sets in a new object, regardless of the request.

use serde_json::Value;

use crate::clock::{Clock, to_rfc_3339};
use crate::error::ApiError;
use crate::kind::Strategy;
use crate::object::{Tree, metadata};

/// The largest part of a prefix that is used for a generated name, in bytes; same as kube-apiserver.
const GENERATE_NAME_LIMIT: usize = 58;

/// Fields with the state of an object in another server or at an earlier time.
const ELSEWHERE: [&str; 4] =
    ["deletionGracePeriodSeconds", "deletionTimestamp", "resourceVersion", "selfLink"];

/// Fields that only the server sets, and that never change.
const SYSTEM: [&str; 3] = ["creationTimestamp", "generation", "uid"];

/// Drops the fields that only the server sets. If `keeps` is true, uid, creation time and generation remain. The
/// generation of a kind that does not count changes remains, too, same as in kube-apiserver.
pub(super) fn wipe(tree: &mut Tree, keeps: bool, has_generation: bool) {
    metadata::edit(tree, |metadata| {
        for field in ELSEWHERE {
            metadata.remove(field);
        }
        for field in SYSTEM {
            let is_kept = keeps || field == "generation" && !has_generation;
            if !is_kept || metadata.get(field).is_some_and(Value::is_null) {
                metadata.remove(field);
            }
        }
    });
}

/// Sets the missing fields: the name (if only a prefix is set), the uid, the creation time, and the generation for
/// kinds that have one. Returns whether the name was generated.
pub(super) fn stamp(tree: &mut Tree, strategy: &Strategy, clock: &Clock) -> bool {
    metadata::edit(tree, |metadata| {
        metadata.entry("uid").or_insert_with(|| clock.uid().to_string().into());
        metadata.entry("creationTimestamp").or_insert_with(|| to_rfc_3339(clock.now()).into());
        if strategy.has_generation {
            metadata.entry("generation").or_insert_with(|| 1.into());
        }
    });
    let is_generated = metadata::name(tree).is_empty() && metadata::prefix(tree).is_some();
    if is_generated {
        rename(tree, strategy, clock);
    }
    is_generated
}

/// Generates a name from the prefix.
fn rename(tree: &mut Tree, strategy: &Strategy, clock: &Clock) {
    let Some(prefix) = metadata::prefix(tree) else { return };
    if !strategy.adds_name_suffix {
        let name = prefix.to_owned();
        return metadata::edit(tree, |metadata| {
            drop(metadata.insert("name".to_owned(), name.into()));
        });
    }
    let mut limit = prefix.len().min(GENERATE_NAME_LIMIT);
    while !prefix.is_char_boundary(limit) {
        limit -= 1;
    }
    let name = prefix[..limit].to_owned() + &clock.name_suffix();
    metadata::edit(tree, |metadata| {
        metadata.insert("name".to_owned(), name.into());
    });
}

/// Rejects a new object with a resourceVersion, because a client that sends one intends an update.
pub(super) fn refuse_revision(revision: &str) -> Result<(), ApiError> {
    match revision.parse::<u64>() {
        Ok(number) if number != 0 => {
            Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}
