//! Draft: an object between the stages of a write.

use std::sync::Arc;

use bytes::Bytes;

use super::field_managers::TrackedManagers;
use super::sent_managers::{SentManagers, SentText};
use crate::apply::Managers;
use crate::error::ApiError;
use crate::object::{Tree, metadata};
use crate::quota::Room;

/// An object as a client sent it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The object.
    pub tree: Tree,
    /// Problems with duplicate fields.
    pub duplicates: Vec<String>,
    /// The JSON document of the object, if problems are reported in the order of the document.
    pub json: Option<Bytes>,
    /// The `managedFields` of the document, if they were parsed apart from `tree`.
    pub managed_fields: Option<SentText>,
}

impl Submitted {
    /// An object that was not parsed from JSON.
    pub fn new(tree: Tree, duplicates: Vec<String>) -> Self {
        Self { tree, duplicates, json: None, managed_fields: None }
    }
}

/// An object between the stages of a write.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The object at the current stage, without `managedFields`.
    pub tree: Tree,
    /// The `managedFields` that the client has sent.
    pub sent_managers: SentManagers,
    /// The managers and the fields that they own, once they are computed.
    pub managers: Managers,
    /// Whether the object states this kind; otherwise no fields were pruned.
    pub is_kind: bool,
    /// The resourceVersion that the client has sent.
    pub revision: String,
    /// The messages of `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether the managers are already computed, because the object was applied.
    pub is_applied: bool,
    /// The memory that the tracking of managers has used. The allocator retains it until the write ends.
    pub tracking_memory: Option<Arc<Room>>,
}

impl Draft {
    pub(super) fn new(tree: Tree, is_kind: bool, warnings: Vec<String>) -> Self {
        let revision = metadata::text(&tree, "resourceVersion").to_owned();
        let (tree, sent_managers) = SentManagers::of(tree);
        let managers = Managers::default();
        Self {
            tree,
            sent_managers,
            managers,
            is_kind,
            revision,
            warnings,
            is_applied: false,
            tracking_memory: None,
        }
    }

    /// Sets the managers. The managers that the client has sent are not needed any more.
    pub(super) fn track(&mut self, TrackedManagers { managers, memory }: TrackedManagers) {
        self.managers = managers;
        self.sent_managers = SentManagers::default();
        self.tracking_memory = memory.map(Arc::new);
    }

    /// An error of the write, with the warnings that the client gets in any case.
    pub(super) fn refused(&self, error: ApiError) -> ApiError {
        match error.warnings() {
            [] => error.with_warnings(self.warnings.clone()),
            _ => error,
        }
    }
}
