//! The clock, and random numbers: injected, so that tests can set both.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

/// Characters of generated names: no vowels, nothing that reads as another.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// A number that is no secret, without asking the system each time: each thread asks it once for the keys
/// that hash maps have, and no two maps have the same.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// Where the time and random numbers come from.
#[derive(Clone)]
pub struct Clock {
    now: Source<Timestamp>,
    uid: Source<Uuid>,
    random: Source<u64>,
}

impl Clock {
    /// The clock of the machine and random uids.
    pub fn system() -> Self {
        Self {
            now: Arc::new(Timestamp::now),
            uid: Arc::new(Uuid::new_v4),
            random: Arc::new(random),
        }
    }

    /// The time, the uids of objects, and all other random numbers come from these functions.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        uid: impl Fn() -> Uuid + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), uid: Arc::new(uid), random: Arc::new(random) }
    }

    /// The same, with the time from this function.
    #[must_use]
    pub fn with_now(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// The time.
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

    /// The five characters that make a generated name unique.
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

/// A time as `metadata.creationTimestamp` shows it: whole seconds, UTC.
pub fn to_rfc_3339(time: Timestamp) -> String {
    truncate_to_seconds(time).to_string()
}

/// A time without its fraction of a second, as conditions and metadata show it.
///
/// ```
/// let time = "2026-01-02T03:04:05.6Z".parse()?;
/// assert_eq!(aggregated_apiserver::truncate_to_seconds(time).to_string(), "2026-01-02T03:04:05Z");
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
