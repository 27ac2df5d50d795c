//! The lines that wait to be written: batches of text, and whose lines they are.
//!
//! Of the room that there is no user has more than a part. As long as all lines together take no more than
//! such a part, nobody can have more, and users are not counted: an event costs a copy of its text.

use std::collections::VecDeque;

use crate::record::shares::{PARTS, Shares};

/// About so many bytes of events are written at once.
pub(super) const BATCH: usize = 256 << 10;
/// What is larger is not used again when it is written.
const KEPT: usize = 2 * BATCH;

/// Lines that wait, and those that are being written.
#[derive(Debug)]
pub(super) struct Queue {
    /// What it may take, in bytes.
    limit: usize,
    /// Those that wait; the last one grows.
    batches: VecDeque<Batch>,
    /// Whose lines are being written, without their text.
    writing: Option<Batch>,
    /// Bytes of all of them.
    taken: usize,
    /// Who has how much, while that matters.
    users: Option<Shares>,
    /// An empty text that has room.
    spare: Vec<u8>,
}

/// Lines that are written together.
#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
    owners: Owners,
}

/// Whose lines follow each other, and how many bytes they take.
#[derive(Debug, Default)]
struct Owners {
    /// Their names, one behind the other.
    names: String,
    /// Where each name ends, and the bytes.
    each: Vec<(usize, usize)>,
}

impl Owners {
    fn add(&mut self, user: &str, bytes: usize) {
        let before = self.each.len().checked_sub(2).and_then(|at| self.each.get(at));
        let begin = before.map_or(0, |(end, _)| *end);
        if let Some((end, last)) = self.each.last_mut()
            && self.names.get(begin..*end) == Some(user)
        {
            *last += bytes;
            return;
        }
        self.names.push_str(user);
        self.each.push((self.names.len(), bytes));
    }

    fn each(&self) -> impl Iterator<Item = (&str, usize)> {
        let mut begin = 0;
        self.each.iter().map(move |&(end, bytes)| {
            let name = self.names.get(begin..end).unwrap_or_default();
            begin = end;
            (name, bytes)
        })
    }

    fn bytes(&self) -> usize {
        self.each.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Queue {
    /// A queue that takes so many bytes at most.
    pub(super) fn of(limit: usize) -> Self {
        Self {
            limit,
            batches: VecDeque::new(),
            writing: None,
            taken: 0,
            users: None,
            spare: Vec::new(),
        }
    }

    /// Takes a line about a request of this user, if there is room for it.
    pub(super) fn take(&mut self, line: &[u8], user: &str) -> bool {
        let taken = self.taken + line.len();
        if taken > self.limit || !self.has_share(taken, line.len(), user) {
            return false;
        }
        self.taken = taken;
        if self.batches.back().is_none_or(|last| last.text.len() >= BATCH) {
            let text = std::mem::take(&mut self.spare);
            self.batches.push_back(Batch { text, ..Batch::default() });
        }
        if let Some(last) = self.batches.back_mut() {
            last.text.extend_from_slice(line);
            last.lines += 1;
            last.owners.add(user, line.len());
        }
        true
    }

    /// Takes a part of the room for a user, if that is counted.
    fn has_share(&mut self, taken: usize, bytes: usize, user: &str) -> bool {
        if self.users.is_none() && taken > self.limit / PARTS {
            let mut users = Shares::of(self.limit);
            for batch in self.writing.iter().chain(&self.batches) {
                for (name, bytes) in batch.owners.each() {
                    // All of them together have no more than one may have.
                    users.take(name, bytes);
                }
            }
            self.users = Some(users);
        }
        self.users.as_mut().is_none_or(|users| users.take(user, bytes))
    }

    /// Whether enough waits to be written at once.
    pub(super) fn has_batch(&self) -> bool {
        self.batches.front().is_some_and(|first| first.text.len() >= BATCH)
    }

    /// Whether lines wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether neither lines wait nor are being written.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.writing.is_none()
    }

    /// How many lines wait or are being written.
    pub(super) fn lines(&self) -> u64 {
        self.writing.iter().chain(&self.batches).map(|batch| batch.lines).sum()
    }

    /// Takes out what is to be written next. Until it is [written](Self::written) it takes its room.
    pub(super) fn batch(&mut self) -> Option<Vec<u8>> {
        let mut batch = self.batches.pop_front()?;
        let text = std::mem::take(&mut batch.text);
        self.writing = Some(batch);
        Some(text)
    }

    /// What was taken out is written, or could not be; answers how many lines that were.
    pub(super) fn written(&mut self, mut text: Vec<u8>) -> u64 {
        if text.capacity() <= KEPT {
            text.clear();
            self.spare = text;
        }
        let Some(written) = self.writing.take() else { return 0 };
        self.taken = self.taken.saturating_sub(written.owners.bytes());
        if let Some(users) = &mut self.users {
            for (name, bytes) in written.owners.each() {
                users.give_back(name, bytes);
            }
        }
        // With a distance, so that they are not counted anew all the time.
        if self.taken <= self.limit / PARTS / 2 {
            self.users = None;
        }
        written.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted_while_they_could_take_too_much() {
        let mut queue = Queue::of(100);
        assert!(queue.take(b"0123456789", "loud") && queue.take(b"0123456789", "quiet"));
        assert!(queue.users.is_none(), "all of it is less than one may have");
        assert!(queue.take(b"0123456789", "loud"));
        assert!(queue.users.is_some());
        assert!(!queue.take(b"0123456789", "loud"), "a quarter is all");
        assert!(queue.take(b"01234", "loud") && queue.take(b"0123456789", "quiet"));
        assert_eq!(queue.lines(), 5);
        let text = queue.batch().unwrap();
        assert_eq!(text.len(), 45);
        assert!(!queue.take(b"0", "loud"), "what is being written takes its room");
        assert!(!queue.is_empty() && !queue.is_waiting());
        assert_eq!(queue.written(text), 5);
        assert!(queue.is_empty() && queue.users.is_none() && queue.taken == 0);
        assert!(queue.take(&[b'x'; 25], "loud") && !queue.take(b"x", "loud"));
    }

    #[test]
    fn there_is_no_more_than_all_of_the_room() {
        let mut queue = Queue::of(100);
        for user in ["a", "b", "c", "d"] {
            assert!(queue.take(&[b'x'; 24], user));
        }
        assert!(!queue.take(&[b'x'; 5], "e") && queue.take(&[b'x'; 4], "e"));
        let text = queue.batch().unwrap();
        assert_eq!((text.len(), queue.written(text)), (100, 5));
    }

    #[test]
    fn a_batch_ends_when_it_is_large_and_its_room_is_used_again() {
        let mut queue = Queue::of(16 * BATCH);
        for number in 0..6 {
            assert!(queue.take(&[b'x'; BATCH / 2], &format!("user-{number}")));
            assert_eq!(queue.has_batch(), number > 0);
        }
        for _ in 0..3 {
            let text = queue.batch().unwrap();
            assert_eq!(text.len(), BATCH);
            assert_eq!(queue.written(text), 2);
            assert!(queue.spare.capacity() >= BATCH && queue.spare.is_empty());
        }
        assert!(queue.batch().is_none());
        assert!(queue.take(&[b'x'; 2 * KEPT], "large"));
        let text = queue.batch().unwrap();
        queue.written(text);
        assert!(queue.spare.capacity() <= KEPT, "what is large is given back");
    }

    #[test]
    fn owners_are_told_apart_by_their_names() {
        let mut owners = Owners::default();
        for (user, bytes) in [("", 1), ("a", 2), ("a", 3), ("ab", 4), ("", 5), ("", 6), ("a", 7)] {
            owners.add(user, bytes);
        }
        let each: Vec<_> = owners.each().collect();
        assert_eq!(each, [("", 1), ("a", 5), ("ab", 4), ("", 11), ("a", 7)]);
        assert_eq!(owners.bytes(), 28);
    }
}
