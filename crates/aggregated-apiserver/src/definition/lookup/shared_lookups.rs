//! Sharing of lookups between the computations of a kind: there is one lookup for each type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::cluster::Sources;

/// The index of a computation among those of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputationNumber(pub u8);

/// The number of a source within its computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceNumber(pub u32);

/// An upper limit for the number of computations of a kind.
const COMPUTATIONS: u32 = 8;

/// A source and its computation, which depend on a query. Both are packed into one number to save memory, because each
/// query stores its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependent(u32);

impl Dependent {
    pub fn new(
        ComputationNumber(computation): ComputationNumber,
        SourceNumber(source): SourceNumber,
    ) -> Self {
        // The memory limit of sources is reached long before this overflows.
        Self(source.wrapping_mul(COMPUTATIONS) + u32::from(computation) % COMPUTATIONS)
    }

    pub fn computation(self) -> ComputationNumber {
        ComputationNumber((self.0 % COMPUTATIONS).try_into().unwrap_or_default())
    }

    pub fn source(self) -> SourceNumber {
        SourceNumber(self.0 / COMPUTATIONS)
    }
}

/// The shared lookups of the computations of a kind, by type.
#[derive(Default)]
pub struct SharedLookups(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl SharedLookups {
    /// Returns the shared value for a type; `make` creates it at first use.
    pub fn of_type<T: Send + Sync + 'static>(
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

/// The parameters for opening lookups.
pub struct LookupContext<'a> {
    pub sources: &'a Sources,
    /// Wakes the task that processes changes.
    pub notify: &'a Arc<Notify>,
    /// The computation that opens the lookups.
    pub computation: ComputationNumber,
    /// The shared lookups.
    pub shared_lookups: &'a SharedLookups,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_and_a_source_are_packed_into_one_number() {
        for (computation, source) in
            [(0, 0), (5, 0), (0, 1), (7, 12_345), (3, u32::MAX / COMPUTATIONS)]
        {
            let dependent = Dependent::new(ComputationNumber(computation), SourceNumber(source));
            assert_eq!(
                (dependent.computation(), dependent.source()),
                (ComputationNumber(computation), SourceNumber(source))
            );
        }
    }
}
