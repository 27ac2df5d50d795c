//! Draft: an object on its way through a write.

use bytes::Bytes;

use super::sent_managers::{SentManagers, SentText};
use crate::apply::Managers;
use crate::error::ApiError;
use crate::object::{Tree, metadata};

/// An object as a client sent it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The object.
    pub tree: Tree,
    /// Problems with fields that were given more than once.
    pub duplicates: Vec<String>,
    /// The JSON that it was read from, if problems are reported in the order of the document.
    pub json: Option<Bytes>,
    /// What it says of its managers, if that does not stand in it.
    pub managed_fields: Option<SentText>,
}

impl Submitted {
    /// An object that was not read from JSON.
    pub fn new(tree: Tree, duplicates: Vec<String>) -> Self {
        Self { tree, duplicates, json: None, managed_fields: None }
    }
}

/// An object on its way through a write.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The object, as far as it is made, without what is said of its managers.
    pub tree: Tree,
    /// What it said of its managers when it came.
    pub sent_managers: SentManagers,
    /// Who owns which fields, once that is known.
    pub managers: Managers,
    /// Whether it says that it is of this kind; otherwise nothing was pruned.
    pub is_kind: bool,
    /// The resourceVersion that it came with.
    pub revision: String,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether it is known already who owns what, because it was applied.
    pub is_applied: bool,
}

impl Draft {
    pub(super) fn new(tree: Tree, is_kind: bool, warnings: Vec<String>) -> Self {
        let revision = metadata::text(&tree, "resourceVersion").to_owned();
        let (tree, sent_managers) = SentManagers::of(tree);
        let managers = Managers::default();
        Self { tree, sent_managers, managers, is_kind, revision, warnings, is_applied: false }
    }

    /// A refusal of the write, with the warnings that its author is given all the same.
    pub(super) fn refused(&self, error: ApiError) -> ApiError {
        match error.warnings() {
            [] => error.with_warnings(self.warnings.clone()),
            _ => error,
        }
    }
}
