//! What can be done with a kind: one file per verb. CREATE, UPDATE and PATCH are one pipeline
//! of many stages, which is `write`.

mod continue_token;
mod delete;
mod delete_collection;
mod get;
mod list;
mod review;
mod scale;
mod selection;
mod watch;

pub use continue_token::Continue;
pub use delete::{DeleteOptions, Deleted, delete};
pub use delete_collection::delete_collection;
pub use get::{GetOptions, get};
pub use list::{LOOK, ListOptions, Listed, Moment, list};
pub use review::review;
pub use scale::get_scale;
pub use selection::Selection;
pub use watch::{Bookmark, Event, Initial, WatchOptions, WatchStart, Watching, watch};

use crate::kind::Version;
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

/// What can be done with a kind: what discovery says, in the order in which
/// kube-apiserver says it of custom resources.
pub fn verbs(served: &ServedKind) -> &'static [Verb] {
    match served.backing {
        Backing::Stored(_) if !served.kind.strategy.deletes_collections => &[
            Verb::Delete,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Create,
            Verb::Update,
            Verb::Watch,
        ],
        Backing::Stored(_) => &[
            Verb::Delete,
            Verb::DeleteCollection,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Create,
            Verb::Update,
            Verb::Watch,
        ],
        Backing::Computed(_) => &[Verb::Get, Verb::List, Verb::Watch],
        Backing::Reviewed(_) => &[Verb::Create],
    }
}

/// A part of an object that is read and written apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// What is said about the object.
    Status,
    /// How many replicas are wanted, in a form that all kinds have alike.
    Scale,
    /// What holds an object that is deleted, besides its metadata.
    Finalize,
}

impl Subresource {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }

    /// What can be done with it.
    pub fn verbs(self) -> &'static [Verb] {
        match self {
            Self::Status | Self::Scale => &[Verb::Get, Verb::Patch, Verb::Update],
            Self::Finalize => &[Verb::Update],
        }
    }
}

/// The subresources of a kind in one version.
pub fn subresources(served: &ServedKind, version: &Version) -> Vec<Subresource> {
    let mut subresources = Vec::new();
    if let Backing::Stored(_) = served.backing {
        subresources.extend(version.subresources.status.then_some(Subresource::Status));
        subresources.extend(version.subresources.scale.as_ref().map(|_| Subresource::Scale));
        subresources.extend(served.kind.strategy.has_finalize.then_some(Subresource::Finalize));
    }
    subresources
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
