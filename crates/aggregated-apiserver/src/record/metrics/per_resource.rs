//! Metrics by resource.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The largest number of resources with metrics of their own. Clients can create and delete kinds at run time, and
/// choose their names. Further resources are counted together, with empty labels.
const LIMIT: usize = 1_000;

/// A metric for each resource. Copies of a metric share its values.
#[derive(Debug)]
pub(super) struct PerResource<const N: usize, T>(Mutex<BTreeMap<[String; N], T>>);

impl<const N: usize, T> Default for PerResource<N, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const N: usize, T: Clone> PerResource<N, T> {
    /// Returns the metric of a resource.
    pub(super) fn of(&self, resource: [&str; N], make: impl FnOnce() -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut resource = resource.map(str::to_owned);
        if all.len() >= LIMIT && !all.contains_key(&resource) {
            resource = [const { String::new() }; N];
        }
        all.entry(resource).or_insert_with(make).clone()
    }

    /// All metrics with their resources.
    pub(super) fn all(&self) -> BTreeMap<[String; N], T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded() {
        let counted = PerResource::<1, u8>::default();
        for number in 0..2 * LIMIT {
            counted.of([&number.to_string()], u8::default);
        }
        assert_eq!(counted.all().len(), LIMIT + 1);
    }
}
