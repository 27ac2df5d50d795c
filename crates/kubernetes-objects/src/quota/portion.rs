//! Portions: how large rooms are in a container that may not take what all of them may.

/// What is told apart.
const PARTS: usize = 1_000;

/// How much every room gets of what lies between the least that it needs and the most that it is
/// meant to have. All rooms get the same, so that none is starved for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion(usize);

impl Portion {
    /// Every room is as large as it is meant to be.
    pub const ALL: Self = Self(PARTS);

    /// The largest portion with which everything fits; with none of them rooms are as small as
    /// they may be.
    pub fn largest(fits: impl Fn(Self) -> bool) -> Self {
        (0..=PARTS).rev().map(Self).find(|&portion| fits(portion)).unwrap_or(Self(0))
    }

    /// The size of a room that needs the least and is meant to have the most.
    pub fn between(self, least: usize, most: usize) -> usize {
        let range = most.saturating_sub(least);
        least + range / PARTS * self.0 + range % PARTS * self.0 / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_between_their_least_and_their_most() {
        assert_eq!(Portion::ALL.between(3, 128 << 20), 128 << 20);
        assert_eq!(Portion::largest(|_| false).between(3, 128 << 20), 3);
        let half = Portion::largest(|portion| portion.between(0, 100) <= 50);
        assert_eq!((half.between(0, 100), half.between(10, 20)), (50, 15));
        assert_eq!(Portion::largest(|_| true), Portion::ALL);
    }
}
