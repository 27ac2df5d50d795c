//! What UPDATE and PATCH have in common: change an object as it is now, and
//! again if somebody else was faster.

use std::sync::Arc;

use crate::error::ApiError;
use crate::kind::{RuleContext, Version};
use crate::object::Key;
use crate::quota::{Account, Room};
use crate::served_kind::ServedKind;
use crate::storage::{Commit, Expected, StoreError, Versioned};
use crate::write::{Change, Decoded, FieldValidation, Live, Part, PreparedChange, prepare_change};

/// A write to an object that is there: everything but what becomes of it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The kind.
    pub served: &'a ServedKind,
    /// The version of the request.
    pub version: &'a Version,
    /// Where the object is.
    pub key: &'a Key,
    /// What of it is changed.
    pub part: Part,
    /// What happens to members that are unknown or given twice.
    pub field_validation: FieldValidation,
    /// Who writes, and when.
    pub context: &'a RuleContext<'a>,
    /// What the write takes.
    pub account: &'a Account,
}

/// An object that was changed, or would have been.
#[derive(Debug)]
pub struct Changed {
    /// The object, as it is now.
    pub versioned: Versioned,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Changes the object under the key to what `make` makes of it.
///
/// # Errors
/// 404 when there is none; those of `make`; 409 and 422 when the change may
/// not be made.
pub(super) async fn change(
    attributes: &Attributes<'_>,
    mut make: impl FnMut(&Live, &mut Room) -> Result<Decoded, ApiError>,
) -> Result<Changed, ApiError> {
    let Attributes { served, version, key, part, context, account, .. } = *attributes;
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else {
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, "update"));
    };
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    loop {
        let kept = store.get(&collection, key).await.map_err(ApiError::internal)?;
        let kept = kept.ok_or_else(absent)?;
        let _room_of_live = account.room(kept.object.tree_size())?;
        let tree = kind.in_version(&kept.object, version).to_tree();
        let (revision, size) = (kept.revision.to_string(), kept.object.json_size());
        let live = Live { tree, revision, size };
        let mut room = account.room(0)?;
        let decoded = make(&live, &mut room)?;
        let PreparedChange { change, warnings } =
            prepare_change(kind, version, &live, decoded, part, context)?;
        let changed = |revision, object| {
            let versioned = Versioned { revision, object };
            Ok(Changed { versioned, warnings: warnings.clone() })
        };
        let (object, goes) = match change {
            Change::Kept(object) => (object, false),
            Change::Gone(object) => (object, true),
        };
        let object = Arc::new(kind.to_storage(object, version).map_err(ApiError::internal)?);
        if object.same_content(&kept.object) {
            return changed(kept.revision, kept.object);
        }
        if context.dry_run {
            return changed(kept.revision, object);
        }
        let commit = Commit {
            collection: collection.clone(),
            key: key.clone(),
            expected: Expected::At(kept.revision),
            object: (!goes).then(|| Arc::clone(&object)),
            marks: false,
        };
        match store.commit(commit).await {
            // Of an object that has gone nothing more was written.
            Ok(_) if goes => return changed(kept.revision, object),
            Ok(revision) => return changed(revision, object),
            Err(StoreError::Absent) => return Err(absent()),
            // Somebody else was faster: look again.
            Err(StoreError::Changed { .. } | StoreError::Exists) => {}
            Err(error @ StoreError::Full { .. }) => return Err(ApiError::internal(error)),
        }
        tokio::task::yield_now().await;
    }
}
