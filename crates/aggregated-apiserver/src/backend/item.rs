//! The objects that a backend and the library exchange.

use std::time::Duration;

use crate::user::User;

/// An object of a backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Item<T> {
    /// The object.
    pub object: T,
    /// The version of the object in the backend, such as a row version. The library passes it back when the object is
    /// changed or deleted, and clients never see it.
    pub etag: Option<String>,
}

impl<T> Item<T> {
    /// An object without an etag.
    pub fn new(object: T) -> Self {
        Self { object, etag: None }
    }

    /// Sets the version of the object in the backend.
    #[must_use]
    pub fn with_etag(self, etag: impl Into<String>) -> Self {
        Self { etag: Some(etag.into()), ..self }
    }
}

/// The objects of a backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing<T> {
    /// The objects.
    pub items: Vec<Item<T>>,
    /// Whether these are all objects. If so, the other known objects were deleted.
    pub is_complete: bool,
}

impl<T> Listing<T> {
    /// All objects. The objects that are not among them were deleted.
    pub fn complete(items: impl IntoIterator<Item = Item<T>>) -> Self {
        Self { items: items.into_iter().collect(), is_complete: true }
    }

    /// Some of the objects, because the others could not be read. The other known objects stay.
    pub fn partial(items: impl IntoIterator<Item = Item<T>>) -> Self {
        Self { is_complete: false, ..Self::complete(items) }
    }
}

/// A change of the objects of a backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change<T> {
    /// The stream starts, or has lost changes: these are the objects now.
    Restarted(Listing<T>),
    /// An object was created or changed.
    Applied(Item<T>),
    /// The object of this namespace and name was deleted.
    Deleted {
        /// The namespace; `None` if the kind is cluster-scoped.
        namespace: Option<String>,
        /// The name.
        name: String,
    },
}

/// The request that a write of a backend belongs to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WriteContext {
    /// The user of the request. It is `system:apiserver` for writes of the server itself.
    pub user: User,
    /// The field manager of the request; empty if the client has sent none.
    pub field_manager: String,
    /// The subresource of the request, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The audit ID of the request, same as in the audit log and in the header `Audit-Id` of the response. It is empty
    /// for writes of the server itself.
    pub audit_id: String,
    /// The time after which the library stops to wait for the backend.
    pub timeout: Duration,
    pub(super) is_dry_run: bool,
}

impl WriteContext {
    /// Whether the request is a dry run: the backend must check the write in the same way as others, return the same
    /// object or the same error, and store nothing. Only backends that
    /// [validate dry runs](crate::backend::VirtualKind::validates_dry_run) receive dry runs.
    ///
    /// ```
    /// use aggregated_apiserver::backend::{BackendError, WriteContext};
    ///
    /// async fn rename(context: &WriteContext, name: &str) -> Result<(), BackendError> {
    ///     if name.is_empty() {
    ///         return Err(BackendError::invalid("spec.name", "must not be empty"));
    ///     }
    ///     if context.is_dry_run() {
    ///         return Ok(());
    ///     }
    ///     // Stores the name.
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    pub(crate) fn new(user: &User, field_manager: &str, subresource: &'static str) -> Self {
        let (user, field_manager) = (user.clone(), field_manager.to_owned());
        let (audit_id, timeout) = (String::new(), Duration::MAX);
        Self { user, field_manager, subresource, audit_id, timeout, is_dry_run: false }
    }

    /// The same context for a dry run.
    pub(crate) fn for_dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }

    pub(crate) fn with_audit_id(self, audit_id: &str) -> Self {
        Self { audit_id: audit_id.to_owned(), ..self }
    }
}

/// The request that a read of a direct kind belongs to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReadContext {
    /// The user of the request.
    pub user: User,
    /// The time after which the library stops to wait for the backend.
    pub timeout: Duration,
}
