//! The memory limits of a store and of each namespace.

use std::collections::HashMap;
use std::str::FromStr;

use super::StoreError;

/// The part of a store that one namespace may use, in percent. All cluster-scoped objects together have the limit of
/// one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceLimit(u8);

impl Default for NamespaceLimit {
    /// The default is 25 %: after three namespaces have reached their limits, other namespaces still have capacity. The
    /// default limit of one user is a quarter, too.
    fn default() -> Self {
        Self(25)
    }
}

impl NamespaceLimit {
    /// The whole store, for a server with all objects in one namespace.
    pub const WHOLE: Self = Self(100);
}

impl FromStr for NamespaceLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent: Option<u8> = text.strip_suffix('%').unwrap_or(text).parse().ok();
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        percent.map(Self).ok_or_else(|| "must be a percentage from 1% to 100%".to_owned())
    }
}

/// The used bytes, by namespace.
pub(super) struct NamespaceUsage {
    limit: usize,
    of_namespace: usize,
    all: usize,
    /// Holds only namespaces that have objects. The empty name stands for cluster-scoped objects.
    by_namespace: HashMap<String, usize>,
}

impl NamespaceUsage {
    /// Creates the account of an empty store with a limit in bytes.
    pub fn new(limit: usize, NamespaceLimit(percent): NamespaceLimit) -> Self {
        let percent = usize::from(percent);
        let of_namespace = limit / 100 * percent + limit % 100 * percent / 100;
        Self { limit, of_namespace, all: 0, by_namespace: HashMap::new() }
    }

    /// Checks that an object may change from the size `before` to the size `after`, in bytes. An object that does not
    /// grow is always accepted.
    ///
    /// # Errors
    /// If the limit of the store or of the namespace would be exceeded.
    pub fn check(
        &self,
        namespace: Option<&str>,
        before: usize,
        after: usize,
    ) -> Result<(), StoreError> {
        let requested = after.saturating_sub(before);
        if requested == 0 {
            return Ok(());
        }
        if self.all + requested > self.limit {
            return Err(StoreError::Full { limit: self.limit });
        }
        let used = self.used(namespace);
        if used + requested > self.of_namespace {
            return Err(StoreError::ShareExceeded { requested, used, limit: self.of_namespace });
        }
        Ok(())
    }

    /// The used bytes and the limit, in bytes.
    pub fn extent(&self) -> (usize, usize) {
        (self.all, self.limit)
    }

    /// Replaces the size of an object in the account, in bytes.
    pub fn replace(&mut self, namespace: Option<&str>, before: usize, after: usize) {
        let used = (self.used(namespace) + after).saturating_sub(before);
        self.all = (self.all + after).saturating_sub(before);
        let namespace = namespace.unwrap_or_default();
        match self.by_namespace.get_mut(namespace) {
            Some(_) if used == 0 => drop(self.by_namespace.remove(namespace)),
            Some(of_namespace) => *of_namespace = used,
            None if used == 0 => {}
            None => drop(self.by_namespace.insert(namespace.to_owned(), used)),
        }
    }

    fn used(&self, namespace: Option<&str>) -> usize {
        self.by_namespace.get(namespace.unwrap_or_default()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_limit_is_parsed_as_a_percentage() {
        for (text, expected) in [("25%", Ok(25)), ("100", Ok(100)), ("1", Ok(1))] {
            assert_eq!(text.parse::<NamespaceLimit>().map(|share| share.0), expected);
        }
        for text in ["0", "101%", "-1", "", "%", "half", "12.5"] {
            assert!(text.parse::<NamespaceLimit>().is_err(), "{text}");
        }
        assert_eq!("100%".parse(), Ok(NamespaceLimit::WHOLE));
        assert_eq!("25%".parse(), Ok(NamespaceLimit::default()));
    }

    #[test]
    fn each_namespace_can_use_its_limit_and_no_more() {
        let mut shares = NamespaceUsage::new(400, NamespaceLimit::default());
        let namespaces = [Some("a"), Some("b"), Some("c"), None];
        for namespace in namespaces {
            shares.check(namespace, 0, 100).unwrap();
            shares.replace(namespace, 0, 60);
            let exceeded = StoreError::ShareExceeded { requested: 41, used: 60, limit: 100 };
            assert_eq!(shares.check(namespace, 0, 41), Err(exceeded));
            // An update counts with the bytes that it adds.
            let exceeded = StoreError::ShareExceeded { requested: 41, used: 60, limit: 100 };
            assert_eq!(shares.check(namespace, 10, 51), Err(exceeded));
            assert_eq!(shares.check(namespace, 60, 90), Ok(()));
            shares.replace(namespace, 60, 90);
        }
        assert_eq!(shares.check(Some("d"), 0, 41), Err(StoreError::Full { limit: 400 }));
        // In a full store, objects can become smaller, or keep their size.
        shares.replace(Some("d"), 0, 40);
        assert_eq!(shares.check(Some("a"), 90, 90), Ok(()));
        assert_eq!(shares.check(Some("a"), 90, 89), Ok(()));
        assert_eq!(shares.check(Some("d"), 0, 1), Err(StoreError::Full { limit: 400 }));
        shares.replace(Some("a"), 90, 89);
        assert_eq!(shares.check(Some("d"), 0, 1), Ok(()));
    }

    #[test]
    fn used_bytes_per_namespace_match_the_stored_objects() {
        let mut shares = NamespaceUsage::new(1 << 30, NamespaceLimit::WHOLE);
        let mut random = fastrand::Rng::with_seed(7);
        let mut objects = HashMap::new();
        for _ in 0..2_000 {
            let namespace = random.choice([None, Some("a"), Some("b")]).unwrap();
            let size = if random.bool() { random.usize(1..1_000) } else { 0 };
            let before = objects.insert((namespace, random.u8(0..8)), size).unwrap_or_default();
            shares.replace(namespace, before, size);
            let of = |namespace| {
                let of_namespace = objects.iter().filter(|((one, _), _)| *one == namespace);
                of_namespace.map(|(_, size)| size).sum::<usize>()
            };
            assert_eq!(shares.all, objects.values().sum::<usize>());
            for namespace in [None, Some("a"), Some("b")] {
                assert_eq!(shares.used(namespace), of(namespace));
                let is_known = shares.by_namespace.contains_key(namespace.unwrap_or_default());
                assert_eq!(is_known, of(namespace) > 0);
            }
        }
    }
}
