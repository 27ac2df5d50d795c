//! Live: the object that is there when it is written.

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

/// An object that is there.
#[derive(Debug)]
pub struct Live {
    /// As the version of the request shows it, without what is said of its managers.
    pub tree: Tree,
    /// What is said of them, as JSON; nothing if nothing is.
    managed_fields: Bytes,
    /// The same, once it was read.
    managers: OnceLock<Managers>,
    /// Its resourceVersion.
    pub revision: String,
    /// As it is kept.
    pub kept: Versioned,
    /// Whether the write creates the object, should it be gone when it is committed.
    pub is_created_if_missing: bool,
    tree_size: usize,
    /// The memory that its tree takes.
    _room: Room,
}

impl Live {
    /// Its uid.
    pub fn uid(&self) -> &str {
        metadata::text(&self.tree, "uid")
    }

    /// Who owns which of its fields. What cannot be read is nobody's.
    pub fn managers(&self) -> &Managers {
        self.managers.get_or_init(|| Managers::read(&self.managed_fields).unwrap_or_default())
    }

    /// Whether this is what is said of its managers, to the letter.
    pub fn says_of_managers(&self, managed_fields: &Bytes) -> bool {
        self.managed_fields == *managed_fields
    }

    /// Who owns which of its fields, where that was read from the request already.
    pub fn managers_are(&self, managers: &Managers) -> &Managers {
        self.managers.get_or_init(|| managers.clone())
    }

    /// What its tree takes.
    pub fn tree_size(&self) -> usize {
        self.tree_size
    }

    /// The object with its resourceVersion, as most patches meet it.
    pub fn with_revision(&self) -> Tree {
        let mut tree = self.tree.clone();
        set_revision(&mut tree, &self.revision);
        tree
    }

    /// The same with what is said of its managers, as clients see it.
    ///
    /// # Errors
    /// 413 and 429 when there is no room for it.
    pub fn whole(&self, room: &mut Room) -> Result<Tree, ApiError> {
        // What becomes of it is read and written once more.
        room.grow_to(quota::of_tree(&self.tree) + 2 * quota::of_json(&self.managed_fields))?;
        Ok(with_managed_fields(self.with_revision(), &self.managed_fields))
    }
}

/// Says in an object which version of it this is.
pub(super) fn set_revision(tree: &mut Tree, revision: &str) {
    metadata::edit(tree, |metadata| {
        metadata.insert("resourceVersion".to_owned(), revision.into());
    });
}

/// The object that is to be changed; `None` if one is to be created.
///
/// # Errors
/// 404 when there is none, or it is hidden from the user, and the write does not create it.
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
        // What it is held against must be as new as others have been told.
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
    // What is hidden is not there: whoever may create learns at the end of its creation that the name is taken.
    let Some(kept) = kept.filter(|kept| attributes.sees(&kept.object)) else {
        if creates {
            return ensure_open(attributes, key.name()).map(|()| None);
        }
        return Err(ApiError::not_found(&kind.group, &kind.names.plural, key.name()));
    };
    // While it is converted there are both.
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
    if attributes.served.intake.is_closed() {
        Err(terminating(attributes.kind(), name))
    } else {
        Ok(())
    }
}

/// The refusal of a new object whose definition is being deleted: 403.
pub(super) fn terminating(kind: &Kind, name: &str) -> ApiError {
    let why = "create not allowed while custom resource definition is terminating";
    ApiError::forbidden(&kind.group, &kind.names.plural, name, why)
}
