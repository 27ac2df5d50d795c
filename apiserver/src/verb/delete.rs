//! DELETE: remove an object.

use crate::error::ApiError;
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::storage::{Commit, Expected, StoreError, Versioned};

/// What must be true of the object that is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resourceVersion, compared as text.
    pub resource_version: Option<String>,
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Removes an object.
///
/// # Errors
/// 404 when it is not there, 409 when a precondition is not met.
pub async fn delete(
    served: &ServedKind,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else {
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, "delete"));
    };
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    loop {
        let kept = store.get(&collection, key).await.map_err(ApiError::internal)?;
        let kept = kept.ok_or_else(absent)?;
        check(options, &kept).map_err(|cause| {
            ApiError::conflict(&kind.group, &kind.names.kind, key.name(), &cause)
        })?;
        let commit = Commit {
            collection: collection.clone(),
            key: key.clone(),
            expected: Expected::At(kept.revision),
            object: None,
        };
        match store.commit(commit).await {
            Ok(_) => {
                let uid = kept.object.uid().to_owned();
                return Ok(Deleted { name: key.name().to_owned(), uid });
            }
            Err(StoreError::Absent) => return Err(absent()),
            // Somebody else wrote it: look again.
            Err(StoreError::Changed { .. } | StoreError::Exists) => {}
            Err(error @ StoreError::Full { .. }) => return Err(ApiError::internal(error)),
        }
    }
}

fn check(options: &DeleteOptions, kept: &Versioned) -> Result<(), String> {
    if let Some(uid) = &options.uid
        && uid != kept.object.uid()
    {
        return Err(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            kept.object.uid()
        ));
    }
    if let Some(version) = &options.resource_version
        && *version != kept.revision.to_string()
    {
        return Err(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            kept.revision
        ));
    }
    Ok(())
}
