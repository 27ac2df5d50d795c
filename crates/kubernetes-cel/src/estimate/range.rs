//! Ranges of costs and of sizes.

/// The smallest and the largest value of a cost, a number of items, or a number of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const ZERO: Self = Self::of(0);
    pub(super) const ONE: Self = Self::of(1);
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    /// The empty range, which any first range replaces.
    pub(super) const NONE: Self = Self { min: u64::MAX, max: 0 };

    pub(super) const fn of(exactly: u64) -> Self {
        Self { min: exactly, max: exactly }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn at_price(self, price: f64) -> Self {
        Self { min: scaled(self.min, price), max: scaled(self.max, price) }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The cost of `units` at a price per unit, rounded up.
fn scaled(units: u64, price: f64) -> u64 {
    let exact = (units as f64 * price).ceil();
    if exact >= 18_446_744_073_709_551_616.0 { u64::MAX } else { exact as u64 }
}

/// The estimated sizes of the entries of a list or a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySize {
    pub(super) is_list: bool,
    pub(super) key: Range,
    pub(super) value: Range,
}

impl EntrySize {
    pub(super) fn or(self, other: Self) -> Self {
        Self { key: self.key.or(other.key), value: self.value.or(other.value), ..self }
    }
}
