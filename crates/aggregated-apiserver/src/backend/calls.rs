//! Writes as calls of a backend.

use futures::FutureExt;

use super::erased::ErasedBackend;
use super::{BackendError, Item, Reason, WriteContext, objects};
use crate::object::Tree;

/// A write of one object.
pub(super) enum Write {
    /// Creates this object.
    Create(Tree),
    /// Replaces an object by another one.
    Update(Item<Tree>, Tree),
    /// Deletes this object.
    Delete(Item<Tree>),
}

impl ErasedBackend {
    /// Sends a write to the backend. Returns the object as the backend has stored it; `None` after a deletion. A change
    /// of the metadata alone is only sent to a backend that stores metadata.
    ///
    /// # Errors
    /// The error of the backend.
    pub(super) async fn write(
        &self,
        context: WriteContext,
        write: Write,
    ) -> Result<Option<Item<Tree>>, BackendError> {
        let context = WriteContext { timeout: self.timeout, ..context };
        match write {
            Write::Create(new) => {
                let create = self.create.as_ref().ok_or_else(|| unsupported("create"))?;
                self.call(|| create(context, new)).await.map(Some)
            }
            Write::Update(old, new)
                if !self.keeps_metadata && objects::has_same_content(&old.object, &new) =>
            {
                Ok(Some(Item { object: new, etag: old.etag }))
            }
            Write::Update(old, new) => {
                let update = self.update.as_ref().ok_or_else(|| unsupported("update"))?;
                self.call(|| update(context, old, new)).await.map(Some)
            }
            Write::Delete(old) => {
                let delete = self.delete.as_ref().ok_or_else(|| unsupported("delete"))?;
                match self
                    .call(|| delete(context, old).map(|deleted| deleted.map(|()| None)).boxed())
                    .await
                {
                    // The object was deleted before, so the client has what it asks for.
                    Err(BackendError::NotFound) => Ok(None),
                    outcome => outcome,
                }
            }
        }
    }
}

fn unsupported(verb: &str) -> BackendError {
    let why = format!("the backend does not support {verb}");
    BackendError::rejected(Reason::MethodNotAllowed, why)
}
