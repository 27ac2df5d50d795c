//! Commit: stores an object, unless a concurrent write has changed it. From here on a write must not be cancelled
//! (`critical_section`).

use std::sync::Arc;

use super::attributes::{Attributes, Origin};
use super::critical_section::Entered;
use super::encode::Encoded;
use super::guards::{Guards, undo};
use super::live::Live;
use super::prepare::NameOrigin;
use super::stamp;
use super::store_error::store_error;
use crate::admission::{AdmittedNamespace, Reservation};
use crate::backend::{WriteError, WrittenObject};
use crate::error::{ApiError, Details, Reason, qualified, quote};
use crate::object::{Key, Object, metadata};
use crate::storage::{Collection, Commit, Precondition, Store, StoreError, Versioned};

/// The result of a commit.
pub(super) enum Committed {
    /// The object that is stored now, or would be without the dry run.
    At(Versioned),
    /// A concurrent write was faster, so the write must restart.
    Overtaken,
}

/// Further conditions for the storage of a new object.
pub(super) struct Conditions {
    /// The origin of its name.
    pub name: NameOrigin,
    /// Whether the write may restart if the name is taken.
    pub may_repeat: bool,
    /// The namespace in which the object was admitted, if admission has checked one.
    pub namespace: Option<AdmittedNamespace>,
    /// The usage that the object reserves in the quotas of its namespace, until the object is counted.
    pub reservation: Option<Reservation>,
}

/// Stores an object.
///
/// # Errors
/// - 409 if its name is taken.
/// - 404 if the object was deleted.
/// - 403 if its namespace has reached its limit in the store.
/// - 507 if the store is full.
/// - 503 if the store does not respond.
/// - 504 if the outcome is unknown.
/// - 429 if another definition has replaced the one that has validated the object. Clients retry it automatically.
pub(super) async fn commit(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    (encoded, revision): (Encoded, &str),
    conditions: Conditions,
) -> Result<Committed, ApiError> {
    let Some((store, collection)) = attributes.served.store() else {
        return Err(ApiError::internal("what is not kept is written"));
    };
    let Conditions { name, may_repeat, namespace, reservation } = conditions;
    if let (None, Some(namespace)) = (live, &namespace) {
        let (kind, user) = (attributes.kind(), &attributes.user.name);
        let object = (&*kind.group, &*kind.names.plural, encoded.object.key().name());
        namespace.check(user, object).await?;
    }
    let admitted = (namespace, reservation);
    let (entered, guards) = attributes.enter(encoded.object.size(), admitted).await?;
    let guards = (&entered, &guards);
    let committed = match live {
        Some(live) => replace(attributes, (store, collection), live, encoded, guards).await,
        None => {
            if attributes.origin == Origin::Request && !attributes.options.dry_run {
                stamp::refuse_revision(revision)?;
            }
            let object = Arc::new(encoded.object);
            create(attributes, (store, collection), object, (name, may_repeat), guards).await
        }
    };
    if matches!(committed, Ok(Committed::At(_))) {
        entered.committed(live.is_none());
    }
    committed
}

async fn replace(
    attributes: &Attributes<'_>,
    (store, collection): (&Arc<dyn Store>, Collection),
    live: &Live,
    Encoded { object, goes }: Encoded,
    (entered, guards): (&Entered<'_>, &Guards<'_>),
) -> Result<Committed, ApiError> {
    let kept = &live.kept;
    if object.same_content(&kept.object) {
        return Ok(Committed::At(kept.clone()));
    }
    let object = Arc::new(object);
    let commit = Commit {
        collection,
        key: attributes.key(),
        expected: Precondition::At(kept.revision),
        object: (!goes).then(|| Arc::clone(&object)),
        marks: lets_go(live, &object),
    };
    let committed = match attributes.options.dry_run {
        true => guards.dry_run(commit).await,
        false => guards.commit(store, commit, entered).await,
    };
    match committed {
        // The store has no later revision of an object that was removed.
        Ok(_) if goes => Ok(Committed::At(Versioned { revision: kept.revision, object })),
        Ok(written) => Ok(Committed::At(versioned(written, object))),
        Err(WriteError::Refused(error)) => Err(error),
        Err(WriteError::Store(error)) => replace_failed(attributes, live, &object, error),
    }
}

/// The object as it is stored: a backend may return another one than it has received.
fn versioned(written: WrittenObject, sent: Arc<Object>) -> Versioned {
    Versioned { revision: written.revision, object: written.object.unwrap_or(sent) }
}

fn replace_failed(
    attributes: &Attributes<'_>,
    live: &Live,
    object: &Object,
    error: StoreError,
) -> Result<Committed, ApiError> {
    match error {
        StoreError::Absent if live.is_created_if_missing => Ok(Committed::Overtaken),
        StoreError::Absent => {
            let kind = attributes.kind();
            let name = attributes.name.unwrap_or_default();
            Err(ApiError::not_found(&kind.group, &kind.names.plural, name))
        }
        StoreError::Changed { .. } | StoreError::Exists => Ok(Committed::Overtaken),
        error => Err(not_kept(attributes, object, error)),
    }
}

/// Bytes by which `managedFields` may grow when a finalizer is removed.
const MANAGERS: usize = 4 << 10;

/// Whether an update serves the deletion of an object that is being deleted: it removes finalizers, or leaves the object as
/// large as it is or smaller. Finalizers cannot be added to such an object, so its growth is limited.
fn lets_go(live: &Live, object: &Object) -> bool {
    if !metadata::is_being_deleted(&live.tree) {
        return false;
    }
    let growth = object.size().saturating_sub(live.kept.object.size());
    let before = metadata::finalizers(&live.tree).len();
    let removes = || metadata::finalizers(&object.to_tree()).len() < before;
    growth == 0 || (growth <= MANAGERS && removes())
}

async fn create(
    attributes: &Attributes<'_>,
    (store, collection): (&Arc<dyn Store>, Collection),
    object: Arc<Object>,
    name: (NameOrigin, bool),
    (entered, guards): (&Entered<'_>, &Guards<'_>),
) -> Result<Committed, ApiError> {
    let key = Key::new(attributes.namespace, object.key().name());
    if let Some(refusal) = guards.refusal(key.name()) {
        return Err(refusal);
    }
    let is_dry_run = attributes.options.dry_run;
    if is_dry_run && let Some(other) = attributes.stored((&**store, &collection), &key).await? {
        return taken(attributes, &key, Some(&other), name);
    }
    let commit = Commit {
        collection: collection.clone(),
        key: key.clone(),
        expected: Precondition::Absent,
        object: Some(Arc::clone(&object)),
        marks: false,
    };
    let committed = match is_dry_run {
        true => guards.dry_run(commit).await,
        false => guards.commit(store, commit, entered).await,
    };
    match committed {
        Ok(written) if is_dry_run => Ok(Committed::At(versioned(written, object))),
        Ok(written) => {
            // A withdrawal of the kind closes it first and then removes its objects: it has met this object, or the
            // kind is closed by now. The same holds for the deletion of a namespace.
            let versioned = versioned(written, object);
            let Some(refusal) = guards.refusal(key.name()) else {
                return Ok(Committed::At(versioned));
            };
            let Versioned { revision, object } = versioned;
            undo(&**store, (&collection, &key), revision, object.uid()).await;
            Err(refusal)
        }
        Err(WriteError::Refused(error)) => Err(error),
        Err(WriteError::Store(StoreError::Exists)) => {
            let other = attributes.stored((&**store, &collection), &key).await?;
            taken(attributes, &key, other.as_ref(), name)
        }
        Err(WriteError::Store(error)) => Err(not_kept(attributes, &object, error)),
    }
}

/// The error for an object that the store has not stored. A namespace that exceeds its limit gets the message of an
/// exceeded quota, because other namespaces can still store objects.
fn not_kept(attributes: &Attributes<'_>, object: &Object, error: StoreError) -> ApiError {
    let kind = attributes.kind();
    let advice = match attributes.origin {
        Origin::Request => "objects must be deleted or made smaller first",
        Origin::Restored => "--store-namespace-limit raises the limit",
    };
    match error {
        StoreError::ShareExceeded { requested, used, limit } => {
            let whose = match attributes.namespace {
                Some(namespace) => format!("namespace {namespace}"),
                None => "cluster-scoped objects".to_owned(),
            };
            let why = format!(
                "exceeded quota: share of {whose} in the store, requested: bytes={requested}, used: bytes={used}, limited: bytes={limit}: {advice}"
            );
            ApiError::forbidden(&kind.group, &kind.names.plural, object.key().name(), &why)
        }
        error => store_error(kind, object.key(), error),
    }
}

/// Handles a new object whose name is taken: the write restarts, or fails with 409.
fn taken(
    attributes: &Attributes<'_>,
    key: &Key,
    other: Option<&Versioned>,
    (name, may_repeat): (NameOrigin, bool),
) -> Result<Committed, ApiError> {
    let is_upsert = attributes.name.is_some();
    if may_repeat && (is_upsert || name.is_generated) {
        return Ok(Committed::Overtaken);
    }
    let make = if name.has_prefix { no_unique_name } else { ApiError::already_exists };
    let kind = attributes.kind();
    let error = make(&kind.group, &kind.names.plural, key.name());
    let is_going = |other: &Versioned| {
        attributes.sees(&other.object) && metadata::is_being_deleted(&other.object.to_tree())
    };
    Err(if other.is_some_and(is_going) { error.because("object is being deleted") } else { error })
}

fn no_unique_name(group: &str, plural: &str, name: &str) -> ApiError {
    let message = format!(
        "{} {} already exists, the server was not able to generate a unique name for the object",
        qualified(group, plural),
        quote(name)
    );
    ApiError::new(Reason::AlreadyExists, message).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: plural.to_owned(),
        retry_after_seconds: 1,
        ..Details::default()
    })
}
