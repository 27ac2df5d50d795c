//! What can be done with a kind: one file per verb.

mod continue_token;
mod create;
mod delete;
mod get;
mod list;
mod selection;
mod watch;

pub use continue_token::Continue;
pub use create::{CreateOptions, create};
pub use delete::{DeleteOptions, Deleted, delete};
pub use get::{GetOptions, get};
pub use list::{LOOK, ListOptions, Listed, Moment, list};
pub use selection::Selection;
pub use watch::{Bookmark, Event, Initial, WatchOptions, WatchStart, Watching, watch};

use crate::served_kind::{Backing, ServedKind};

/// A verb of Kubernetes, as authorization and discovery name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Make an object.
    Create,
    /// Remove one.
    Delete,
    /// Remove those that a selector matches.
    DeleteCollection,
    /// Read one.
    Get,
    /// Read those that a selector matches.
    List,
    /// Change parts of one.
    Patch,
    /// Replace one.
    Update,
    /// Follow changes.
    Watch,
}

/// What can be done with a kind, by alphabet: what discovery says.
pub fn verbs(served: &ServedKind) -> &'static [Verb] {
    match served.backing {
        Backing::Stored(_) => &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Watch],
        Backing::Computed(_) => &[Verb::Get, Verb::List, Verb::Watch],
    }
}

impl Verb {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

#[cfg(test)]
mod tests;
