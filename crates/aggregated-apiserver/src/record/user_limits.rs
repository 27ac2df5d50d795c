//! A memory limit that users share. One user can only use a part of it, so that requests of one user do not displace
//! the data of all others.

use std::collections::HashMap;

/// The divisor of the per-user limit: one user can use at most a quarter of the whole limit.
pub(super) const PARTS: usize = 4;

/// The memory that each user has reserved.
#[derive(Debug)]
pub(super) struct UserLimits {
    limit: usize,
    taken: usize,
    /// The reserved bytes by user name. Users without reservation have no entry.
    users: HashMap<Box<str>, usize>,
}

impl UserLimits {
    /// Creates a limit of this number of bytes.
    pub(super) fn of(limit: usize) -> Self {
        Self { limit, taken: 0, users: HashMap::new() }
    }

    /// Reserves bytes for a user. Returns false if the limit or the per-user limit would be exceeded.
    pub(super) fn take(&mut self, user: &str, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let (share, known) = (self.limit / PARTS, self.users.get_mut(user));
        let has = known.as_deref().copied().unwrap_or(0) + bytes;
        if self.taken + bytes > self.limit || has > share {
            return false;
        }
        self.taken += bytes;
        match known {
            Some(known) => *known = has,
            None => {
                self.users.insert(user.into(), bytes);
            }
        }
        true
    }

    /// Releases bytes that were reserved for a user.
    pub(super) fn give_back(&mut self, user: &str, bytes: usize) {
        let Some(has) = self.users.get_mut(user) else { return };
        let bytes = bytes.min(*has);
        *has -= bytes;
        self.taken -= bytes;
        if *has == 0 {
            self.users.remove(user);
        }
    }
}

#[cfg(test)]
impl UserLimits {
    /// The approximate memory use of this value, in bytes.
    pub(super) fn memory(&self) -> usize {
        let names: usize = self.users.keys().map(|name| name.len()).sum();
        names + self.users.capacity() * (size_of::<(Box<str>, usize)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_gets_at_most_a_quarter_and_returned_capacity_is_reusable() {
        let mut shares = UserLimits::of(100);
        assert!(shares.take("loud", 20) && shares.take("loud", 5));
        assert!(!shares.take("loud", 1), "a quarter is all");
        assert!(shares.take("quiet", 25));
        assert!(shares.take("a", 25) && shares.take("b", 20));
        assert!(!shares.take("c", 6), "there is no more");
        assert!(shares.take("c", 5));
        shares.give_back("loud", 25);
        assert!(shares.take("d", 25));
        for user in ["quiet", "a", "b", "c", "d", "stranger"] {
            shares.give_back(user, 100);
        }
        assert!(shares.users.is_empty() && shares.taken == 0);
    }
}
