//! The queue of writes that wait for a disk or for another process. It is limited in bytes of objects.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Commit;

/// The unit of the limit, in bytes. Each write counts as at least one unit.
const UNIT: usize = 4 << 10;

/// The write queue of a store.
#[derive(Clone, Debug)]
pub struct WriteQueue {
    semaphore: Arc<Semaphore>,
    units: usize,
}

/// The permit of a write in the queue. The write holds it until it has ended, even if its caller stops waiting for it.
#[derive(Debug)]
pub struct QueuedWrite(#[allow(dead_code)] Option<OwnedSemaphorePermit>); // held, never read

impl WriteQueue {
    /// Creates a queue with a limit in bytes.
    pub fn new(limit: usize) -> Self {
        let units = limit.div_ceil(UNIT);
        Self { semaphore: Arc::new(Semaphore::new(units)), units }
    }

    /// Waits until the queue has capacity for a write. Writes enter in the order of their calls.
    pub async fn enter(&self, commit: &Commit) -> QueuedWrite {
        let bytes = commit.object.as_ref().map_or(0, |object| object.size());
        let units = bytes.div_ceil(UNIT).clamp(1, self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        QueuedWrite(Arc::clone(&self.semaphore).acquire_many_owned(units).await.ok())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::object::{Key, Object};
    use crate::{Collection, Precondition};

    const LIMIT: usize = 16 << 20;

    fn commit(size: Option<usize>) -> Commit {
        let object = size.map(|size| {
            let metadata = json!({"name": "a", "uid": "u"});
            let tree = json!({"metadata": metadata, "x": "x".repeat(size)});
            Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
        });
        let (collection, key) = (Collection::new("c"), Key::new(None, "a"));
        Commit { collection, key, expected: Precondition::Absent, object, marks: false }
    }

    #[test]
    fn writes_wait_while_too_many_bytes_are_queued() {
        let queue = WriteQueue::new(LIMIT);
        let large = commit(Some(1 << 20));
        let enter = || queue.enter(&large).now_or_never();
        let mut queued: Vec<_> = std::iter::from_fn(enter).collect();
        assert_eq!(queued.len(), 15);
        let small: Vec<_> =
            std::iter::from_fn(|| queue.enter(&commit(None)).now_or_never()).collect();
        assert!(small.len() > 100 && small.len() < 256, "{}", small.len());
        queued.pop();
        assert!(enter().is_some());
        let whole = WriteQueue::new(LIMIT);
        assert!(whole.enter(&commit(Some(LIMIT + 1))).now_or_never().is_some());
    }
}
