//! Writes as calls of a backend.

use std::sync::Arc;

use futures::FutureExt;

use super::erased::{ErasedBackend, slot};
use super::{BackendError, Item, Reason, WriteContext, objects};
use crate::object::{Object, Tree};

/// A write of one object.
pub(super) enum Write {
    /// Creates this object.
    Create(Arc<Object>),
    /// Replaces an object by another one. The backend stores these fields of its metadata.
    Update(Item<Tree>, Tree, Arc<[String]>),
    /// Deletes this object.
    Delete(Item<Tree>),
}

impl ErasedBackend {
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
                self.call(|| create(context, new)).await.map(Some)
            }
            Write::Update(old, new, kept)
                if !self.keeps_metadata
                    && objects::is_same_for_backend(&old.object, &new, &kept) =>
            {
                Ok(Some(Item { object: new, etag: old.etag }))
            }
            Write::Update(old, new, _) => {
                let update = self.update.as_ref().ok_or_else(|| unsupported("update"))?;
                self.call(|| update(context, old, new)).await.map(Some)
            }
            Write::Delete(old) => {
                let delete = self.delete.as_ref().ok_or_else(|| unsupported("delete"))?;
                let deleted = self.call(|| delete(context, old).boxed()).await;
                match deleted {
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
