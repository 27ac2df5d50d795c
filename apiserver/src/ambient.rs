//! Time and chance: what an answer takes from outside, injected so that tests
//! can say it beforehand.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

/// Characters of generated names: no vowels, nothing that reads as another.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// Where time and chance come from.
#[derive(Clone)]
pub struct Ambient {
    clock: Source<Timestamp>,
    uid: Source<Uuid>,
    chance: Source<u64>,
}

impl Ambient {
    /// The clock of the machine and random uids.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            uid: Arc::new(Uuid::new_v4),
            chance: Arc::new(|| Uuid::new_v4().as_u64_pair().1),
        }
    }

    /// A clock, uids of objects, and everything else that is drawn by lot, of
    /// the caller's choice.
    pub fn given(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        uid: impl Fn() -> Uuid + Send + Sync + 'static,
        chance: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { clock: Arc::new(clock), uid: Arc::new(uid), chance: Arc::new(chance) }
    }

    /// The same with another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The uid of a new object.
    pub(crate) fn uid(&self) -> Uuid {
        (self.uid)()
    }

    /// A number drawn by lot.
    pub(crate) fn chance(&self) -> u64 {
        (self.chance)()
    }

    /// The five characters that make a generated name unique.
    pub(crate) fn name_suffix(&self) -> String {
        let mut number = self.chance();
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

impl fmt::Debug for Ambient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ambient")
    }
}

/// A time as `metadata.creationTimestamp` shows it: whole seconds, UTC.
pub fn to_seconds(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

/// A time without its fraction of a second, as conditions and metadata show it.
///
/// ```
/// let time = "2026-01-02T03:04:05.6Z".parse()?;
/// assert_eq!(aggregated_apiserver::whole_seconds(time).to_string(), "2026-01-02T03:04:05Z");
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_use_the_alphabet() {
        let suffix = Ambient::system().name_suffix();
        assert_eq!(suffix.len(), SUFFIX_LENGTH);
        assert!(suffix.bytes().all(|byte| SUFFIX_ALPHABET.contains(&byte)));
    }

    #[test]
    fn times_are_whole_seconds() {
        let time = Timestamp::new(0, 999_999_999).unwrap();
        assert_eq!(to_seconds(time), "1970-01-01T00:00:00Z");
    }
}
