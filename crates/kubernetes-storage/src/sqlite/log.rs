//! The history in the log: replaced or removed rows, with a limit in bytes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::writer::COMPACT_EVERY;
use crate::Revision;

/// The age limit of history. Clients can be disconnected for this time and continue their watches.
const AGE: Duration = Duration::from_secs(5 * 60);
/// The largest number of rows in the history. Watches cannot go back through as many.
const ROWS: usize = 102_400;
/// The approximate size of a row besides its object, in bytes.
const ROW: usize = 200;

/// A row that is not needed any more once the history begins at `until` or later.
struct Replaced {
    until: Revision,
    row: Revision,
    bytes: usize,
}

/// The rows of the history, in the order in which they were replaced.
pub(super) struct Log {
    replaced: VecDeque<Replaced>,
    bytes: usize,
    limit: usize,
}

impl Log {
    /// Creates an empty history with a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self { replaced: VecDeque::new(), bytes: 0, limit }
    }

    /// Records a new row, and the row that it replaces, with the bytes of its object. Rows must be recorded in the
    /// order of their revisions.
    pub fn note(
        &mut self,
        before: Option<(Revision, usize)>,
        revision: Revision,
        is_removal: bool,
    ) {
        if let Some((row, bytes)) = before {
            self.push(Replaced { until: revision, row, bytes: bytes + ROW });
        }
        if is_removal {
            self.push(Replaced { until: revision, row: revision, bytes: ROW });
        }
    }

    fn push(&mut self, replaced: Replaced) {
        self.bytes = self.bytes.saturating_add(replaced.bytes);
        self.replaced.push_back(replaced);
    }

    /// The number of rows in the history.
    pub fn len(&self) -> usize {
        self.replaced.len()
    }

    /// Whether rows can be removed. The newest row stays, because revisions continue after it.
    pub fn has_removable(&self, newest: Revision) -> bool {
        self.replaced.front().is_some_and(|first| first.row != newest)
    }

    /// Whether the history exceeds its limits by so much that a removal is worth a transaction.
    pub fn is_over(&self) -> bool {
        self.bytes > self.limit.saturating_add(self.limit / 8) || self.len() > ROWS + ROWS / 8
    }

    /// The revision at which the history must begin to be within its limits. `None` if it is.
    pub fn excess_until(&self) -> Option<Revision> {
        let mut rows = self.len().saturating_sub(ROWS);
        let mut bytes = self.bytes.saturating_sub(self.limit);
        let mut until = None;
        for one in &self.replaced {
            if rows == 0 && bytes == 0 {
                break;
            }
            rows = rows.saturating_sub(1);
            bytes = bytes.saturating_sub(one.bytes);
            until = Some(one.until);
        }
        until
    }

    /// The number of first rows that a history which begins at `oldest` does not need. It is limited to `rows` rows and
    /// to about `bytes` bytes. The newest row is not counted.
    pub fn count_until(
        &self,
        (oldest, newest): (Revision, Revision),
        rows: usize,
        bytes: usize,
    ) -> usize {
        let mut left = bytes;
        let fits = |one: &&Replaced| {
            let is_within = one.until <= oldest && one.row != newest && left > 0;
            left = left.saturating_sub(one.bytes);
            is_within
        };
        self.replaced.iter().take(rows).take_while(fits).count()
    }

    /// The revision at which the history begins without its first `count` rows.
    pub fn until(&self, count: usize) -> Option<Revision> {
        self.replaced.get(count.checked_sub(1)?).map(|last| last.until)
    }

    /// The first `count` rows.
    pub fn rows(&self, count: usize) -> impl Iterator<Item = Revision> {
        self.replaced.iter().take(count).map(|one| one.row)
    }

    /// Removes the first `count` rows.
    pub fn remove(&mut self, count: usize) {
        let removed = self.replaced.drain(..count.min(self.replaced.len()));
        self.bytes = self.bytes.saturating_sub(removed.map(|one| one.bytes).sum());
    }
}

/// The newest revisions at some moments.
pub(super) struct Moments(VecDeque<(Instant, Revision)>);

impl Moments {
    /// Creates the list of revisions with their times, for a process that starts now.
    pub fn starting(newest: Revision) -> Self {
        Self(VecDeque::from([(Instant::now(), newest)]))
    }

    /// Whether the last moment is so long ago that another one must be recorded.
    pub fn is_due(&self) -> bool {
        self.0.back().is_none_or(|(at, _)| at.elapsed() >= COMPACT_EVERY)
    }

    /// Records the newest revision at this moment. Returns the newest revision that is too old for the history, if
    /// there is one.
    pub fn pass(&mut self, newest: Revision) -> Option<Revision> {
        let now = Instant::now();
        let mut oldest = None;
        while self.0.front().is_some_and(|(at, _)| now.duration_since(*at) >= AGE) {
            oldest = self.0.pop_front().map(|(_, revision)| revision);
        }
        if self.is_due() {
            self.0.push_back((now, newest));
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(limit: usize, sizes: &[usize]) -> Log {
        let mut log = Log::new(limit);
        for (number, size) in (1..).zip(sizes) {
            log.note(Some((Revision::new(number), *size)), Revision::new(number + 100), false);
        }
        log
    }

    #[test]
    fn history_over_the_byte_or_row_limit_starts_at_a_later_revision() {
        let until = |log: &Log| log.excess_until().map(|revision| revision.number());
        assert_eq!(until(&log(10_000, &[1_000; 8])), None);
        assert_eq!(until(&log(10_000, &[1_000; 9])), Some(101));
        assert_eq!(until(&log(10_000, &[1_000; 12])), Some(104));
        assert_eq!(until(&log(10_000, &[50_000])), Some(101), "larger than all there may be");
        let many = log(usize::MAX, &vec![0; ROWS + 3]);
        assert_eq!(until(&many), Some(103));
        assert!(!many.is_over() && log(10_000, &[1_000; 10]).is_over());
    }

    #[test]
    fn rows_are_removed_in_parts() {
        let mut log = log(0, &[1_000; 10]);
        let until = (Revision::new(106), Revision::new(110));
        assert_eq!(log.count_until(until, 100, usize::MAX), 6);
        assert_eq!(log.count_until(until, 4, usize::MAX), 4);
        assert_eq!(log.count_until(until, 100, 2_000), 2);
        assert_eq!(log.until(4), Some(Revision::new(104)));
        assert!(log.rows(2).eq([1, 2].map(Revision::new)));
        log.remove(6);
        assert_eq!(log.count_until(until, 100, usize::MAX), 0);
        assert_eq!((log.len(), log.bytes), (4, 4 * (1_000 + ROW)));
        log.remove(100);
        assert_eq!((log.len(), log.bytes), (0, 0));
    }

    #[test]
    fn the_newest_row_is_not_removed() {
        let mut log = log(0, &[1_000]);
        let newest = Revision::new(200);
        log.note(Some((Revision::new(101), 5)), newest, true);
        assert_eq!(log.count_until((newest, newest), 100, usize::MAX), 2);
        log.remove(2);
        assert!(!log.has_removable(newest) && log.has_removable(Revision::new(201)));
    }
}
