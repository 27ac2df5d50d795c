//! The queue of spans that wait to be sent, in encoded form. When a request ends, it appends its spans under a lock,
//! and keeps no data. Storing the data until another thread encodes them would cost more than encoding them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::beginning;
use super::protobuf::Message;
use crate::record::user_limits::UserLimits;

/// The size of a batch that is sent, in bytes. It holds the spans of about four hundred requests. Collectors accept 4
/// MiB.
pub(super) const BATCH_BYTES: usize = 512 << 10;
/// The largest number of batches that wait or are being sent.
const BATCHES: usize = 16;
/// The largest size of waiting spans, in bytes. The spans of one user can use at most a quarter of it.
const WAITING_BYTES: usize = BATCHES * BATCH_BYTES;
/// The largest size of the spans of a request, in bytes. Long strings are truncated.
pub(super) const OF_REQUEST: usize = 32 << 10;
/// The largest number of changes of the user between consecutive spans of a batch.
const OWNERS: usize = 256;
/// The number of bytes of a user name that count. Users whose names begin with the same bytes share a per-user limit.
const NAME: usize = 256;
/// The memory of an owner, in bytes: the name in the batch and in the per-user limits, with the memory around it.
const OWNER: usize = 2 * (NAME + 64);
/// The largest memory of the queue, in bytes.
pub(super) const WAITING_MEMORY: usize = WAITING_BYTES + BATCHES * OWNERS * OWNER;

/// Spans that wait to be sent.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: Mutex<Queue>,
    /// Notified when spans arrive in an empty queue, and when a batch is full.
    pub changed: Notify,
}

#[derive(Debug)]
struct Queue {
    /// The batches that wait. All but the last one are full.
    batches: VecDeque<Batch>,
    /// The number of batches that are being sent.
    taken: usize,
    /// The number of spans that are not sent yet.
    spans: u64,
    shares: UserLimits,
    /// The user that was refused last, until capacity is released.
    refused: Option<Box<str>>,
}

/// Spans that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub spans: Message,
    pub count: u64,
    /// The users of consecutive spans, with the bytes of their spans.
    owners: Vec<(Box<str>, usize)>,
}

impl Batch {
    /// Creates a batch with the full capacity, so that it does not grow.
    fn new() -> Self {
        Self { spans: Message(Vec::with_capacity(BATCH_BYTES)), ..Self::default() }
    }

    fn is_full(&self) -> bool {
        self.spans.0.len() > BATCH_BYTES - OF_REQUEST || self.owners.len() >= OWNERS
    }

    fn owned_by(&mut self, user: &str, bytes: usize) {
        match self.owners.last_mut() {
            Some((last, of_last)) if **last == *user => *of_last += bytes,
            _ => self.owners.push((user.into(), bytes)),
        }
    }
}

impl Waiting {
    /// Creates an empty queue.
    pub(super) fn new() -> Self {
        let shares = UserLimits::of(WAITING_BYTES);
        let queue = Queue { batches: VecDeque::new(), taken: 0, spans: 0, shares, refused: None };
        Self { queue: Mutex::new(queue), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds spans of a user, which `write` appends to the last batch. Returns whether there was capacity for them.
    pub(super) fn add(&self, user: &str, count: u64, write: impl FnOnce(&mut Message)) -> bool {
        let user = beginning(user, NAME);
        let mut queue = self.lock();
        let is_first = queue.batches.is_empty();
        let is_taken = queue.add(user, count, write);
        let is_enough = queue.batches.back().is_some_and(Batch::is_full);
        drop(queue);
        if is_taken && (is_first || is_enough) {
            self.changed.notify_one();
        }
        is_taken
    }

    /// Removes the next batch, if it is full or `all` is true.
    pub(super) fn take(&self, all: bool) -> Option<Batch> {
        let mut queue = self.lock();
        let is_enough = |batch: &&Batch| all || batch.is_full();
        queue.batches.front().filter(is_enough)?;
        queue.taken += 1;
        queue.batches.pop_front()
    }

    /// Releases the capacity of a batch that was sent or is lost.
    pub(super) fn give_back(&self, batch: Batch) {
        let mut queue = self.lock();
        let queue = &mut *queue;
        queue.taken = queue.taken.saturating_sub(1);
        queue.spans = queue.spans.saturating_sub(batch.count);
        queue.refused = None;
        for (user, bytes) in &batch.owners {
            queue.shares.give_back(user, *bytes);
        }
    }

    /// Whether no spans wait to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().batches.is_empty()
    }

    /// The number of spans that are not sent yet.
    pub(super) fn spans(&self) -> u64 {
        self.lock().spans
    }
}

impl Queue {
    fn add(&mut self, user: &str, count: u64, write: impl FnOnce(&mut Message)) -> bool {
        // A user without capacity does not delay others by encoding spans in vain.
        if self.refused.as_deref() == Some(user) {
            return false;
        }
        if self.batches.back().is_none_or(Batch::is_full) {
            if self.batches.len() + self.taken >= BATCHES {
                return false;
            }
            self.batches.push_back(Batch::new());
        }
        let Some(batch) = self.batches.back_mut() else { return false };
        let before = batch.spans.0.len();
        write(&mut batch.spans);
        // The number of bytes is known only after encoding.
        let bytes = batch.spans.0.len() - before;
        if self.shares.take(user, bytes) {
            batch.owned_by(user, bytes);
            batch.count += count;
            self.spans += count;
            return true;
        }
        batch.spans.0.truncate(before);
        if batch.count == 0 {
            self.batches.pop_back();
        }
        self.refused = Some(user.into());
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds spans of this number of bytes.
    fn add(waiting: &Waiting, user: &str, bytes: usize) -> bool {
        waiting.add(user, 2, |spans| spans.0.resize(spans.0.len() + bytes, 0))
    }

    /// Returns the size of a batch, and its users.
    fn shown(batch: &Batch) -> (usize, Vec<&str>) {
        assert_eq!(batch.spans.0.capacity(), BATCH_BYTES, "it has not grown");
        (batch.spans.0.len(), batch.owners.iter().map(|(user, _)| &**user).collect())
    }

    #[test]
    fn waiting_spans_are_sent_in_batches() {
        let waiting = Waiting::new();
        assert!(waiting.take(true).is_none() && waiting.is_empty());
        for user in ["a", "a", "b", "a"] {
            assert!(add(&waiting, user, 100));
        }
        assert!(waiting.take(false).is_none(), "others may follow");
        let batch = waiting.take(true).unwrap();
        assert_eq!((shown(&batch), batch.count), ((400, vec!["a", "b", "a"]), 8));
        assert_eq!((waiting.spans(), waiting.is_empty()), (8, true));
        waiting.give_back(batch);
        assert_eq!(waiting.spans(), 0);
        while waiting.take(false).map(|batch| waiting.give_back(batch)).is_none() {
            assert!(add(&waiting, "a", OF_REQUEST));
        }
    }

    #[test]
    fn one_user_cannot_fill_the_span_queue_and_sent_spans_free_capacity() {
        let waiting = Waiting::new();
        let mut of_loud = 0;
        while add(&waiting, "loud", OF_REQUEST) {
            of_loud += OF_REQUEST;
        }
        assert!(of_loud > WAITING_BYTES / 5 && of_loud <= WAITING_BYTES / 4, "{of_loud}");
        assert!(add(&waiting, "quiet", OF_REQUEST), "there is room for others");
        assert!(!add(&waiting, "loud", OF_REQUEST));
        assert!(add(&waiting, "another", 100), "also when somebody was refused");
        let batch = waiting.take(false).unwrap();
        assert!(!add(&waiting, "loud", OF_REQUEST), "it is not sent yet");
        waiting.give_back(batch);
        assert!(add(&waiting, "loud", OF_REQUEST));
        // Many users together can use the whole capacity.
        let mut number = 0;
        while add(&waiting, &format!("user {number}"), OF_REQUEST) {
            number += 1;
        }
        let queue = waiting.lock();
        let taken: usize = queue.batches.iter().map(|batch| batch.spans.0.capacity()).sum();
        assert_eq!((queue.batches.len(), taken), (BATCHES, WAITING_BYTES));
        drop(queue);
        while let Some(batch) = waiting.take(true) {
            waiting.give_back(batch);
        }
        assert_eq!((waiting.spans(), waiting.lock().taken), (0, 0));
        assert!(add(&waiting, "loud", OF_REQUEST));
    }
    #[test]
    fn rejected_spans_leave_no_empty_batch() {
        let waiting = Waiting::new();
        while add(&waiting, "loud", BATCH_BYTES / 4) {}
        while let Some(batch) = waiting.take(true) {
            assert!(batch.count > 0);
            // The batches are not sent yet, so their capacity stays in use.
        }
        assert!(!add(&waiting, "loud", BATCH_BYTES / 4));
        assert!(waiting.is_empty() && waiting.take(true).is_none());
    }

    #[test]
    fn user_names_in_the_span_queue_stay_within_its_memory_limit() {
        let waiting = Waiting::new();
        let mut number = 0_usize;
        while add(&waiting, &format!("{number:08}{}", "x".repeat(10_000)), 100) {
            number += 1;
        }
        let queue = waiting.lock();
        let of_names = |batch: &Batch| -> usize {
            let names: usize = batch.owners.iter().map(|(user, _)| user.len()).sum();
            names + batch.owners.capacity() * size_of::<(Box<str>, usize)>()
        };
        let taken: usize =
            queue.batches.iter().map(|batch| batch.spans.0.capacity() + of_names(batch)).sum();
        let taken = taken + queue.shares.memory();
        assert!(number == BATCHES * OWNERS && taken <= WAITING_MEMORY, "{number}: {taken}");
    }
}
