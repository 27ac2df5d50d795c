//! Memory reservations of writes. A reservation lasts until the feed of this process delivers the write, so that many
//! concurrent writes stay within the limits of the store and of a namespace.

use std::sync::Arc;

use super::newest_revision::Newest;
use super::{EtcdStore, Shared};
use crate::{Commit, Revision, StoreError, await_newest, settled};

/// Reserved bytes of a namespace. They are released on drop.
pub(super) struct Reserved {
    shared: Arc<Shared>,
    namespace: Option<String>,
    bytes: usize,
}

impl EtcdStore {
    /// Reserves memory for a write. If the limits have no capacity, the precondition of the write is checked against
    /// the newest state first. So a write that would fail anyway receives the error of its precondition.
    pub(super) async fn reserve(&self, commit: &Commit) -> Result<Reserved, StoreError> {
        match self.try_reserve(commit) {
            Err(StoreError::Full { .. } | StoreError::ShareExceeded { .. }) => {}
            reserved => return reserved,
        }
        await_newest(self).await?;
        {
            let object_index = self.shared.lock();
            commit.expected.check(object_index.get(&commit.collection, &commit.key)?)?;
        }
        self.try_reserve(commit)
    }

    fn try_reserve(&self, commit: &Commit) -> Result<Reserved, StoreError> {
        let mut object_index = self.shared.lock();
        let kept = object_index.get(&commit.collection, &commit.key)?.cloned();
        let bytes = object_index.reserve(commit, kept.as_ref())?;
        let namespace = commit.key.namespace().map(str::to_owned);
        Ok(Reserved { shared: Arc::clone(&self.shared), namespace, bytes })
    }
}

impl Reserved {
    /// Holds the reservation until this process has received a revision.
    pub(super) fn hold_until_seen(self, revision: Revision) {
        tokio::spawn(async move {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                () = shared.sequencer.wait_until(revision) => {}
                () = shared.closing.cancelled() => {}
            }
        });
    }

    /// Holds the reservation until the write has happened and this process has received it, or the write will never
    /// happen.
    pub(super) fn hold_until_settled(self, newest: Arc<Newest>) {
        tokio::spawn(async move {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                () = settled(|| newest.ask(), &shared.sequencer) => {}
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
