//! The feeds of a cache: the log of a store, or a computation.

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
    /// Publishes the computed object of a key. If the cache already has an object of the same content, nothing happens.
    /// Each change gets a revision of its own.
    pub fn publish(&self, key: &Key, object: Option<Object>) {
        let shown = self.get(key);
        match (&shown, &object) {
            (None, None) => return,
            (Some(shown), Some(object)) if shown.object.same_content(object) => return,
            _ => {}
        }
        // The new object has the same name and another UID. Watchers first receive the deletion of the old object.
        if let (Some(shown), Some(object)) = (&shown, &object)
            && shown.object.uid() != object.uid()
        {
            self.publish(key, None);
        }
        let object = object.map(Arc::new);
        let Ok(()) = self.sequencer.publish(|revision| {
            self.apply(revision, key, object);
            Ok::<(), Infallible>(())
        });
    }
}
