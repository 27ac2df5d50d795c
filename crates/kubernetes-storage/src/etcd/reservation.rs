//! Memory that is reserved for writes until the feed of this process shows them: many writes at once stay within the limits of
//! the store and of a namespace.

use std::sync::Arc;

use super::newest::Newest;
use super::{EtcdStore, Shared};
use crate::{Commit, Revision, StoreError, await_newest, settled};

/// Reserved bytes of a namespace, until it is dropped.
pub(super) struct Reserved {
    shared: Arc<Shared>,
    namespace: Option<String>,
    bytes: usize,
}

impl EtcdStore {
    /// Reserves memory for a write. Where there is none, the write is held against the newest state first: a write that would
    /// fail anyway is told why.
    pub(super) async fn reserve(&self, commit: &Commit) -> Result<Reserved, StoreError> {
        match self.try_reserve(commit) {
            Err(StoreError::Full { .. } | StoreError::ShareExceeded { .. }) => {}
            reserved => return reserved,
        }
        await_newest(self).await?;
        {
            let shelves = self.shared.lock();
            commit.expected.check(shelves.get(&commit.collection, &commit.key)?)?;
        }
        self.try_reserve(commit)
    }

    fn try_reserve(&self, commit: &Commit) -> Result<Reserved, StoreError> {
        let mut shelves = self.shared.lock();
        let kept = shelves.get(&commit.collection, &commit.key)?.cloned();
        let bytes = shelves.reserve(commit, kept.as_ref())?;
        let namespace = commit.key.namespace().map(str::to_owned);
        Ok(Reserved { shared: Arc::clone(&self.shared), namespace, bytes })
    }
}

impl Reserved {
    /// Holds it until a revision is seen here.
    pub(super) fn hold_until_seen(self, revision: Revision) {
        tokio::spawn(async move {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                () = shared.timeline.wait_until(revision) => {}
                () = shared.closing.cancelled() => {}
            }
        });
    }

    /// Holds it until the write has happened or never will, and is seen here if it has.
    pub(super) fn hold_until_settled(self, newest: Arc<Newest>) {
        tokio::spawn(async move {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                () = settled(|| newest.ask(), &shared.timeline) => {}
                () = shared.closing.cancelled() => {}
            }
        });
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.lock().release(self.namespace.as_deref(), self.bytes);
        }
    }
}
