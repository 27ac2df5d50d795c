//! Interning: a value that many objects have in common is stored once. The Pods of a template differ in little more
//! than their names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use serde::de::{Deserialize, Deserializer, Visitor};

/// The number of values at which a pool first removes unused values. Each later sweep happens when the pool holds twice
/// as many values as the last one left.
const FIRST_SWEEP: usize = 1024;

/// The values in use, each stored once.
pub struct Pool<T> {
    /// The hash keys are random, so that a client cannot craft two values with the same hash.
    hasher: RandomState,
    held: Mutex<Held<T>>,
    /// The default value, cached outside the lock: every deserialization starts with many default values.
    nothing: OnceLock<Arc<T>>,
}

struct Held<T> {
    by_hash: HashMap<u64, Weak<T>>,
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        let held = Held { by_hash: HashMap::new(), sweep_at: FIRST_SWEEP };
        Self { hasher: RandomState::new(), held: Mutex::new(held), nothing: OnceLock::new() }
    }
}

impl<T> Pool<T> {
    /// The default value. The first call gets it from `find`.
    fn nothing(&self, find: impl FnOnce() -> Arc<T>) -> Arc<T> {
        Arc::clone(self.nothing.get_or_init(find))
    }

    /// Returns the value that is equal to `one` if it is in use; otherwise stores the result of `make`.
    fn find_or_make<B: Hash, T2>(&self, one: B, is_equal: T2, make: impl FnOnce(B) -> T) -> Arc<T>
    where
        T2: Fn(&T, &B) -> bool,
    {
        let hash = self.hasher.hash_one(&one);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.by_hash.len() >= held.sweep_at {
            held.sweep();
        }
        match held.by_hash.entry(hash) {
            Entry::Occupied(mut entry) => match entry.get().upgrade() {
                Some(known) if is_equal(&known, &one) => known,
                // Another value has the same hash, so this one is not shared.
                Some(_) => Arc::new(make(one)),
                None => {
                    let made = Arc::new(make(one));
                    entry.insert(Arc::downgrade(&made));
                    made
                }
            },
            Entry::Vacant(entry) => {
                let made = Arc::new(make(one));
                entry.insert(Arc::downgrade(&made));
                made
            }
        }
    }
}

impl<T> Held<T> {
    /// Removes the unused values.
    fn sweep(&mut self) {
        self.by_hash.retain(|_, value| value.strong_count() > 0);
        let left = self.by_hash.len();
        self.by_hash.shrink_to(2 * left);
        self.sweep_at = FIRST_SWEEP.max(2 * left);
    }
}

/// A type whose values are interned.
pub trait Pooled: Eq + Hash + Sized + 'static {
    /// The pool of all values of this type.
    fn pool() -> &'static Pool<Self>;
}

/// Implements [`Pooled`](crate::farm_pod::compact::Pooled) for types, each with its own pool.
macro_rules! pooled {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::farm_pod::compact::Pooled for $type {
            fn pool() -> &'static $crate::farm_pod::compact::Pool<Self> {
                static POOL: std::sync::LazyLock<$crate::farm_pod::compact::Pool<$type>> =
                    std::sync::LazyLock::new($crate::farm_pod::compact::Pool::default);
                &POOL
            }
        })+
    };
}
pub(crate) use pooled;

/// An interned value: equal values share one allocation.
pub struct Shared<T>(Arc<T>);

impl<T: Pooled> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(T::pool().find_or_make(value, |known, value| known == value, |value| value))
    }
}

impl<T: Pooled + Default> Default for Shared<T> {
    fn default() -> Self {
        Self(T::pool().nothing(|| Self::from(T::default()).0))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<'de, T: Pooled + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

static WORDS: LazyLock<Pool<Box<str>>> = LazyLock::new(Pool::default);

/// An interned string.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Word(Shared<Box<str>>);

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self(Shared(WORDS.find_or_make(text, |known, text| **known == **text, Box::from)))
    }
}

impl Default for Word {
    fn default() -> Self {
        Self(Shared(WORDS.nothing(|| Self::from("").0.0)))
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word")
            }

            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word::from(text))
            }
        }

        deserializer.deserialize_string(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(pool: &Pool<String>, texts: impl IntoIterator<Item = String>) -> Vec<Arc<String>> {
        let share =
            |text| pool.find_or_make(text, |known: &String, text| known == text, |text| text);
        texts.into_iter().map(share).collect()
    }

    #[test]
    fn equal_values_share_one_allocation_while_in_use() {
        let pool = Pool::default();
        let kept = texts(&pool, ["a", "b", "a"].map(str::to_owned));
        assert!(Arc::ptr_eq(&kept[0], &kept[2]));
        assert_eq!(kept.iter().map(|text| text.as_str()).collect::<Vec<_>>(), ["a", "b", "a"]);
        let before = Arc::downgrade(&kept[1]);
        drop(kept);
        let kept = texts(&pool, ["b".to_owned()]);
        assert_eq!((before.upgrade(), kept[0].as_str()), (None, "b"));
    }

    /// Unused values are removed, so the size of a pool does not depend on the number of values that passed through it.
    #[test]
    fn a_pool_does_not_grow_with_unused_values() {
        let pool = Pool::default();
        let kept = texts(&pool, (0..10).map(|number| number.to_string()));
        for number in 0..10 * FIRST_SWEEP {
            drop(texts(&pool, [format!("passing {number}")]));
        }
        let held = pool.held.lock().unwrap();
        assert!(held.by_hash.len() <= FIRST_SWEEP, "{}", held.by_hash.len());
        drop(held);
        let again = texts(&pool, (0..10).map(|number| number.to_string()));
        assert!(kept.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    /// There is one default value, and returning it takes no lock.
    #[test]
    fn default_values_are_returned_without_locking_the_pool() {
        assert!(Arc::ptr_eq(&Word::default().0.0, &Word::from("").0.0));
        let pool: Pool<String> = Pool::default();
        let find = || texts(&pool, [String::new()]).remove(0);
        let first = pool.nothing(find);
        let held = pool.held.lock().unwrap();
        assert!(Arc::ptr_eq(&first, &pool.nothing(|| panic!("it is known"))));
        drop(held);
        assert!(Arc::ptr_eq(&first, &find()));
    }

    #[test]
    fn words_deserialize_from_strings_and_have_pointer_size() {
        for text in ["True", "", "PodResizePending"] {
            let word: Word = serde_json::from_value(json!(text)).unwrap();
            assert_eq!((&*word, &word), (text, &Word::from(text)));
        }
        assert_eq!(size_of::<Option<Word>>(), size_of::<usize>());
        assert!(serde_json::from_value::<Word>(json!(1)).is_err());
    }
}
