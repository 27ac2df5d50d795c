//! The queue of lines that wait to be written, in batches of text with the users that the lines count against.
//!
//! One user can use only a part of the capacity. As long as all lines together need less than such a part, no user can
//! exceed it. Users are then not counted, and an event costs only a copy of its text.

use std::collections::VecDeque;

use crate::record::user_limits::{PARTS, UserLimits};

/// The size at which a batch is written, in bytes.
pub(super) const BATCH: usize = 256 << 10;
/// The largest capacity of a buffer that is reused, in bytes.
const KEPT: usize = 2 * BATCH;
/// The memory for the user of a line besides the name, in bytes: an entry of the batch, and an entry of the counted
/// users.
const OWNER: usize = 128;
/// The number of copies of a user name: one in a growing string, the same again as spare capacity of that string, and
/// one among the counted users.
const NAMES: usize = 3;

/// The lines that wait, and the lines that are being written.
#[derive(Debug)]
pub(super) struct Queue {
    /// The largest memory of all lines, in bytes.
    limit: usize,
    /// The batches that wait. New lines are appended to the last one.
    batches: VecDeque<Batch>,
    /// The batch that is being written, without its text.
    writing: Option<Batch>,
    /// The memory of all lines, in bytes.
    taken: usize,
    /// The memory by user, while users are counted.
    users: Option<UserLimits>,
    /// Empty buffers with capacity: one grows while the other is written.
    spare: [Vec<u8>; 2],
}

/// Lines that are written together.
#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
    owners: Owners,
}

impl Batch {
    /// Reserves memory for a line. The capacity doubles, but only up to the size of a batch; only the last line of a
    /// batch may exceed that.
    fn make_room(&mut self, bytes: usize) {
        let (length, capacity) = (self.text.len(), self.text.capacity());
        let needed = length + bytes;
        if needed > capacity {
            let next = needed.max((2 * capacity).min(BATCH));
            self.text.reserve_exact(next - length);
        }
    }
}

/// The users of consecutive lines, and the size of their lines in bytes.
#[derive(Debug, Default)]
struct Owners {
    /// The concatenated user names.
    names: String,
    /// The end of each name, and the bytes of its lines.
    each: Vec<(usize, usize)>,
}

impl Owners {
    fn add(&mut self, user: &str, bytes: usize) {
        let is_last = self.is_last(user);
        match self.each.last_mut().filter(|_| is_last) {
            Some((_, last)) => *last += bytes,
            None => {
                self.names.push_str(user);
                self.each.push((self.names.len(), bytes));
            }
        }
    }

    /// Whether the last line belongs to this user.
    fn is_last(&self, user: &str) -> bool {
        let before = self.each.len().checked_sub(2).and_then(|at| self.each.get(at));
        let begin = before.map_or(0, |(end, _)| *end);
        self.each.last().is_some_and(|(end, _)| self.names.get(begin..*end) == Some(user))
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
    /// Creates a queue with this limit, in bytes.
    pub(super) fn of(limit: usize) -> Self {
        Self {
            limit,
            batches: VecDeque::new(),
            writing: None,
            taken: 0,
            users: None,
            spare: Default::default(),
        }
    }

    /// The largest memory of a queue with this limit, in bytes. Besides its lines, it consists of spare capacity: in
    /// the growing buffer, in the buffer that is written, and in the buffers for reuse.
    pub(super) const fn memory(limit: usize) -> usize {
        limit + 2 * BATCH + 2 * KEPT
    }

    /// Adds a line about a request of this user. Returns false if there is no capacity for it.
    pub(super) fn take(&mut self, line: &[u8], user: &str) -> bool {
        let growing = self.batches.back().filter(|last| last.text.len() < BATCH);
        let (is_growing, is_noted) =
            (growing.is_some(), growing.is_some_and(|last| last.owners.is_last(user)));
        let bytes = line.len() + if is_noted { 0 } else { OWNER + NAMES * user.len() };
        let taken = self.taken + bytes;
        if taken > self.limit || !self.has_share(taken, bytes, user) {
            return false;
        }
        self.taken = taken;
        if !is_growing {
            let largest = self.spare.iter_mut().max_by_key(|text| text.capacity());
            let text = largest.map(std::mem::take).unwrap_or_default();
            self.batches.push_back(Batch { text, ..Batch::default() });
        }
        if let Some(last) = self.batches.back_mut() {
            last.make_room(line.len());
            last.text.extend_from_slice(line);
            last.lines += 1;
            last.owners.add(user, bytes);
        }
        true
    }

    /// Reserves memory of the per-user limit, while users are counted.
    fn has_share(&mut self, taken: usize, bytes: usize, user: &str) -> bool {
        if self.users.is_none() && taken > self.limit / PARTS {
            let mut users = UserLimits::of(self.limit);
            for batch in self.writing.iter().chain(&self.batches) {
                for (name, bytes) in batch.owners.each() {
                    // All lines together fit in the per-user limit, so this cannot fail.
                    users.take(name, bytes);
                }
            }
            self.users = Some(users);
        }
        self.users.as_mut().is_none_or(|users| users.take(user, bytes))
    }

    /// Whether there is a batch of the full size.
    pub(super) fn has_batch(&self) -> bool {
        self.batches.front().is_some_and(|first| first.text.len() >= BATCH)
    }

    /// Whether lines wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether no line waits or is being written.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.writing.is_none()
    }

    /// The number of lines that wait or are being written.
    pub(super) fn lines(&self) -> u64 {
        self.writing.iter().chain(&self.batches).map(|batch| batch.lines).sum()
    }

    /// Removes the next batch from the queue. It uses its capacity until [`written`](Self::written) is called.
    pub(super) fn batch(&mut self) -> Option<Vec<u8>> {
        let mut batch = self.batches.pop_front()?;
        let text = std::mem::take(&mut batch.text);
        self.writing = Some(batch);
        Some(text)
    }

    /// Releases the capacity of a batch that was written or could not be written. Returns the number of its lines.
    pub(super) fn written(&mut self, mut text: Vec<u8>) -> u64 {
        let smallest = self.spare.iter_mut().min_by_key(|text| text.capacity());
        if let Some(spare) = smallest
            && (spare.capacity()..=KEPT).contains(&text.capacity())
        {
            text.clear();
            *spare = text;
        }
        let Some(written) = self.writing.take() else { return 0 };
        self.taken = self.taken.saturating_sub(written.owners.bytes());
        if let Some(users) = &mut self.users {
            for (name, bytes) in written.owners.each() {
                users.give_back(name, bytes);
            }
        }
        // The distance from the threshold in `has_share` avoids that users are counted from scratch too often.
        if self.taken <= self.limit / PARTS / 2 {
            self.users = None;
        }
        written.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of the user of the smallest line, if the name is one letter.
    const NOTED: usize = OWNER + NAMES;

    /// The actual memory use, in bytes.
    fn memory(queue: &Queue) -> usize {
        let batches = queue.writing.iter().chain(&queue.batches);
        let of_batch = |batch: &Batch| {
            let Owners { names, each } = &batch.owners;
            batch.text.capacity() + names.capacity() + each.capacity() * size_of::<(usize, usize)>()
        };
        let users = queue.users.as_ref().map_or(0, UserLimits::memory);
        let spare: usize = queue.spare.iter().map(Vec::capacity).sum();
        batches.map(of_batch).sum::<usize>() + spare + users
    }

    #[test]
    fn audit_queue_users_are_counted_only_while_one_could_exceed_its_limit() {
        let mut queue = Queue::of(4_000);
        let line = |bytes: usize| vec![b'x'; bytes - NOTED];
        assert!(queue.take(&line(400), "l") && queue.take(&line(400), "q"));
        assert!(queue.users.is_none(), "all of it is less than one may have");
        assert!(queue.take(&line(400), "l"));
        assert!(queue.users.is_some());
        assert!(!queue.take(&line(400), "q") || !queue.take(&line(400), "q"), "a quarter is all");
        assert!(!queue.take(&line(400), "l"), "a quarter is all");
        // A line that follows a line of the same user uses only the memory of its text.
        assert!(queue.take(&line(200), "l") && !queue.take(b"x", "l"));
        let lines = queue.lines();
        let text = queue.batch().unwrap();
        assert!(!queue.take(b"x", "l"), "what is being written takes its room");
        assert!(!queue.is_empty() && !queue.is_waiting());
        assert_eq!(queue.written(text), lines);
        assert!(queue.is_empty() && queue.users.is_none() && queue.taken == 0);
        assert!(queue.take(&line(1_000), "l") && !queue.take(b"x", "l"));
    }

    #[test]
    fn the_audit_queue_rejects_lines_beyond_its_size() {
        let mut queue = Queue::of(4_000);
        for user in ["a", "b", "c", "d"] {
            assert!(queue.take(&[b'x'; 900 - NOTED], user));
        }
        let last = [b'x'; 401 - NOTED];
        assert!(!queue.take(&last, "e") && queue.take(&last[1..], "e"));
        assert_eq!(queue.taken, 4_000);
        let text = queue.batch().unwrap();
        assert_eq!((text.len(), queue.written(text)), (4_000 - 5 * NOTED, 5));
    }

    #[test]
    fn the_audit_queue_uses_no_more_memory_than_it_reports() {
        const LIMIT: usize = 16 * BATCH;
        for (name, line) in
            [(1, 1), (1, 700), (200, 1), (63, BATCH - 1), (1, BATCH + 1), (1_000, 3)]
        {
            let mut queue = Queue::of(LIMIT);
            let mut refused = 0;
            // The users alternate, so that each line has an entry for its user.
            let users: Vec<String> = (0..97).map(|number| format!("{number:0name$}")).collect();
            let mut most = 0;
            for round in 0..3 {
                for user in users.iter().cycle() {
                    if !queue.take(&vec![b'x'; line], user) {
                        refused += 1;
                    }
                    if refused > 100 * (round + 1) {
                        break;
                    }
                }
                most = most.max(memory(&queue));
                for _ in 0..3 {
                    if let Some(text) = queue.batch() {
                        most = most.max(memory(&queue) + text.capacity());
                        queue.written(text);
                    }
                }
            }
            assert!(most > LIMIT / 8, "{name} {line}: {most}");
            assert!(most <= Queue::memory(LIMIT), "{name} {line}: {most}");
        }
    }

    #[test]
    fn audit_batches_have_a_size_limit_and_their_buffers_are_reused() {
        let mut queue = Queue::of(32 * BATCH);
        for number in 0..6 {
            assert!(queue.take(&[b'x'; BATCH / 2], &format!("user-{number}")));
            assert_eq!(queue.has_batch(), number % 2 == 1 || number > 1);
        }
        for _ in 0..3 {
            let text = queue.batch().unwrap();
            assert_eq!((text.len(), text.capacity()), (BATCH, BATCH));
            assert_eq!(queue.written(text), 2);
            assert!(queue.spare.iter().any(|spare| spare.capacity() == BATCH));
            assert!(queue.spare.iter().all(Vec::is_empty));
        }
        assert!(queue.batch().is_none());
        assert!(queue.take(&[b'x'; 2 * KEPT], "large"));
        let text = queue.batch().unwrap();
        queue.written(text);
        let is_small = |spare: &Vec<u8>| spare.capacity() <= KEPT;
        assert!(queue.spare.iter().all(is_small), "what is large is given back");
    }

    #[test]
    fn consecutive_audit_lines_of_one_user_are_counted_together() {
        let mut owners = Owners::default();
        for (user, bytes) in [("", 1), ("a", 2), ("a", 3), ("ab", 4), ("", 5), ("", 6), ("a", 7)] {
            owners.add(user, bytes);
        }
        let each: Vec<_> = owners.each().collect();
        assert_eq!(each, [("", 1), ("a", 5), ("ab", 4), ("", 11), ("a", 7)]);
        assert_eq!(owners.bytes(), 28);
    }
}
