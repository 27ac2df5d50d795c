//! Revision: the number behind `resourceVersion`.

use std::fmt;

/// How many bits of a number are the tag of the process that gave it.
pub(super) const TAG_BITS: u32 = 12;
/// How many bits above the tag are a mark.
pub const MARK_BITS: u32 = 6;

/// A point in the history of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// That of an object that is not kept.
    pub const NONE: Self = Self(0);

    /// The revision of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The same revision of a process as it is given to a client who is not shown everything: the mark says what was
    /// left out. It lies between two revisions, so that numbers of several marks are in order.
    #[must_use]
    pub fn marked(self, mark: u8) -> Self {
        let mark = u64::from(mark) & ((1 << MARK_BITS) - 1);
        Self(self.0 | mark << TAG_BITS)
    }

    /// A revision of a process as a client gives it back: without its mark, and the mark.
    pub fn unmarked(self) -> (Self, u8) {
        let marks = ((1 << MARK_BITS) - 1) << TAG_BITS;
        let mark = u8::try_from((self.0 & marks) >> TAG_BITS).unwrap_or_default();
        (Self(self.0 & !marks), mark)
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
