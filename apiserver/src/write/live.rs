//! Live: the object that is there when it is written.

use super::attributes::{Attributes, Part};
use super::change::DecodedChange;
use crate::error::{ApiError, Reason};
use crate::object::{Tree, metadata};
use crate::quota::Room;
use crate::storage::Versioned;

/// An object that is there.
#[derive(Debug)]
pub struct Live {
    /// As the version of the request shows it.
    pub tree: Tree,
    /// Its resourceVersion.
    pub revision: String,
    /// As it is kept.
    pub kept: Versioned,
    /// Whether the write creates the object, should it be gone when it is committed.
    pub is_created_if_missing: bool,
    /// What its tree takes.
    _room: Room,
}

impl Live {
    /// Its uid.
    pub fn uid(&self) -> &str {
        metadata::text(&self.tree, "uid")
    }

    /// The object with its resourceVersion, as a patch meets it.
    pub fn with_revision(&self) -> Tree {
        let mut tree = self.tree.clone();
        set_revision(&mut tree, &self.revision);
        tree
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
/// 404 when there is none, and the write does not create it.
pub(super) async fn current(
    attributes: &Attributes<'_>,
    decoded: &DecodedChange<'_>,
) -> Result<Option<Live>, ApiError> {
    let kind = attributes.kind();
    let Some((store, collection)) = attributes.served.store() else {
        let verb = decoded.verb();
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, verb));
    };
    if let DecodedChange::Create(_) = decoded {
        return ensure_open(attributes).map(|()| None);
    }
    let key = attributes.key();
    let kept = store.get(&collection, &key).await.map_err(ApiError::internal)?;
    let may_create = match decoded {
        DecodedChange::Update(_) => kind.strategy.allows_create_on_update,
        DecodedChange::Apply(_) => true,
        _ => false,
    };
    let creates = may_create && attributes.part == Part::Main;
    let Some(kept) = kept else {
        if creates {
            return ensure_open(attributes).map(|()| None);
        }
        return Err(ApiError::not_found(&kind.group, &kind.names.plural, key.name()));
    };
    let shown = kind.in_version(&kept.object, attributes.version)?;
    let _room = attributes.account.room(shown.tree_size())?;
    let tree = shown.to_tree();
    Ok(Some(Live {
        tree,
        revision: kept.revision.to_string(),
        kept,
        is_created_if_missing: creates,
        _room,
    }))
}

/// Refuses to create an object of a kind whose definition is going.
fn ensure_open(attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if attributes.served.intake.is_closed() { Err(terminating()) } else { Ok(()) }
}

/// What is said of a new object of a kind whose definition is going.
pub(super) fn terminating() -> ApiError {
    let message = "create not allowed while custom resource definition is terminating";
    ApiError::new(Reason::MethodNotAllowed, message)
}
