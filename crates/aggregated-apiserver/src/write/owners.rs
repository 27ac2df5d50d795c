//! Owner references: removes duplicates.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::{Tree, metadata, to_json};
use crate::schema::ERRORS_LIMIT;

/// The stage at which duplicate references were found, for the message of kube-apiserver.
#[derive(Clone, Copy)]
pub(super) enum Found {
    InTheRequest,
    AfterAdmission,
}

/// Drops duplicate owner references. Returns a warning about them.
pub(super) fn without_duplicates(tree: &mut Tree, found: Found) -> Option<String> {
    if !metadata::of(tree).contains_key("ownerReferences") {
        return None;
    }
    let mut duplicates: Vec<String> = Vec::new();
    metadata::edit(tree, |metadata| {
        let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") else { return };
        let mut seen: HashSet<String> = HashSet::new();
        owners.retain(|owner| {
            // `to_json` sorts the keys, so equal strings are equal references.
            let is_new = seen.insert(to_json(owner));
            if !is_new {
                let uid = owner["uid"].as_str().unwrap_or_default();
                duplicates.push(uid.to_owned());
            }
            is_new
        });
    });
    duplicates.sort_unstable();
    duplicates.dedup();
    duplicates.truncate(ERRORS_LIMIT);
    let when = match found {
        Found::InTheRequest => "",
        Found::AfterAdmission => " after mutating admission happens",
    };
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}
