//! Revisions: the numbers behind `resourceVersion`.

use std::fmt;

/// The number of low bits of a revision that are the tag of the process that issued it.
pub(super) const TAG_BITS: u32 = 12;
/// The number of bits above the tag that hold a mark.
pub const MARK_BITS: u32 = 6;

/// A point in the history of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The revision of an object that is not stored.
    pub const NONE: Self = Self(0);

    /// Creates a revision from its number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns this revision of a process with a mark, for a client that does not see all fields. The mark records
    /// which fields were omitted. A marked revision lies between two revisions, so that numbers with different marks
    /// are in order.
    #[must_use]
    pub fn marked(self, mark: u8) -> Self {
        let mark = u64::from(mark) & ((1 << MARK_BITS) - 1);
        Self(self.0 | mark << TAG_BITS)
    }

    /// Splits a revision of a process that a client has sent into the revision without its mark, and the mark.
    pub fn unmarked(self) -> (Self, u8) {
        let marks = ((1 << MARK_BITS) - 1) << TAG_BITS;
        let mark = u8::try_from((self.0 & marks) >> TAG_BITS).unwrap_or_default();
        (Self(self.0 & !marks), mark)
    }

    /// The number of the revision.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
