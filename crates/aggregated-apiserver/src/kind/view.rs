//! Views: kinds that show the objects of another kind in another form, such as the events of `events.k8s.io`, which are
//! those of the core group.

use crate::object::Tree;

/// A kind that shows the objects of another kind.
#[derive(Clone, Debug)]
pub struct View {
    /// The group of the other kind.
    pub group: &'static str,
    /// The version of the other kind.
    pub version: &'static str,
    /// The plural name of the other kind.
    pub plural: &'static str,
    /// Converts an object of this kind to one of the other kind, which is stored.
    pub to_stored: fn(Tree) -> Tree,
    /// Converts a stored object to one of this kind.
    pub from_stored: fn(Tree) -> Tree,
}

impl View {
    /// The collection in which the objects are stored.
    pub fn collection(&self) -> String {
        crate::error::qualified(self.group, self.plural)
    }
}
