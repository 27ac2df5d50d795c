//! The clock and the source of random numbers. Both are injected, so that tests can control them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

/// The characters of generated names: no vowels, and no characters that look alike.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// A random number that is not secret, without a system call each time: each thread obtains the keys of its hash maps
/// once, and no two hash maps have the same keys.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// The source of time and random numbers.
#[derive(Clone)]
pub struct Clock {
    now: Source<Timestamp>,
    uid: Source<Uuid>,
    random: Source<u64>,
}

impl Clock {
    /// The system clock, with random uids.
    pub fn system() -> Self {
        Self {
            now: Arc::new(Timestamp::now),
            uid: Arc::new(Uuid::new_v4),
            random: Arc::new(random),
        }
    }

    /// Creates a clock with these functions for the time, for the uids of objects, and for all other random numbers.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        uid: impl Fn() -> Uuid + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), uid: Arc::new(uid), random: Arc::new(random) }
    }

    /// Replaces the source of the time.
    #[must_use]
    pub fn with_now(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// The uid of a new object.
    pub(crate) fn uid(&self) -> Uuid {
        (self.uid)()
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }

    /// The five random characters at the end of a generated name.
    pub(crate) fn name_suffix(&self) -> String {
        let mut number = self.random();
        let base = SUFFIX_ALPHABET.len() as u64;
        (0..SUFFIX_LENGTH)
            .map(|_| {
                let digit = usize::try_from(number % base).unwrap_or_default();
                number /= base;
                char::from(SUFFIX_ALPHABET[digit])
            })
            .collect()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// A time in the format of `metadata.creationTimestamp`: whole seconds, UTC.
pub fn to_rfc_3339(time: Timestamp) -> String {
    truncate_to_seconds(time).to_string()
}

/// A time without its fraction of a second, which is the precision of conditions and metadata.
///
/// ```
/// let time = "2026-01-02T03:04:05.6Z".parse()?;
/// assert_eq!(aggregated_apiserver::encoding::truncate_to_seconds(time).to_string(), "2026-01-02T03:04:05Z");
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_use_the_alphabet() {
        let suffix = Clock::system().name_suffix();
        assert_eq!(suffix.len(), SUFFIX_LENGTH);
        assert!(suffix.bytes().all(|byte| SUFFIX_ALPHABET.contains(&byte)));
    }

    #[test]
    fn times_are_truncated_to_seconds() {
        let time = Timestamp::new(0, 999_999_999).unwrap();
        assert_eq!(to_rfc_3339(time), "1970-01-01T00:00:00Z");
    }
}
