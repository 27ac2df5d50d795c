//! The operations that requests ask for.

use std::sync::Arc;
use std::time::Duration;

use super::{DeleteOptions, Freshness, GetOptions, ListOptions, WatchOptions};
use crate::kind::SubresourceHandler;
use crate::object::Key;
use crate::object::selector::Selector;
use crate::user::User;
use crate::watch_cache::Scope;
use crate::write::{Change, Submitted, WriteOptions};

/// The operation that a request asks for.
#[derive(Debug)]
pub enum Operation {
    /// Reads one object.
    Get(Key, GetOptions),
    /// Reads the objects of a scope.
    List(Scope, ListOptions),
    /// Watches the changes of a scope. The duration is `None` if the server chooses it.
    Watch(Scope, WatchOptions, Option<Duration>),
    /// Handles a review.
    Review(Submitted, WriteOptions),
    /// Creates a subresource that code handles.
    CreateSubresource(Arc<SubresourceHandler>, Submitted, WriteOptions),
    /// Creates, replaces or changes an object.
    Write(Change<'static>, WriteOptions),
    /// Deletes one object.
    Delete(Key, DeleteOptions),
    /// Deletes the objects of a scope that match a selector.
    DeleteCollection(Scope, ListOptions, DeleteOptions),
}

impl Operation {
    /// Whether the operation is a dry run: everything is checked, and nothing is stored.
    pub fn is_dry_run(&self) -> bool {
        match self {
            Self::Review(_, options)
            | Self::CreateSubresource(.., options)
            | Self::Write(_, options) => options.dry_run,
            Self::Delete(_, options) | Self::DeleteCollection(.., options) => options.dry_run,
            Self::Get(..) | Self::List(..) | Self::Watch(..) => false,
        }
    }

    /// Whether the operation is a read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Get(..) | Self::List(..) | Self::Watch(..))
    }

    /// The freshness that the cache must have before the operation starts. A watch waits after it has started.
    pub fn freshness(&self) -> Freshness {
        match self {
            Self::Get(_, options) => options.freshness,
            Self::List(_, options) => options.moment.freshness(),
            _ => Freshness::Any,
        }
    }

    /// Sets the user of a read, because the kind may hide objects from this user. Writes have their user already.
    pub fn show_to(&mut self, user: &Arc<User>) {
        let viewer = match self {
            Self::Get(_, options) => &mut options.viewer,
            Self::List(_, options) | Self::DeleteCollection(_, options, _) => {
                &mut options.selection.viewer
            }
            Self::Watch(_, options, _) => &mut options.selection.viewer,
            Self::Review(..) | Self::CreateSubresource(..) | Self::Write(..) | Self::Delete(..) => {
                return;
            }
        };
        *viewer = Some(Arc::clone(user));
    }

    /// The selector of a list, a watch or a deletion of a collection.
    pub fn selector(&self) -> Option<&Selector> {
        match self {
            Self::List(_, options) | Self::DeleteCollection(_, options, _) => {
                Some(&options.selection.selector)
            }
            Self::Watch(_, options, _) => Some(&options.selection.selector),
            _ => None,
        }
    }
}
