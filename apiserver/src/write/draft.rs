//! Draft: an object on its way through a write.

use crate::error::ApiError;
use crate::object::{Tree, metadata};

/// An object as a client sent it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The object.
    pub tree: Tree,
    /// Paths of members that were given more than once.
    pub duplicates: Vec<String>,
}

/// An object on its way through a write.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The object, as far as it is made.
    pub tree: Tree,
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
        Self { tree, is_kind, revision, warnings, is_applied: false }
    }

    /// A refusal of the write, with the warnings that its author is given all the same.
    pub(super) fn refused(&self, error: ApiError) -> ApiError {
        match error.warnings() {
            [] => error.with_warnings(self.warnings.clone()),
            _ => error,
        }
    }
}
