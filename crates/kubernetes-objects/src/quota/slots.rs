//! A limited number of slots, shared by all users so that neither one user nor a few users can take all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The divisor of the per-user limit. A user without slots can take at most a quarter of all slots at once. A user with
/// slots can hold at most a quarter of the slots that other users have left. So the limit of each user falls with the
/// number of users at their limit, and free slots remain for the next user.
const SHARE: usize = 4;

/// A limited number of slots. Copies share the same slots.
#[derive(Clone, Debug)]
pub struct Slots {
    count: usize,
    is_divided: bool,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_user: HashMap<String, usize>,
}

/// Slots that are taken until this value is dropped.
#[derive(Debug)]
pub struct Slot {
    places: Slots,
    user: String,
    taken: usize,
}

impl Slots {
    /// `count` slots. One user can hold at most a quarter of the slots that other users have left.
    pub fn new(count: usize) -> Self {
        Self { count, is_divided: true, taken: Arc::default() }
    }

    /// `count` slots without a per-user limit.
    pub fn undivided(count: usize) -> Self {
        Self { count, is_divided: false, taken: Arc::default() }
    }

    /// Takes `wanted` slots, if they are free and within the limit of the user.
    pub fn take(&self, user: &str, wanted: usize) -> Option<Slot> {
        let mut taken = self.taken_now();
        let of_user = taken.by_user.get(user).copied().unwrap_or_default();
        let left = self.count - (taken.all - of_user);
        let share = match of_user {
            _ if !self.is_divided => left,
            0 => self.count / SHARE,
            _ => left / SHARE,
        };
        if of_user + wanted > share.min(left) {
            return None;
        }
        taken.all += wanted;
        taken.by_user.insert(user.to_owned(), of_user + wanted);
        Some(Slot { places: self.clone(), user: user.to_owned(), taken: wanted })
    }

    fn taken_now(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.places.taken_now();
        taken.all = taken.all.saturating_sub(self.taken);
        let Some(of_user) = taken.by_user.get_mut(&self.user) else { return };
        *of_user = of_user.saturating_sub(self.taken);
        if *of_user == 0 {
            taken.by_user.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_use_all_slots() {
        let places = Slots::new(8);
        let held: Vec<_> = std::iter::from_fn(|| places.take("greedy", 1)).collect();
        assert_eq!((held.len(), places.taken_now().all), (2, 2));
        assert!(places.take("modest", 1).is_some());
        drop(held);
        assert!(places.taken_now().by_user.is_empty());
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let all = names.map(|name| [places.take(name, 1), places.take(name, 1)]);
        let count = all.iter().flatten().filter(|place| place.is_some()).count();
        assert_eq!(count, 8);
        assert!(places.take("i", 1).is_none(), "all are taken");
    }

    #[test]
    fn a_few_users_cannot_use_all_slots() {
        let places = Slots::new(1_000);
        let mut held = Vec::new();
        let take_all = |name: &str| {
            let all: Vec<_> = std::iter::from_fn(|| places.take(name, 1)).collect();
            let count = all.len();
            held.push(all);
            count
        };
        let counts = ["a", "b", "c", "d", "e", "modest"].map(take_all);
        assert_eq!(counts, [250, 187, 140, 105, 79, 59]);
    }
}
