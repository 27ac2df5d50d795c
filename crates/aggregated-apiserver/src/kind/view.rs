//! Views: kinds that show the objects of another kind in a form of their own, as
//! the events of `events.k8s.io` are those of the core group.

use crate::object::Tree;

/// What a kind is that shows the objects of another one.
#[derive(Clone, Debug)]
pub struct View {
    /// The group of the other kind.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Makes an object one of the other kind, which is stored.
    pub to_stored: fn(Tree) -> Tree,
    /// Makes a stored object one of this kind.
    pub from_stored: fn(Tree) -> Tree,
}

impl View {
    /// Where the objects are kept.
    pub fn collection(&self) -> String {
        crate::error::qualified(self.group, self.plural)
    }
}
