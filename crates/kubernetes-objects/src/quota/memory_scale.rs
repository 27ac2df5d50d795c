//! The scale of memory budgets in a container that is too small for all budgets at their largest size.

/// The number of steps between the smallest and the largest scale.
const PARTS: usize = 1_000;

/// The scale of all memory budgets, between the smallest size that a budget needs and the largest size that it is meant
/// to have. All budgets have the same scale, so that none is reduced in favor of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryScale(usize);

impl MemoryScale {
    /// The scale at which every budget has its largest size.
    pub const ALL: Self = Self(PARTS);

    /// The largest scale for which `fits` returns true. If no scale fits, every budget has its smallest size.
    pub fn largest(fits: impl Fn(Self) -> bool) -> Self {
        (0..=PARTS).rev().map(Self).find(|&portion| fits(portion)).unwrap_or(Self(0))
    }

    /// The size of a budget with the smallest size `least` and the largest size `most`.
    pub fn between(self, least: usize, most: usize) -> usize {
        let range = most.saturating_sub(least);
        least + range / PARTS * self.0 + range % PARTS * self.0 / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_scale_between_smallest_and_largest_size() {
        assert_eq!(MemoryScale::ALL.between(3, 128 << 20), 128 << 20);
        assert_eq!(MemoryScale::largest(|_| false).between(3, 128 << 20), 3);
        let half = MemoryScale::largest(|portion| portion.between(0, 100) <= 50);
        assert_eq!((half.between(0, 100), half.between(10, 20)), (50, 15));
        assert_eq!(MemoryScale::largest(|_| true), MemoryScale::ALL);
    }
}
