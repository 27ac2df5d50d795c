//! The namespaces whose ResourceQuotas may have an outdated status.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The extent of the update of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// The usage is only increased. Other processes may have charged objects that they have not stored yet.
    Increases,
    /// The status becomes the computed one.
    Full,
}

/// A queue of namespaces, round-robin by name. It has at most one entry for each namespace with quotas.
#[derive(Debug, Default)]
pub(super) struct Outdated {
    queue: Mutex<Queue>,
    marked: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    namespaces: BTreeMap<String, Extent>,
    /// The namespace that was taken last.
    last: String,
}

impl Queue {
    fn take(&mut self) -> Option<(String, Extent)> {
        let behind = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let next = self.namespaces.range::<str, _>(behind).next();
        let next = next.or_else(|| self.namespaces.iter().next());
        self.last = next?.0.clone();
        self.namespaces.remove_entry(&self.last)
    }
}

impl Outdated {
    /// Adds a namespace, or extends its update.
    pub fn mark(&self, namespace: &str, extent: Extent) {
        let mut queue = self.lock();
        match queue.namespaces.get_mut(namespace) {
            Some(before) => *before = extent.max(*before),
            None => drop(queue.namespaces.insert(namespace.to_owned(), extent)),
        }
        drop(queue);
        self.marked.notify_one();
    }

    /// Removes a namespace from the queue. Waits while the queue is empty.
    pub async fn take(self: &Arc<Self>) -> OutdatedNamespace {
        loop {
            let next = self.lock().take();
            match next {
                Some((namespace, extent)) => {
                    let queue = Arc::clone(self);
                    return OutdatedNamespace { namespace, extent, queue, is_done: false };
                }
                None => self.marked.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A namespace from the queue. It returns to the queue if this is dropped before the update is done.
pub(super) struct OutdatedNamespace {
    pub namespace: String,
    pub extent: Extent,
    queue: Arc<Outdated>,
    is_done: bool,
}

impl OutdatedNamespace {
    /// Removes the namespace permanently.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for OutdatedNamespace {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.mark(&self.namespace, self.extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn an_outdated_namespace_is_queued_once_until_its_update_is_done() {
        let queue = Arc::new(Outdated::default());
        let next = || queue.take().now_or_never();
        assert!(next().is_none());
        queue.mark("a", Extent::Increases);
        queue.mark("b", Extent::Increases);
        queue.mark("a", Extent::Full);
        queue.mark("a", Extent::Increases);
        let first = next().unwrap();
        assert_eq!((first.namespace.as_str(), first.extent), ("a", Extent::Full));
        drop(first);
        let second = next().unwrap();
        assert_eq!((second.namespace.as_str(), second.extent), ("b", Extent::Increases));
        second.done();
        let first = next().unwrap();
        assert_eq!((first.namespace.as_str(), first.extent), ("a", Extent::Full));
        first.done();
        assert!(next().is_none());
    }
}
