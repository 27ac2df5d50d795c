//! The window of recent changes, in the order of their revisions and of limited size.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::object::Key;
use crate::storage::{Revision, Versioned};

/// The age of a change after which it can be removed. Clients that lost their connection usually return within this
/// time. The value is the same as in kube-apiserver.
const AGE_LIMIT: Duration = Duration::from_secs(75);
/// The number of changes that stay in the window regardless of their age.
const COUNT_FLOOR: usize = 1_000;
/// The largest number of changes, same as in kube-apiserver.
const COUNT_LIMIT: usize = 102_400;
/// The largest size of objects that only the window references, in bytes.
pub const BYTES_LIMIT: usize = 16 << 20;
/// The limit in a small container, in bytes. The largest change fits.
pub const LEAST_BYTES_LIMIT: usize = 2 << 20;

/// The number of forms in which a change is encoded once for many watchers.
const FRAMES: usize = 3;

/// One change of one object, as watchers receive it. The content is boxed: the weak reference of a slow watcher keeps
/// the allocation of a change alive after the change has left the window. Only the small outer part then stays in
/// memory.
#[derive(Debug)]
pub struct WatchCacheEvent {
    revision: Revision,
    content: Box<Content>,
}

#[derive(Debug)]
struct Content {
    key: Key,
    before: Option<Versioned>,
    after: Option<Versioned>,
    frames: [OnceLock<Bytes>; FRAMES],
    messages: OnceLock<Box<[OnceLock<Bytes>; FRAMES]>>,
}

impl WatchCacheEvent {
    pub(super) fn new(
        revision: Revision,
        key: Key,
        before: Option<Versioned>,
        after: Option<Versioned>,
    ) -> Self {
        let (frames, messages) = Default::default();
        Self { revision, content: Box::new(Content { key, before, after, frames, messages }) }
    }

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The key of the object that changed.
    pub fn key(&self) -> &Key {
        &self.content.key
    }

    /// The object before the change; `None` if it did not exist.
    pub fn before(&self) -> Option<&Versioned> {
        self.content.before.as_ref()
    }

    /// The object after the change; `None` if it was deleted.
    pub fn after(&self) -> Option<&Versioned> {
        self.content.after.as_ref()
    }

    /// The encoded event of this change in one of three forms. The first watcher that needs it encodes it, and the
    /// others share it.
    pub fn frame(&self, form: usize, encode: impl FnOnce() -> Bytes) -> Bytes {
        match self.content.frames.get(form) {
            Some(frame) => frame.get_or_init(encode).clone(),
            None => encode(),
        }
    }

    /// The encoded event of this change in protobuf, in one of three forms. Memory for it is allocated when the first
    /// watcher requests protobuf.
    pub fn message(&self, form: usize, encode: impl FnOnce() -> Bytes) -> Bytes {
        match self.content.messages.get_or_init(Box::default).get(form) {
            Some(message) => message.get_or_init(encode).clone(),
            None => encode(),
        }
    }

    /// The size of the change, in bytes. Protobuf messages are not counted: they are smaller than JSON frames, and most
    /// kinds have none.
    pub(super) fn size(&self) -> usize {
        // The object after this change is usually the object before the next change. The larger one of both is counted.
        // The encoded frame is about as large as the object that it contains.
        let size = |versioned: &Option<Versioned>| {
            versioned.as_ref().map(|versioned| versioned.object.size())
        };
        let (before, after) = (size(&self.content.before), size(&self.content.after));
        before.max(after).unwrap_or_default() + after.or(before).unwrap_or_default()
    }
}

/// Changes in the order of their revisions.
#[derive(Debug)]
pub(super) struct Window {
    changes: VecDeque<(Instant, Arc<WatchCacheEvent>)>,
    bytes: usize,
    limit: usize,
    start: Revision,
}

impl Window {
    /// Creates an empty window of this number of bytes, for the changes after this revision.
    pub(super) fn starting(start: Revision, limit: usize) -> Self {
        Self { changes: VecDeque::new(), bytes: 0, limit, start }
    }

    /// The number of changes, their size in bytes, and the age of the oldest change.
    pub(super) fn extent(&self, now: Instant) -> (usize, usize, Duration) {
        let age = self.changes.front().map(|(at, _)| now.duration_since(*at));
        (self.changes.len(), self.bytes, age.unwrap_or_default())
    }

    /// The largest size of objects that only the window references, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The start of the window: it contains all changes after this revision.
    pub(super) fn start(&self) -> Revision {
        self.start
    }

    /// Appends a change. Returns the changes that were removed for it, oldest first.
    pub(super) fn push(
        &mut self,
        change: Arc<WatchCacheEvent>,
        now: Instant,
    ) -> Vec<Arc<WatchCacheEvent>> {
        self.bytes += change.size();
        self.changes.push_back((now, change));
        self.pop_while(|window| window.is_over(now))
    }

    /// Removes about this number of bytes of the oldest changes, but keeps the newest `kept` changes. Returns the
    /// removed changes.
    pub(super) fn shed(&mut self, bytes: usize, kept: usize) -> Vec<Arc<WatchCacheEvent>> {
        let most = self.bytes.saturating_sub(bytes);
        self.pop_while(|window| window.bytes > most && window.changes.len() > kept)
    }

    fn pop_while(&mut self, is_over: impl Fn(&Self) -> bool) -> Vec<Arc<WatchCacheEvent>> {
        let mut gone = Vec::new();
        while is_over(self) {
            let Some((_, oldest)) = self.changes.pop_front() else { break };
            self.bytes -= oldest.size();
            self.start = oldest.revision;
            gone.push(oldest);
        }
        gone
    }

    /// The size of the changes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_over(&self, now: Instant) -> bool {
        let oldest = self.changes.front();
        let is_old = oldest.is_some_and(|(at, _)| now.duration_since(*at) > AGE_LIMIT);
        let count = self.changes.len();
        // The newest change always stays.
        count > 1
            && (count > COUNT_LIMIT || self.bytes > self.limit || (count > COUNT_FLOOR && is_old))
    }

    /// The changes after a revision.
    pub(super) fn after(&self, revision: Revision) -> impl Iterator<Item = &Arc<WatchCacheEvent>> {
        let from = self.changes.partition_point(|(_, change)| change.revision <= revision);
        self.changes.range(from..).map(|(_, change)| change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use serde_json::json;

    fn change(revision: u64, size: usize) -> Arc<WatchCacheEvent> {
        let tree = json!({"metadata": {"name": "a", "uid": "u"}, "data": "x".repeat(size)});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        let revision = Revision::new(revision);
        let after = Some(Versioned { revision, object });
        Arc::new(WatchCacheEvent::new(revision, Key::new(None, "a"), None, after))
    }

    fn revisions(window: &Window, after: u64) -> Vec<u64> {
        let changes = window.after(Revision::new(after));
        changes.map(|change| change.revision().number()).collect()
    }

    #[test]
    fn a_window_retains_recent_changes_and_the_newest_thousand() {
        let mut window = Window::starting(Revision::new(0), BYTES_LIMIT);
        let start = Instant::now();
        for revision in 1..=1_001 {
            assert!(window.push(change(revision, 1), start).is_empty());
        }
        assert_eq!(window.start(), Revision::new(0));
        let later = start + AGE_LIMIT + Duration::from_secs(1);
        let gone = window.push(change(1_002, 1), later);
        assert_eq!(gone.iter().map(|one| one.revision().number()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(window.start(), Revision::new(2));
        assert_eq!(revisions(&window, 1_000), [1_001, 1_002]);
    }

    #[test]
    fn is_bounded_by_bytes() {
        let mut window = Window::starting(Revision::new(0), BYTES_LIMIT);
        for revision in 1..=20 {
            window.push(change(revision, 1 << 20), Instant::now());
        }
        assert!(window.bytes <= BYTES_LIMIT);
        assert!(window.start() > Revision::new(0));
        assert_eq!(revisions(&window, 0).last(), Some(&20));
    }
}
