//! The timeline: it issues revisions, recognizes its own revisions, and holds the revision up to which all writes are
//! visible.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use super::Revision;
use super::revision::{MARK_BITS, TAG_BITS};

/// The distance between two numbers of a process. The bits below hold the mark and the tag.
const STEP: u64 = 1 << (MARK_BITS + TAG_BITS);
/// The number of different tags.
const TAGS: u64 = 1 << TAG_BITS;
const EPOCH_SECONDS: i64 = 1_735_689_600; // 2025-01-01T00:00:00Z

/// The numbering of revisions.
#[derive(Debug)]
enum Numbers {
    /// Numbers of a process whose objects are lost when it ends. The first number is the clock in microseconds since
    /// 2025, times 4096, rounded down to a whole step. Each revision adds 2^18, which the clock does in 64
    /// microseconds.
    ///
    /// So numbers grow even over a restart, unless a process made more than 15,000 changes per second in its whole
    /// life. They fit an `i64` for seventy years.
    ///
    /// The low 12 bits are a random tag of this process. A number with another tag comes from an earlier process or
    /// from another replica, and this process cannot continue the history of either. The six bits above the tag are
    /// zero here. They hold a mark in a number that is [given to a client](Revision::marked).
    OfProcess { tag: u64 },
    /// Numbers of a store that outlives the process. Each number is the last one plus one. Each start begins at the
    /// clock, in microseconds since 2025, so that a number that was issued and lost is never issued again. Numbers
    /// between the last stored number and the next start were never issued.
    OfStore { earlier: Vec<RangeInclusive<u64>>, start: u64 },
    /// Numbers that are issued by a server to which several processes write. Every number may be valid, and this
    /// process does not know which numbers the server has already issued.
    Shared,
}

/// Issues revisions, for one write at a time.
///
/// A change is published inside of [`RevisionSequencer::publish`], or its publisher calls [`RevisionSequencer::reach`] after it has
/// published all changes up to a revision. So every revision up to [`RevisionSequencer::current`] is visible to all readers. A
/// list may therefore report that it is as new as `current`, even if its own collection has not changed for a week.
#[derive(Debug)]
pub struct RevisionSequencer {
    numbers: Numbers,
    publishing: Mutex<()>,
    current: watch::Sender<Revision>,
    /// The number of tasks that wait for a revision that is not visible yet.
    waiting: watch::Sender<usize>,
}

/// A task that waits for a revision, for as long as this value lives.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl RevisionSequencer {
    /// Creates a timeline that starts at this time and ends with the process. Its tag is the low bits of `random`.
    pub fn starting(now: Timestamp, random: u64) -> Self {
        let tag = random % TAGS;
        let start = (microseconds(now).saturating_mul(TAGS) / STEP * STEP) | tag;
        Self::new(Numbers::OfProcess { tag }, start)
    }

    /// Creates a timeline that continues at `start`, after runs with revisions in these ranges.
    pub fn continuing(earlier: Vec<RangeInclusive<u64>>, start: u64) -> Self {
        Self::new(Numbers::OfStore { earlier, start }, start)
    }

    /// Creates a timeline whose revisions are issued by another server. None of its revisions is known yet.
    pub fn shared() -> Self {
        Self::new(Numbers::Shared, 0)
    }

    fn new(numbers: Numbers, start: u64) -> Self {
        let current = watch::Sender::new(Revision::new(start));
        Self { numbers, publishing: Mutex::new(()), current, waiting: watch::Sender::new(0) }
    }

    /// The newest revision that is visible to every reader.
    pub fn current(&self) -> Revision {
        *self.current.borrow()
    }

    /// Whether the revision was issued by this timeline, or could have been.
    pub fn may_have_issued(&self, revision: Revision) -> bool {
        let number = revision.number();
        match &self.numbers {
            Numbers::OfProcess { tag } => number % STEP == *tag,
            Numbers::OfStore { earlier, start } => {
                number >= *start || earlier.iter().any(|run| run.contains(&number))
            }
            Numbers::Shared => true,
        }
    }

    /// The revision after this one.
    pub fn after(&self, revision: Revision) -> Revision {
        let step = match self.numbers {
            Numbers::OfProcess { .. } => STEP,
            Numbers::OfStore { .. } | Numbers::Shared => 1,
        };
        Revision::new(revision.number().saturating_add(step))
    }

    /// Calls `publish` with the next revision, while no other call runs. If `publish` returns `Err`, the revision is
    /// not used. `publish` must be short and must not block.
    ///
    /// # Errors
    /// The error of `publish`.
    pub fn publish<T, E>(&self, publish: impl FnOnce(Revision) -> Result<T, E>) -> Result<T, E> {
        let _alone = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.after(self.current());
        let published = publish(next)?;
        self.current.send_replace(next);
        Ok(published)
    }

    /// Reports that all changes up to this revision are published. A timeline must have only one caller of this method,
    /// and that caller must not use [`RevisionSequencer::publish`].
    pub fn reach(&self, revision: Revision) {
        self.current.send_replace(revision);
    }

    /// Waits until `current` has reached the revision.
    pub async fn wait_until(&self, revision: Revision) {
        if self.current() >= revision {
            return;
        }
        let _waiting = Waiting::new(&self.waiting);
        let mut current = self.current.subscribe();
        // The sender lives as long as `self`.
        let _ = current.wait_for(|current| *current >= revision).await;
    }
}

#[cfg(feature = "etcd")]
impl RevisionSequencer {
    /// Waits until a task waits for a revision that is not visible yet.
    pub(super) async fn wanted(&self) {
        // The sender lives as long as `self`.
        let _ = self.waiting.subscribe().wait_for(|count| *count > 0).await;
    }
}

/// The clock in microseconds since 2025; at least 1.
pub(super) fn microseconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_microsecond() - EPOCH_SECONDS * 1_000_000).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequencer() -> RevisionSequencer {
        let now = Timestamp::from_second(EPOCH_SECONDS + 1).unwrap();
        RevisionSequencer::starting(now, 0xabc_def)
    }

    #[test]
    fn revisions_start_at_the_clock_and_contain_the_tag() {
        let sequencer = sequencer();
        let start = (1_000_000 / 64 * STEP) | 0xdef;
        assert_eq!(sequencer.current(), Revision::new(start));
        let next = sequencer.publish(Ok::<_, ()>).unwrap();
        assert_eq!(next, Revision::new(start + STEP));
        assert_eq!(sequencer.current(), next);
        assert!(sequencer.may_have_issued(next));
        assert!(!sequencer.may_have_issued(Revision::new(start + 1)));
    }

    #[test]
    fn a_marked_revision_does_not_count_as_issued() {
        let sequencer = sequencer();
        let (current, next) = (sequencer.current(), sequencer.after(sequencer.current()));
        for mark in 0..1 << MARK_BITS {
            let marked = current.marked(mark);
            assert_eq!(marked.unmarked(), (current, mark));
            assert!(current <= marked && marked < next, "the order of revisions is kept");
            assert_eq!(sequencer.may_have_issued(marked), mark == 0);
        }
    }

    #[test]
    fn only_revisions_in_recorded_ranges_count_as_issued() {
        let sequencer = RevisionSequencer::continuing(vec![5..=9, 100..=100], 1_000);
        let is_ours = |number| sequencer.may_have_issued(Revision::new(number));
        assert!([5, 9, 100, 1_000, 5_000].into_iter().all(is_ours));
        assert!(![0, 4, 10, 99, 101, 999].into_iter().any(is_ours));
        assert_eq!(sequencer.after(sequencer.current()), Revision::new(1_001));
        sequencer.reach(Revision::new(1_003));
        assert_eq!(sequencer.current(), Revision::new(1_003));
    }

    #[test]
    fn a_failed_write_uses_no_revision() {
        let sequencer = sequencer();
        let before = sequencer.current();
        assert_eq!(sequencer.publish(|_| Err::<(), _>("no")), Err("no"));
        assert_eq!(sequencer.current(), before);
    }

    #[test]
    fn fits_an_i64_for_decades() {
        let year_2090 = "2090-01-01T00:00:00Z".parse().unwrap();
        let revision = RevisionSequencer::starting(year_2090, 0).current();
        assert!(i64::try_from(revision.number()).is_ok());
    }

    #[tokio::test]
    async fn waits_for_a_revision() {
        let sequencer = sequencer();
        let goal = Revision::new(sequencer.current().number() + 2 * STEP);
        let publish_twice = async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
                sequencer.publish(|_| Ok::<_, ()>(())).unwrap();
            }
        };
        tokio::join!(sequencer.wait_until(goal), publish_twice);
        assert_eq!(sequencer.current(), goal);
    }
}
