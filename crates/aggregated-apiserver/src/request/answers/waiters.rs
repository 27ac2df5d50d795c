//! Responses that wait for memory. Released memory is granted to the oldest responses for which it suffices; no other
//! response is woken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Charge;
use super::pool::{Pool, Stream, UserShare};

/// The waiting responses, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    by_number: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    stream: Arc<Stream>,
    share: Arc<UserShare>,
    bytes: usize,
    granted: oneshot::Sender<Charge>,
}

/// The queue position of a waiting response, until it is dropped.
pub(super) struct Waiting<'a> {
    waiters: &'a Waiters,
    number: u64,
    /// Receives the charge.
    pub(super) granted: oneshot::Receiver<Charge>,
}

impl Waiters {
    /// Adds a response that waits for this many bytes.
    pub(super) fn add(
        &self,
        stream: &Arc<Stream>,
        share: &Arc<UserShare>,
        bytes: usize,
    ) -> Waiting<'_> {
        let (sender, granted) = oneshot::channel();
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        let (stream, share) = (Arc::clone(stream), Arc::clone(share));
        queue.by_number.insert(number, Waiter { stream, share, bytes, granted: sender });
        // The count is stored before the caller checks the memory, so that a release in between is not missed.
        self.count.store(queue.by_number.len(), Ordering::SeqCst);
        Waiting { waiters: self, number, granted }
    }

    /// Grants memory to every response for which it suffices.
    pub(super) fn hand_out(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut granted = Vec::new();
        let mut queue = self.lock();
        let all = std::mem::take(&mut queue.by_number);
        for (number, waiter) in all {
            match Charge::take(&waiter.stream, &waiter.share, waiter.bytes) {
                Ok(charge) => granted.push((waiter, charge)),
                Err(_) => drop(queue.by_number.insert(number, waiter)),
            }
        }
        self.count.store(queue.by_number.len(), Ordering::SeqCst);
        drop(queue);
        for (waiter, charge) in granted {
            // If the response does not wait any more, its charge is dropped and releases the memory.
            let _ = waiter.granted.send(charge);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.waiters.lock();
        let waiter = queue.by_number.remove(&self.number);
        self.waiters.count.store(queue.by_number.len(), Ordering::SeqCst);
        drop(queue);
        drop(waiter);
    }
}

impl Pool {
    /// Charges bytes to a user and to all responses, if both limits allow it. The error is the user if the per-user
    /// limit is exceeded, and `None` if the limit of all responses is.
    pub(super) fn take(
        &self,
        share: &Arc<UserShare>,
        bytes: usize,
    ) -> Result<(), Option<Arc<UserShare>>> {
        if !take(&share.held, bytes, self.limit / super::USER_SHARE) {
            return Err(Some(Arc::clone(share)));
        }
        if !take(&self.held, bytes, self.limit) {
            share.held.fetch_sub(bytes, Ordering::SeqCst);
            return Err(None);
        }
        Ok(())
    }
}

/// Checks and charges bytes in one step. A charge above the limit is possible only if nothing else is charged.
fn take(held: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let more = |held: usize| {
        let more = held.saturating_add(bytes);
        (held == 0 || more <= limit).then_some(more)
    };
    held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}
