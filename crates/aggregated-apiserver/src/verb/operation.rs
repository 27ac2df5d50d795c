//! The operations that requests ask for: one variant per operation. The code of each operation is in the file of its
//! verb.

use std::sync::Arc;
use std::time::Duration;

use super::{DeleteOptions, Freshness, GetOptions, ListOptions, Selection, WatchOptions};
use crate::kind::{ReviewHandler, SubresourceHandler};
use crate::object::Key;
use crate::user::User;
use crate::watch_cache::Scope;
use crate::write::{Change, Submitted, WriteOptions};

/// The operation that a request asks for.
#[derive(Debug)]
pub enum Operation {
    /// An operation that changes nothing.
    Read(Read),
    /// An operation that changes objects, or that handles a posted body.
    Write(Write, WriteOptions),
}

/// An operation that changes nothing.
#[derive(Debug)]
pub enum Read {
    /// Reads one object.
    Get(Key, GetOptions),
    /// Reads the objects of a scope.
    List(Scope, ListOptions),
    /// Watches the changes of a scope. The duration is `None` if the server chooses it.
    Watch(Scope, WatchOptions, Option<Duration>),
}

/// An operation that changes objects, or that handles a posted body.
#[derive(Debug)]
pub enum Write {
    /// Handles a review.
    Review(Arc<ReviewHandler>, Submitted),
    /// Creates a subresource that code handles.
    CreateSubresource(Arc<SubresourceHandler>, Submitted),
    /// Creates, replaces or changes an object.
    Change(Change<'static>),
    /// Deletes one object.
    Delete(Key, DeleteOptions),
    /// Deletes the objects of a scope that match a selector.
    DeleteCollection(Scope, ListOptions, DeleteOptions),
}

impl Operation {
    /// The deletion of one object.
    pub fn delete(key: Key, options: DeleteOptions) -> Self {
        let write_options = options.to_write_options();
        Self::Write(Write::Delete(key, options), write_options)
    }

    /// The deletion of the objects of a scope that match a selector.
    pub fn delete_collection(scope: Scope, list: ListOptions, options: DeleteOptions) -> Self {
        let write_options = options.to_write_options();
        Self::Write(Write::DeleteCollection(scope, list, options), write_options)
    }

    /// Whether the operation is a dry run: everything is checked, and nothing is stored.
    pub fn is_dry_run(&self) -> bool {
        matches!(self, Self::Write(_, options) if options.dry_run)
    }

    /// The freshness that the cache must have before the operation starts. A watch waits after it has started.
    pub fn freshness(&self) -> Freshness {
        match self {
            Self::Read(Read::Get(_, options)) => options.freshness,
            Self::Read(Read::List(_, options)) => options.moment.freshness(),
            Self::Read(Read::Watch(..)) | Self::Write(..) => Freshness::Any,
        }
    }

    /// The selection of a list, a watch or a deletion of a collection.
    pub fn selection(&mut self) -> Option<&mut Selection> {
        match self {
            Self::Read(Read::List(_, options))
            | Self::Write(Write::DeleteCollection(_, options, _), _) => {
                Some(&mut options.selection)
            }
            Self::Read(Read::Watch(_, options, _)) => Some(&mut options.selection),
            Self::Read(Read::Get(..)) | Self::Write(..) => None,
        }
    }

    /// Sets the user of a read, because the kind may hide objects from this user. Writes have their user already.
    pub fn show_to(&mut self, user: &Arc<User>) {
        if let Self::Read(Read::Get(_, options)) = self {
            options.viewer = Some(Arc::clone(user));
        } else if let Some(selection) = self.selection() {
            selection.viewer = Some(Arc::clone(user));
        }
    }
}
