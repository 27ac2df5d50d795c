//! Live: the stored object at the time of a write.

use std::sync::OnceLock;

use super::attributes::{Attributes, Part};
use super::change::DecodedChange;
use super::field_managers::with_managed_fields;
use super::store_error::unavailable;
use crate::apply::Managers;
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::object::{Tree, metadata};
use crate::quota::{self, Room};
use crate::storage::Versioned;
use bytes::Bytes;

/// The stored object at the time of a write.
#[derive(Debug)]
pub struct Live {
    /// The object in the version of the request, without `managedFields`.
    pub tree: Tree,
    /// The `managedFields` as JSON; empty if the object has no managers.
    managed_fields: Bytes,
    /// The parsed `managedFields`, once they were parsed.
    managers: OnceLock<Managers>,
    /// The resourceVersion.
    pub revision: String,
    /// The object in the storage version.
    pub kept: Versioned,
    /// Whether the write creates the object if it was deleted before the commit.
    pub is_created_if_missing: bool,
    tree_size: usize,
    /// The memory of the tree.
    _room: Room,
}

impl Live {
    /// The uid.
    pub fn uid(&self) -> &str {
        metadata::text(&self.tree, "uid")
    }

    /// The managers and the fields that they own. They are empty if `managedFields` cannot be parsed.
    pub fn managers(&self) -> &Managers {
        self.managers.get_or_init(|| Managers::read(&self.managed_fields).unwrap_or_default())
    }

    /// Whether the `managedFields` are exactly this JSON.
    pub fn says_of_managers(&self, managed_fields: &Bytes) -> bool {
        self.managed_fields == *managed_fields
    }

    /// Sets the managers, which were already parsed from the request, and returns them.
    pub fn managers_are(&self, managers: &Managers) -> &Managers {
        self.managers.get_or_init(|| managers.clone())
    }

    /// The size of the tree in memory, in bytes.
    pub fn tree_size(&self) -> usize {
        self.tree_size
    }

    /// The object with its resourceVersion, but without `managedFields`. Most patches are applied to this.
    pub fn with_revision(&self) -> Tree {
        let mut tree = self.tree.clone();
        set_revision(&mut tree, &self.revision);
        tree
    }

    /// The object with its resourceVersion and its `managedFields`, same as clients see it.
    ///
    /// # Errors
    /// 413 and 429 if it exceeds a memory limit.
    pub fn whole(&self, room: &mut Room) -> Result<Tree, ApiError> {
        // The patched `managedFields` are parsed and encoded once more.
        room.grow_to(quota::of_tree(&self.tree) + 2 * quota::of_json(&self.managed_fields))?;
        Ok(with_managed_fields(self.with_revision(), &self.managed_fields))
    }
}

/// Sets the resourceVersion of an object.
pub(super) fn set_revision(tree: &mut Tree, revision: &str) {
    metadata::edit(tree, |metadata| {
        metadata.insert("resourceVersion".to_owned(), revision.into());
    });
}

/// The object that the write changes; `None` if the write creates one.
///
/// # Errors
/// 404 if there is no object, or it is hidden from the user, and the write does not create it.
pub(super) async fn current(
    attributes: &Attributes<'_>,
    decoded: &DecodedChange<'_>,
) -> Result<Option<Live>, ApiError> {
    let kind = attributes.kind();
    let Some((store, collection)) = attributes.served.store() else {
        let verb = decoded.verb();
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, verb));
    };
    if let DecodedChange::Create(draft) = decoded {
        // The create is validated against other objects, so they must be as recent as the newest change that other
        // clients have seen.
        attributes.served.await_newest().await.map_err(unavailable)?;
        let name = draft.as_ref().map_or("", |draft| metadata::name(&draft.tree));
        return ensure_open(attributes, name).map(|()| None);
    }
    let key = attributes.key();
    let kept = attributes.stored((&**store, &collection), &key).await?;
    let may_create = match decoded {
        DecodedChange::Update(_) => kind.strategy.allows_create_on_update,
        DecodedChange::Apply(_) => true,
        _ => false,
    };
    let creates = may_create && attributes.part == Part::Main;
    // A hidden object is treated as missing. A client that may create objects gets the conflict of names only at the
    // end of its create.
    let Some(kept) = kept.filter(|kept| attributes.sees(&kept.object)) else {
        if creates {
            return ensure_open(attributes, key.name()).map(|()| None);
        }
        return Err(ApiError::not_found(&kind.group, &kind.names.plural, key.name()));
    };
    // During the conversion there are both objects in memory.
    let of_kept = kept.object.tree_size();
    let of_kept = if kind.is_shown_as_kept(&kept.object, attributes.version) { 0 } else { of_kept };
    let _converting = attributes.account.reserve(of_kept)?;
    let shown = || kind.in_version(&kept.object, attributes.version);
    let shown = known(kind, attributes.account, shown).await??;
    let tree_size = shown.tree_size();
    let _room = attributes.account.room(tree_size)?;
    let (tree, managed_fields) = shown.to_parts();
    Ok(Some(Live {
        tree,
        managed_fields,
        managers: OnceLock::new(),
        revision: kept.revision.to_string(),
        kept,
        is_created_if_missing: creates,
        tree_size,
        _room,
    }))
}

/// Rejects the creation of an object whose definition is being deleted.
fn ensure_open(attributes: &Attributes<'_>, name: &str) -> Result<(), ApiError> {
    if attributes.served.create_gate.is_closed() {
        Err(terminating(attributes.kind(), name))
    } else {
        Ok(())
    }
}

/// The error for a new object whose definition is being deleted: 403.
pub(super) fn terminating(kind: &Kind, name: &str) -> ApiError {
    let why = "create not allowed while custom resource definition is terminating";
    ApiError::forbidden(&kind.group, &kind.names.plural, name, why)
}
