//! Where a cache gets its changes from: a store's log, or a computation.

use std::convert::Infallible;
use std::sync::Arc;

use super::WatchCache;
use crate::object::{Key, Object};
use crate::storage::{LogEntry, LogReader, Revision};

impl LogReader for WatchCache {
    fn begin(&self, oldest: Revision) {
        self.begin_past(oldest);
    }

    fn damage(&self, key: Key) {
        self.mark_damaged(key);
    }

    fn append(&self, entry: LogEntry) {
        self.mark_mended(&entry.key);
        self.apply(entry.revision, &entry.key, entry.object);
    }
}

impl WatchCache {
    /// Publishes what was computed for a key: nothing happens if that is what
    /// the cache shows already. Each change takes a revision of its own.
    pub fn publish(&self, key: &Key, object: Option<Object>) {
        let shown = self.get(key);
        match (&shown, &object) {
            (None, None) => return,
            (Some(shown), Some(object)) if shown.object.same_content(object) => return,
            _ => {}
        }
        // Another object under the same name: watchers are told that the first
        // one is gone.
        if let (Some(shown), Some(object)) = (&shown, &object)
            && shown.object.uid() != object.uid()
        {
            self.publish(key, None);
        }
        let object = object.map(Arc::new);
        let Ok(()) = self.timeline.publish(|revision| {
            self.apply(revision, key, object);
            Ok::<(), Infallible>(())
        });
    }
}
