//! DELETE: removes an object, or marks it as being deleted.

use std::sync::Arc;

use super::{DeleteOptions, with_warnings};
use crate::backend::{WriteError, WrittenObject};
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::{Kind, Names, Strategy};
use crate::object::{Key, Object};
use crate::storage::{Commit, Precondition, StoreError, Versioned};
use crate::write::{Attributes, MarkOptions, final_state, mark, store_error, validate_deletion};

/// The result of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object was removed.
    Gone {
        /// The name of the object.
        name: String,
        /// The uid of the object.
        uid: String,
        /// The last state of the object, if its kind returns deleted objects.
        shown: Option<Versioned>,
    },
    /// The object is marked as being deleted, because finalizers or a grace period hold it. It is removed once nothing
    /// holds it.
    Marked(Versioned),
}

/// Deletes an object, and returns warnings for the client. An error has them too.
///
/// # Errors
/// - 404 if the object does not exist or is hidden from the user.
/// - 409 if a precondition fails.
/// - 429 if the definition of the kind has been replaced during the request.
/// - 500 if a webhook fails to convert the object to the version of the request.
/// - The errors of admission.
pub async fn delete(
    attributes: &Attributes<'_>,
    key: &Key,
    options: &DeleteOptions,
) -> Result<(Deleted, Vec<String>), ApiError> {
    let mut warnings = options.warnings(attributes.kind());
    let deleted = delete_one(attributes, key, options, &mut warnings).await;
    with_warnings(deleted, warnings)
}

/// Deletes an object. Warnings for the client are added to `warnings`, even if the deletion fails.
pub(super) async fn delete_one(
    attributes: &Attributes<'_>,
    key: &Key,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<Deleted, ApiError> {
    let (kind, clock) = (attributes.kind(), attributes.environment.clock);
    let Some((store, collection)) = attributes.served.store() else {
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, "delete"));
    };
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    // The outcome of the first write of this deletion.
    let mut ended: Option<Deleted> = None;
    loop {
        let kept = attributes.visible((&**store, &collection), key).await?;
        let Some(kept) = kept else { return ended.ok_or_else(absent) };
        // That write changed the resourceVersion, so the precondition is not checked again.
        let asked = match &ended {
            None => options.clone(),
            Some(_) => DeleteOptions { resource_version: None, ..options.clone() },
        };
        check_options(attributes, key, &asked, &kept)?;
        if kind.is_converted_by_webhook() {
            // Same as kube-apiserver, which converts an object to the version of the request before it removes the
            // object.
            let read = || kind.in_version(&kept.object, attributes.version);
            known(kind, attributes.account, read).await??;
        }
        // If code of this process cannot convert the object, the object is removed as stored.
        let stored = || kind.in_storage_version(&kept.object);
        let shown = known(kind, attributes.account, stored).await?;
        if ended.is_none() {
            let live = || kind.in_version_or_as_kept(&kept.object, attributes.version);
            let size = kept.object.tree_size();
            // Admission sees the grace period that the strategy chooses.
            let options = || match kind.strategy.grace_period {
                None => options.to_tree(),
                Some(usual) => {
                    let usual = usual(&live());
                    let grace_period =
                        usual.map_or(0, |usual| options.grace_period.unwrap_or(usual));
                    DeleteOptions { grace_period: Some(grace_period), ..options.clone() }.to_tree()
                }
            };
            let revision = kept.revision.to_string();
            let kept = (&live as _, size, revision.as_str());
            validate_deletion(attributes, key, kept, &options, warnings).await?;
        }
        let Strategy { returns_deleted_object, .. } = kind.strategy;
        let how =
            MarkOptions { propagation: options.propagation, grace_period: options.grace_period };
        let marked = mark(&shown, &kind.strategy, &how, clock)?.map(Arc::new);
        if let Some(marked) = &marked {
            refuse_unstored(attributes, &kept.object, marked)?;
        }
        let gone = match &marked {
            None if returns_deleted_object => Some(final_state(&shown, &kind.strategy, clock)?),
            _ => None,
        };
        let gone = gone.map(Arc::new);
        let outcome = |revision| match &marked {
            Some(object) => Deleted::Marked(Versioned { revision, object: Arc::clone(object) }),
            None => {
                let uid = kept.object.uid().to_owned();
                let shown = gone.clone().map(|object| Versioned { revision, object });
                Deleted::Gone { name: key.name().to_owned(), uid, shown }
            }
        };
        let is_same = marked.as_ref().is_some_and(|marked| marked.same_content(&kept.object));
        if is_same || options.dry_run && !attributes.served.validates_dry_run() {
            return Ok(outcome(kept.revision));
        }
        let commit = |expected, object: Option<Arc<Object>>, marks| Commit {
            collection: collection.clone(),
            key: key.clone(),
            expected: Precondition::At(expected),
            marks,
            object,
        };
        let bytes = marked.as_ref().map_or(0, |one| one.size());
        let (entered, guards) = attributes.enter(bytes, (None, None)).await?;
        if options.dry_run {
            let commit = commit(kept.revision, marked.clone(), marked.is_some());
            match guards.dry_run(commit).await {
                Ok(_) => return Ok(outcome(kept.revision)),
                Err(error) => match overtaken(kind, key, error)? {
                    Overtaken::Deleted => return Err(absent()),
                    Overtaken::Changed => continue,
                },
            }
        }
        let mut expected = kept.revision;
        // kube-apiserver marks a Pod whose grace period is zero before it removes the Pod, so watches show a change and
        // then the removal.
        if let Some(gone) = gone.clone().filter(|_| kind.strategy.grace_period.is_some())
            && !gone.same_content(&kept.object)
        {
            match guards.commit(store, commit(expected, Some(gone), true), &entered).await {
                Ok(WrittenObject { revision, .. }) => {
                    entered.committed(false);
                    expected = revision;
                    ended = Some(outcome(revision));
                }
                Err(error) => match overtaken(kind, key, error)? {
                    Overtaken::Deleted => return ended.ok_or_else(absent),
                    Overtaken::Changed => continue,
                },
            }
        }
        let commit = commit(expected, marked.clone(), marked.is_some());
        match guards.commit(store, commit, &entered).await {
            Ok(WrittenObject { revision, .. }) => {
                entered.committed(false);
                return Ok(outcome(revision));
            }
            Err(error) => match overtaken(kind, key, error)? {
                Overtaken::Deleted => return ended.ok_or_else(absent),
                // Start again from the new state of the object.
                Overtaken::Changed => {}
            },
        }
        drop((guards, entered));
        // Yields, so that the deletion of a request that has ended is dropped here and does not start again.
        tokio::task::yield_now().await;
    }
}

/// Refuses to mark an object if the backend does not store the mark.
///
/// # Errors
/// 422 with the fields that the backend does not store.
fn refuse_unstored(
    attributes: &Attributes<'_>,
    old: &Object,
    marked: &Object,
) -> Result<(), ApiError> {
    let Some(session) = attributes.served.direct_session() else { return Ok(()) };
    let errors = session.unstored(Some(&old.to_tree()), &marked.to_tree());
    let kind = attributes.kind();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(&kind.group, &kind.names.kind, marked.key().name(), errors)),
    }
}

/// The change that another request has made to an object that this request deletes.
enum Overtaken {
    Deleted,
    Changed,
}

/// Finds out whether a write has failed because another request was faster.
///
/// # Errors
/// The error of the write, if it has another reason.
fn overtaken(kind: &Kind, key: &Key, error: WriteError) -> Result<Overtaken, ApiError> {
    match error {
        WriteError::Store(StoreError::Absent) => Ok(Overtaken::Deleted),
        WriteError::Store(StoreError::Changed { .. } | StoreError::Exists) => {
            Ok(Overtaken::Changed)
        }
        WriteError::Store(error) => Err(store_error(kind, key, error)),
        WriteError::Refused(error) => Err(error),
    }
}

/// Checks the preconditions of a deletion.
///
/// # Errors
/// 409 if a precondition fails.
pub(super) fn check_options(
    attributes: &Attributes<'_>,
    key: &Key,
    options: &DeleteOptions,
    kept: &Versioned,
) -> Result<(), ApiError> {
    let kind = attributes.kind();
    let (uid, version) = (options.uid.as_ref(), options.resource_version.as_ref());
    check(uid, version, kept, &kind.strategy).map_err(|cause| {
        let Names { plural, kind: name, .. } = &kind.names;
        let named = if kind.strategy.marked_by_time_alone { plural } else { name };
        ApiError::conflict(&kind.group, named, key.name(), &cause)
    })
}

fn check(
    uid: Option<&String>,
    version: Option<&String>,
    kept: &Versioned,
    strategy: &Strategy,
) -> Result<(), String> {
    // Kinds that only set `deletionTimestamp` have different messages.
    let is_brief = strategy.marked_by_time_alone;
    if let Some(uid) = uid
        && uid != kept.object.uid()
    {
        if is_brief {
            let own = kept.object.uid();
            return Err(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"
            ));
        }
        return Err(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            kept.object.uid()
        ));
    }
    if let Some(version) = version
        && *version != kept.revision.to_string()
    {
        if is_brief {
            return Err(format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {}",
                kept.revision
            ));
        }
        return Err(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            kept.revision
        ));
    }
    Ok(())
}
