//! What the computations of one kind share: of each type that several of them look at there is one lookup.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::cluster::Sources;

/// Which of the computations of a kind this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asker(pub u8);

/// The number of a source among those that it is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceNumber(pub u32);

/// More computations than a kind has.
const ASKERS: u32 = 8;

/// A source that something was asked for, and which computation has asked it: in one number, because each question has all of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asking(u32);

impl Asking {
    pub fn new(Asker(asker): Asker, SourceNumber(source): SourceNumber) -> Self {
        // The memory of sources is full long before there are so many.
        Self(source.wrapping_mul(ASKERS) + u32::from(asker) % ASKERS)
    }

    pub fn asker(self) -> Asker {
        Asker((self.0 % ASKERS).try_into().unwrap_or_default())
    }

    pub fn source(self) -> SourceNumber {
        SourceNumber(self.0 / ASKERS)
    }
}

/// What is looked at by the computations of a kind, by its type.
#[derive(Default)]
pub struct Pool(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Pool {
    /// What is shared of a type; made when it is first asked for.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        type_id: TypeId,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get(&type_id).map(Arc::clone);
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return known;
        }
        let made = Arc::new(make());
        shared.insert(type_id, made.clone());
        made
    }
}

/// What is needed to open lookups.
pub struct Opening<'a> {
    pub sources: &'a Sources,
    /// Wakes the task that takes changes.
    pub notify: &'a Arc<Notify>,
    /// Which of the types that share lookups asks.
    pub asker: Asker,
    /// The lookups that are shared.
    pub pool: &'a Pool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_which_source_is_one_number() {
        for (asker, source) in [(0, 0), (5, 0), (0, 1), (7, 12_345), (3, u32::MAX / ASKERS)] {
            let asking = Asking::new(Asker(asker), SourceNumber(source));
            assert_eq!((asking.asker(), asking.source()), (Asker(asker), SourceNumber(source)));
        }
    }
}
