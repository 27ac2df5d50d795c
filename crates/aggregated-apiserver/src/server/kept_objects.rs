//! `StoredObjects`: the stored objects of a kind, for code that is part of the server.

use crate::object::Tree;
use crate::storage::Versioned;
use crate::watch_cache::{Scope, Snapshot};

/// The stored objects of a kind at one moment.
pub struct StoredObjects(Snapshot);

/// One stored object.
pub struct StoredObject<'a>(&'a Versioned);

impl StoredObjects {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }

    /// The objects, in the order of their namespaces and names.
    pub fn iter(&self) -> impl Iterator<Item = StoredObject<'_>> {
        self.0.from(&Scope::All, None).map(StoredObject)
    }
}

impl StoredObject<'_> {
    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.object.key().namespace().unwrap_or_default()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.object.key().name()
    }

    /// The resourceVersion, which increases with each change.
    pub fn resource_version(&self) -> u64 {
        self.0.revision.number()
    }

    /// The object, decoded.
    pub fn to_tree(&self) -> Tree {
        self.0.object.to_tree()
    }
}
