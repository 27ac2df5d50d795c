//! Writes as calls of a backend, without its type: objects are trees.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::erased::{caught, slot, to_item};
use super::{BackendError, Create, Delete, Item, Reason, Update, WriteContext, objects};
use crate::object::{Object, Tree};

/// The default timeout of a call of a backend.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of calls that one backend processes at the same time. Further calls wait.
pub(super) const CALLS: usize = 64;

type CreateCall = Box<
    dyn Fn(WriteContext, Arc<Object>) -> BoxFuture<'static, Result<Item<Tree>, BackendError>>
        + Send
        + Sync,
>;
type UpdateCall = Box<
    dyn Fn(WriteContext, Item<Tree>, Tree) -> BoxFuture<'static, Result<Item<Tree>, BackendError>>
        + Send
        + Sync,
>;
type DeleteCall = Box<
    dyn Fn(WriteContext, Item<Tree>) -> BoxFuture<'static, Result<(), BackendError>> + Send + Sync,
>;

/// The writes that a backend supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub create: bool,
    pub update: bool,
    pub delete: bool,
}

/// A write of one object.
pub(super) enum Write {
    /// Creates this object.
    Create(Arc<Object>),
    /// Replaces an object by another one. The backend stores these fields of its metadata.
    Update(Item<Tree>, Tree, Arc<[String]>),
    /// Deletes this object.
    Delete(Item<Tree>),
}

/// The writes of a backend.
pub(super) struct Writer {
    pub create: Option<CreateCall>,
    pub update: Option<UpdateCall>,
    pub delete: Option<DeleteCall>,
    /// Whether the backend stores the whole `metadata` of its objects.
    pub keeps_metadata: bool,
    /// The fields of the metadata that the backend stores.
    pub kept_metadata: Arc<[String]>,
    /// Whether the backend validates dry runs.
    pub validates_dry_run: bool,
    /// Limits the writes that run at the same time.
    pub calls: Semaphore,
    /// The timeout of each call.
    pub timeout: Duration,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            create: None,
            update: None,
            delete: None,
            keeps_metadata: false,
            kept_metadata: Arc::default(),
            validates_dry_run: false,
            calls: Semaphore::new(CALLS),
            timeout: TIMEOUT,
        }
    }
}

impl Writer {
    /// The writes that the backend supports.
    pub(super) fn writes(&self) -> Writes {
        Writes {
            create: self.create.is_some(),
            update: self.update.is_some(),
            delete: self.delete.is_some(),
        }
    }

    /// Sends a write to the backend. Returns the object as the backend has stored it; `None` after a deletion. A change
    /// of metadata that the backend does not store is not sent.
    ///
    /// # Errors
    /// The error of the backend.
    pub(super) async fn write(
        &self,
        context: WriteContext,
        write: Write,
    ) -> Result<Option<Item<Tree>>, BackendError> {
        let Some(_slot) = slot(&self.calls, self.timeout).await else {
            return Err(BackendError::Unavailable("too many calls are running".to_owned()));
        };
        let context = WriteContext { timeout: self.timeout, ..context };
        match write {
            Write::Create(new) => {
                let create = self.create.as_ref().ok_or_else(|| unsupported("create"))?;
                caught(self.timeout, || create(context, new)).await.map(Some)
            }
            Write::Update(old, new, kept)
                if !self.keeps_metadata
                    && objects::is_same_for_backend(&old.object, &new, &kept) =>
            {
                Ok(Some(Item { object: new, etag: old.etag }))
            }
            Write::Update(old, new, _) => {
                let update = self.update.as_ref().ok_or_else(|| unsupported("update"))?;
                caught(self.timeout, || update(context, old, new)).await.map(Some)
            }
            Write::Delete(old) => {
                let delete = self.delete.as_ref().ok_or_else(|| unsupported("delete"))?;
                match caught(self.timeout, || delete(context, old)).await {
                    // The object was deleted before, so the client has what it asks for.
                    Ok(()) | Err(BackendError::NotFound) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

fn unsupported(verb: &str) -> BackendError {
    let why = format!("the backend does not support {verb}");
    BackendError::rejected(Reason::MethodNotAllowed, why)
}

pub(super) fn create<B: Create>(backend: &Arc<B>) -> CreateCall {
    let backend = Arc::clone(backend);
    Box::new(move |context, object| {
        let backend = Arc::clone(&backend);
        async move { to_item(backend.create(&context, from_object(&object)?).await?) }.boxed()
    })
}

pub(super) fn update<B: Update>(backend: &Arc<B>) -> UpdateCall {
    let backend = Arc::clone(backend);
    Box::new(move |context, old, object| {
        let backend = Arc::clone(&backend);
        async move {
            let (old, object) = (from_item(old)?, from_tree(object)?);
            to_item(backend.update(&context, old, object).await?)
        }
        .boxed()
    })
}

pub(super) fn delete<B: Delete>(backend: &Arc<B>) -> DeleteCall {
    let backend = Arc::clone(backend);
    Box::new(move |context, old| {
        let backend = Arc::clone(&backend);
        async move { backend.delete(&context, from_item(old)?).await }.boxed()
    })
}

fn from_item<B: DeserializeOwned>(
    Item { object, etag }: Item<Tree>,
) -> Result<Item<B>, BackendError> {
    Ok(Item { object: from_tree(object)?, etag })
}

/// Decodes an object as the type of the backend.
fn from_tree<T: DeserializeOwned>(tree: Tree) -> Result<T, BackendError> {
    serde_json::from_value(Value::Object(tree)).map_err(|error| of_other_type(&error))
}

/// Decodes an object as the type of the backend, without a tree in between.
fn from_object<T: DeserializeOwned>(object: &Object) -> Result<T, BackendError> {
    serde_json::from_slice(&object.json()).map_err(|error| of_other_type(&error))
}

fn of_other_type(error: &serde_json::Error) -> BackendError {
    BackendError::internal(format!("the object does not fit the type of the backend: {error}"))
}
