//! Restores the initial objects of a server.

use std::sync::Arc;

use futures::{StreamExt, stream};
use serde_json::Value;
use thiserror::Error;

use super::RuntimeKinds;
use crate::error::{ApiError, Reason};
use crate::kind::Version;
use crate::object::{Key, Tree, metadata};
use crate::request::Handler;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::write;

/// The largest number of unchecked objects that are committed concurrently, so that the store can write them together.
const COMMITS: usize = 64;

/// The reason why an object cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// An object with this name exists.
    #[error("is there already")]
    Exists,
    /// The store or its disk has no space for the object.
    #[error("{0}")]
    NoRoom(String),
    /// The object cannot be stored.
    #[error("{0}")]
    Unfit(String),
}

impl From<ApiError> for RestoreError {
    fn from(error: ApiError) -> Self {
        match error.reason() {
            Reason::AlreadyExists => Self::Exists,
            Reason::InsufficientStorage => Self::NoRoom(error.to_string()),
            _ => Self::Unfit(error.to_string()),
        }
    }
}

impl RuntimeKinds {
    /// Stores an initial object of a server unchanged, with its uid and its status. An object that needs a namespace
    /// and has none gets `default`. If the object is known to exist, nothing is written.
    ///
    /// # Errors
    /// The reason why the object cannot be stored.
    pub async fn restore(&self, object: Value) -> Result<(), RestoreError> {
        let Value::Object(mut tree) = object else {
            return Err(RestoreError::Unfit("is no object".to_owned()));
        };
        let Some(handler) = self.0.handler.upgrade() else { return Ok(()) };
        let kinds = handler.kinds();
        let (served, version) = served_kind(&kinds, &tree)?;
        if served.kind.is_namespaced() {
            metadata::edit(&mut tree, |metadata| {
                metadata.entry("namespace").or_insert_with(|| "default".into());
            });
        }
        let namespace = Some(metadata::text(&tree, "namespace")).filter(|name| !name.is_empty());
        if served.cache.get(&Key::new(namespace, metadata::name(&tree))).is_some() {
            return Err(RestoreError::Exists);
        }
        let tree = handler.managed_fields().of(tree);
        Ok(write::restore(served, version, tree, &self.0.clock).await?)
    }

    /// Stores objects that are part of the program, concurrently and unchanged. They are neither validated nor
    /// admitted, so tests of the program must show that they are valid. An object gets a uid, and a creation time if it
    /// has none. The results are in the order of the objects.
    pub async fn restore_unchecked(&self, objects: Vec<Tree>) -> Vec<Result<(), RestoreError>> {
        let Some(handler) = self.0.handler.upgrade() else { return Vec::new() };
        let handler = &handler;
        let restored = objects.into_iter().map(|tree| self.restore_one_unchecked(handler, tree));
        stream::iter(restored).buffered(COMMITS).collect().await
    }

    async fn restore_one_unchecked(
        &self,
        handler: &Arc<Handler>,
        tree: Tree,
    ) -> Result<(), RestoreError> {
        let kinds = handler.kinds();
        let (served, version) = served_kind(&kinds, &tree)?;
        let tree = handler.managed_fields().of(tree);
        Ok(write::restore_unchecked(served, version, tree, &self.0.clock).await?)
    }
}

/// The kind and the version of an object, if the server stores such objects.
fn served_kind<'a>(
    kinds: &'a ServedKinds,
    tree: &Tree,
) -> Result<(&'a ServedKind, &'a Version), RestoreError> {
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_meant =
        |served: &&ServedKind| served.kind.group == group && served.kind.names.kind == kind;
    let served = kinds.iter().find(is_meant).filter(|served| served.is_stored());
    let found = served.and_then(|served| Some((served, &**served.kind.version(version)?)));
    found.ok_or_else(|| {
        let why = "is not served: give its CustomResourceDefinition too";
        RestoreError::Unfit(format!("{api_version} {kind} {why}"))
    })
}
