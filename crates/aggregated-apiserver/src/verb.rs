//! The verbs of a kind, one file per verb. CREATE, UPDATE and PATCH share a pipeline of many stages in the module
//! `write`.

mod continue_token;
mod create_subresource;
mod delete;
mod delete_collection;
mod delete_options;
mod get;
mod initial_events;
mod list;
mod operation;
mod redact;
mod review;
mod selection;
mod sight;
mod step;
mod subresource;
mod watch;

pub use continue_token::ContinueToken;
pub use create_subresource::{SubresourceResponse, create_subresource, post_to_subresource};
pub use delete::{Deleted, delete};
pub use delete_collection::delete_collection;
pub use delete_options::{DeleteOptions, propagation};
pub use get::{GetOptions, get};
pub use initial_events::InitialEvents;
pub use list::{Freshness, ListOptions, ListPage, Moment, await_freshness, list};
pub use operation::{Operation, Read, Write};
pub use redact::Redacted;
pub use review::review;
pub use selection::Selection;
pub use step::Step;
pub use subresource::{Action, ServedSubresource, subresources, verb_of_options};
pub use watch::{
    Bookmark, Event, EventType, ObjectEvent, WatchOptions, WatchStart, WatchStream, watch,
};

use http::Method;

use crate::backend::Writes;
use crate::error::ApiError;
use crate::served_kind::{Backing, ServedKind};

/// A Kubernetes verb, as used in authorization and discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Creates an object.
    Create,
    /// Deletes an object.
    Delete,
    /// Deletes the objects that a selector matches.
    DeleteCollection,
    /// Reads an object.
    Get,
    /// Reads the objects that a selector matches.
    List,
    /// Changes parts of an object.
    Patch,
    /// Replaces an object.
    Update,
    /// Follows the changes of objects.
    Watch,
}

/// The verbs of a kind in discovery, in the order that kube-apiserver uses for custom resources.
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
        Backing::Virtual(ref backing) => of_backend(backing.backend.writes()),
        Backing::Direct(ref backing) => of_direct(backing.reader.writes()),
        Backing::Computed(_) => &[Verb::Get, Verb::List, Verb::Watch],
        Backing::Reviewed(_) => &[Verb::Create],
        Backing::Elsewhere => &[],
    }
}

/// The verbs of a virtual kind: its backend determines which writes are possible.
fn of_backend(writes: Writes) -> &'static [Verb] {
    use Verb::{Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch};
    match (writes.create, writes.update, writes.delete) {
        (false, false, false) => &[Get, List, Watch],
        (true, false, false) => &[Get, List, Create, Watch],
        (false, true, false) => &[Get, List, Patch, Update, Watch],
        (true, true, false) => &[Get, List, Patch, Create, Update, Watch],
        (false, false, true) => &[Delete, DeleteCollection, Get, List, Watch],
        (true, false, true) => &[Delete, DeleteCollection, Get, List, Create, Watch],
        (false, true, true) => &[Delete, DeleteCollection, Get, List, Patch, Update, Watch],
        (true, true, true) => &[Delete, DeleteCollection, Get, List, Patch, Create, Update, Watch],
    }
}

/// The verbs of a direct kind, which cannot be watched.
pub fn of_direct(writes: Writes) -> &'static [Verb] {
    use Verb::{Create, Delete, DeleteCollection, Get, List, Patch, Update};
    match (writes.create, writes.update, writes.delete) {
        (false, false, false) => &[Get, List],
        (true, false, false) => &[Get, List, Create],
        (false, true, false) => &[Get, List, Patch, Update],
        (true, true, false) => &[Get, List, Patch, Create, Update],
        (false, false, true) => &[Delete, DeleteCollection, Get, List],
        (true, false, true) => &[Delete, DeleteCollection, Get, List, Create],
        (false, true, true) => &[Delete, DeleteCollection, Get, List, Patch, Update],
        (true, true, true) => &[Delete, DeleteCollection, Get, List, Patch, Create, Update],
    }
}

impl Verb {
    /// The verb of a request for one object or a subresource; `None` for other methods.
    pub fn of_method(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Create),
            Method::PUT => Some(Self::Update),
            Method::PATCH => Some(Self::Patch),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    /// The name in the API.
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

/// Returns the result of an operation with its warnings. An error gets the warnings too.
fn with_warnings<T>(
    result: Result<T, ApiError>,
    warnings: Vec<String>,
) -> Result<(T, Vec<String>), ApiError> {
    match result {
        Ok(result) => Ok((result, warnings)),
        Err(error) => Err(error.with_warnings(warnings)),
    }
}

#[cfg(test)]
mod tests;
