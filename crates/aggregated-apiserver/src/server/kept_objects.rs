//! KeptObjects: the objects of a kind, for code of the server's own.

use crate::object::Tree;
use crate::storage::Versioned;
use crate::watch_cache::{Scope, Snapshot};

/// The objects of a kind at one moment, as they are kept.
pub struct KeptObjects(Snapshot);

/// One of them.
pub struct KeptObject<'a>(&'a Versioned);

impl KeptObjects {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }

    /// The objects, in the order of their namespaces and names.
    pub fn iter(&self) -> impl Iterator<Item = KeptObject<'_>> {
        self.0.from(&Scope::All, None).map(KeptObject)
    }
}

impl KeptObject<'_> {
    /// Its namespace; empty if it is in none.
    pub fn namespace(&self) -> &str {
        self.0.object.key().namespace().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.object.key().name()
    }

    /// Its resourceVersion, which another one follows with each change.
    pub fn resource_version(&self) -> u64 {
        self.0.revision.number()
    }

    /// The object, decoded.
    pub fn to_tree(&self) -> Tree {
        self.0.object.to_tree()
    }
}
