//! Revisions: the numbers behind `resourceVersion`.
//!
//! A number starts at the clock (microseconds since 2025, times 4096) and
//! steps by 4096. So it always grows, also over a restart, and fits an `i64`
//! for seventy years. The low twelve bits are a random tag of this process:
//! a number with another tag comes from an earlier process or another
//! replica, whose history is not ours to continue.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

const TAG_BITS: u32 = 12;
const STEP: u64 = 1 << TAG_BITS;
const EPOCH_SECONDS: i64 = 1_735_689_600; // 2025-01-01T00:00:00Z

/// A point in the history of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// That of an object that is not kept.
    pub const NONE: Self = Self(0);

    /// The revision of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Hands out revisions, one write after the other.
///
/// Whoever publishes a change does it inside of [`RevisionSequence::publish`],
/// so that every revision up to [`RevisionSequence::current`] is visible to
/// all readers: a list may say that it is as new as `current`, even when its
/// own collection has not changed for a week.
#[derive(Debug)]
pub struct RevisionSequence {
    tag: u64,
    publishing: Mutex<()>,
    current: watch::Sender<Revision>,
}

impl RevisionSequence {
    /// A sequence that starts at this time, with the low bits of `random` as tag.
    pub fn starting(now: Timestamp, random: u64) -> Self {
        let microseconds = now.as_microsecond() - EPOCH_SECONDS * 1_000_000;
        let tag = random % STEP;
        let start = u64::try_from(microseconds).unwrap_or(1).saturating_mul(STEP) | tag;
        Self { tag, publishing: Mutex::new(()), current: watch::Sender::new(Revision(start)) }
    }

    /// The newest revision that every reader can see.
    pub fn current(&self) -> Revision {
        *self.current.borrow()
    }

    /// Whether the revision was handed out by this sequence, or could be.
    pub fn may_have_issued(&self, revision: Revision) -> bool {
        revision.0 % STEP == self.tag
    }

    /// Runs `publish` with the next revision, alone; when it answers `Err`
    /// the revision is not used. `publish` must be short and must not block.
    ///
    /// # Errors
    /// What `publish` answers.
    pub fn publish<T, E>(&self, publish: impl FnOnce(Revision) -> Result<T, E>) -> Result<T, E> {
        let _alone = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Revision(self.current().0.saturating_add(STEP));
        let published = publish(next)?;
        self.current.send_replace(next);
        Ok(published)
    }

    /// Returns when `current` has reached the revision.
    pub async fn wait_until(&self, revision: Revision) {
        let mut current = self.current.subscribe();
        // The sender lives as long as `self`.
        let _ = current.wait_for(|current| *current >= revision).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> RevisionSequence {
        let now = Timestamp::from_second(EPOCH_SECONDS + 1).unwrap();
        RevisionSequence::starting(now, 0xabc_def)
    }

    #[test]
    fn starts_at_the_clock_and_keeps_its_tag() {
        let sequence = sequence();
        let start = (1_000_000 * STEP) | 0xdef;
        assert_eq!(sequence.current(), Revision(start));
        let next = sequence.publish(Ok::<_, ()>).unwrap();
        assert_eq!(next, Revision(start + STEP));
        assert_eq!(sequence.current(), next);
        assert!(sequence.may_have_issued(next));
        assert!(!sequence.may_have_issued(Revision(start + 1)));
    }

    #[test]
    fn a_failed_write_uses_no_revision() {
        let sequence = sequence();
        let before = sequence.current();
        assert_eq!(sequence.publish(|_| Err::<(), _>("no")), Err("no"));
        assert_eq!(sequence.current(), before);
    }

    #[test]
    fn fits_an_i64_for_decades() {
        let year_2090 = "2090-01-01T00:00:00Z".parse().unwrap();
        let revision = RevisionSequence::starting(year_2090, 0).current();
        assert!(i64::try_from(revision.number()).is_ok());
    }

    #[tokio::test]
    async fn waits_for_a_revision() {
        let sequence = sequence();
        let goal = Revision(sequence.current().0 + 2 * STEP);
        let publish_twice = async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
                sequence.publish(|_| Ok::<_, ()>(())).unwrap();
            }
        };
        tokio::join!(sequence.wait_until(goal), publish_twice);
        assert_eq!(sequence.current(), goal);
    }
}
