//! Restore: stores objects from elsewhere, when a server starts.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::attributes::{Attributes, CreateAuthorizer, Environment, Origin, Part, WriteOptions};
use super::change::Change;
use super::critical_section::CriticalSection;
use super::draft::Submitted;
use super::field_managers::ManagedFields;
use super::field_validation::FieldValidation;
use super::guards::UnsettledWrites;
use super::pipeline::write;
use super::slow_writes::SlowWrites;
use super::stamp;
use super::store_error::store_error;
use crate::admission::AdmissionChain;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::kind::Version;
use crate::object::{Object, Tree, metadata};
use crate::quota::Account;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::storage::{Commit, Precondition, StoreError};
use crate::user::User;

/// The user of the writes at the start of a server.
const USER: &str = "system:apiserver";

/// Allows every create, because no client has sent the write.
pub(super) struct AlwaysAllow;

impl CreateAuthorizer for AlwaysAllow {
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        ready(Ok(())).boxed()
    }
}

/// Stores an object with its uid, status, generation and creation time. The object is validated, but admission is not
/// called. Its resourceVersion and its deletion mark are ignored.
///
/// # Errors
/// The validation errors; 409 if an object of its name exists.
pub async fn restore(
    served: &ServedKind,
    version: &Version,
    tree: Tree,
    clock: &Clock,
) -> Result<(), ApiError> {
    let namespace = metadata::of(&tree).get("namespace").and_then(|value| value.as_str());
    let namespace = namespace.map(str::to_owned);
    if namespace.is_some() != served.kind.is_namespaced() {
        let scope = if served.kind.is_namespaced() { "must be set" } else { "must not be set" };
        return Err(ApiError::bad_request(format!("metadata.namespace: {scope}")));
    }
    let options =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    let user = User { name: USER.to_owned(), ..User::default() };
    let attributes = Attributes {
        served,
        version,
        part: Part::Main,
        namespace: namespace.as_deref(),
        name: None,
        options: &options,
        user: &user,
        now: clock.now(),
        origin: Origin::Restored,
        account: &Account::own(),
        environment: Environment {
            clock,
            admission: &AdmissionChain::default(),
            kinds: &ServedKinds::default(),
            turns: &SlowWrites::default(),
            unsettled: &UnsettledWrites::default(),
            managed_fields: ManagedFields::default(),
        },
        authorizer: &AlwaysAllow,
        section: &CriticalSection::default(),
        audit: None,
    };
    let submitted = Submitted::new(tree, Vec::new());
    // Boxed, so that the future that starts a server does not contain the large future of a write.
    Box::pin(write(&attributes, Change::Create(submitted))).await.map(drop)
}

/// Stores an object that is part of the program, without validation. Sets the fields that the server sets in new
/// objects, unless the object has them.
///
/// # Errors
/// 409 if an object of its name exists, and the errors of the store.
pub async fn restore_unchecked(
    served: &ServedKind,
    version: &Version,
    mut tree: Tree,
    clock: &Clock,
) -> Result<(), ApiError> {
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else {
        return Err(ApiError::internal("what is not kept is written"));
    };
    stamp::stamp(&mut tree, &kind.strategy, clock);
    let object = Object::from_tree(&tree).and_then(|object| kind.to_storage(object, version));
    let object = Arc::new(object.map_err(ApiError::internal)?);
    let commit = Commit {
        collection,
        key: object.key().clone(),
        expected: Precondition::Absent,
        object: Some(Arc::clone(&object)),
        marks: false,
    };
    match store.commit(commit).await {
        Ok(_) => Ok(()),
        Err(StoreError::Exists) => {
            Err(ApiError::already_exists(&kind.group, &kind.names.plural, object.key().name()))
        }
        Err(error) => Err(store_error(kind, object.key(), error)),
    }
}
