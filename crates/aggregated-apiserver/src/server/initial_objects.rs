//! The objects of stored kinds at the start: initial objects, and objects that were copied from another server.

use std::sync::Arc;
use std::time::Duration;

use super::object_copy::CopiedObjects;
use super::parsed_kinds::fault;
use crate::clock::Clock;
use crate::error::{Reason, StartError};
use crate::object::{Object, Shape, Tree};
use crate::served_kind::ServedKind;
use crate::storage::{Collection, Commit, Failure, Precondition, Store, Versioned};
use crate::watch_cache::Scope;
use crate::write::{self, ManagedFields};

/// The time between two attempts to store the initial objects.
const BEGIN_AGAIN: Duration = Duration::from_secs(5);

/// Connects a cache with its collection, and stores the copied objects. They are not validated again: the deployed
/// server has validated them, and no object may be missing here.
pub(super) async fn copy(
    served: &ServedKind,
    store: &dyn Store,
    copied: &CopiedObjects,
    managed_fields: ManagedFields,
) -> Result<(), StartError> {
    let (kind, cache) = (&served.kind, &served.cache);
    let collection = Collection::new(&kind.qualified());
    let unusable = |error: String| fault(kind, "copied object", &error);
    let followed = store.follow(&collection, cache.clone()).await;
    followed.map_err(|error| unusable(error.to_string()))?;
    for tree in &copied.trees {
        let tree = managed_fields.of(tree.clone());
        let object = Object::from_tree(&tree).and_then(|one| kind.to_storage(one, &copied.version));
        let object = object.map_err(|error| unusable(error.to_string()))?;
        let object = object.of_shape(Shape::of_another_server());
        let commit = Commit {
            collection: collection.clone(),
            key: object.key().clone(),
            expected: Precondition::Absent,
            object: Some(Arc::new(object)),
            marks: false,
        };
        store.commit(commit).await.map_err(|error| unusable(error.to_string()))?;
    }
    cache.mark_synced();
    Ok(())
}

/// The initial objects of a kind in a new store.
pub(super) struct Beginning {
    pub served: ServedKind,
    pub initial: Vec<Result<Tree, String>>,
}

/// Stores the initial objects, and marks all kinds as synced.
pub(super) async fn begin(
    beginnings: &[Beginning],
    store: &dyn Store,
    (managed_fields, clock): &(ManagedFields, Clock),
) -> Result<(), StartError> {
    // Initial objects that a user has deleted are not created again at the next start.
    let is_new = store.is_new();
    beginnings.iter().try_for_each(|beginning| check_versions(&beginning.served))?;
    for Beginning { served, initial } in beginnings {
        let kind = &served.kind;
        let initial = if is_new { &initial[..] } else { &[] };
        for (index, tree) in initial.iter().enumerate() {
            let field = format!("initial object {index}");
            let tree = tree.clone().map_err(|error| fault(kind, &field, &error))?;
            let version = kind.version_of(&tree).unwrap_or(&kind.storage);
            match write::restore(served, version, managed_fields.of(tree), clock).await {
                Err(error) if error.reason() != Reason::AlreadyExists => {
                    return Err(fault(kind, &field, &error.to_string()));
                }
                _ => {}
            }
        }
        served.cache.mark_synced();
    }
    if is_new {
        let noted = store.note_begun().await;
        noted.map_err(|error| StartError::Store(error.to_string()))?;
    }
    Ok(())
}

/// Rejects stored objects in versions that their kind does not have. Such objects could be shown only in part, and a
/// write of this part would lose the rest.
fn check_versions(served: &ServedKind) -> Result<(), StartError> {
    let kind = &served.kind;
    let kept = served.cache.snapshot();
    let unknown = kept.from(&Scope::All, None).find(|kept| !kind.knows_version_of(&kept.object));
    match unknown {
        None => Ok(()),
        Some(Versioned { object, .. }) => Err(StartError::Version {
            kind: kind.qualified(),
            key: object.key().to_string(),
            version: object.api_version().into_owned(),
        }),
    }
}

/// Same as [`begin`], once the store has been read. Failed attempts are repeated.
pub(super) async fn begin_later(
    beginnings: Vec<Beginning>,
    store: Arc<dyn Store>,
    how: (ManagedFields, Clock),
    refused: Arc<Failure>,
) {
    store.known().await;
    let checked = beginnings.iter().try_for_each(|beginning| check_versions(&beginning.served));
    if let Err(error) = checked {
        refused.set(error.to_string());
        return;
    }
    beginnings.iter().for_each(|beginning| beginning.served.cache.mark_synced());
    while let Err(error) = begin(&beginnings, &*store, &how).await {
        if let StartError::Version { .. } = error {
            refused.set(error.to_string());
            return;
        }
        tracing::error!(
            %error,
            retry_seconds = BEGIN_AGAIN.as_secs(),
            "cannot connect to the cluster"
        );
        tokio::time::sleep(BEGIN_AGAIN).await;
    }
}
