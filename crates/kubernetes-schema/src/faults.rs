//! Faults: what a validation finds, and how much it may do to find it.
//!
//! Whoever writes a definition says how often each part of an object is looked at, and whoever writes
//! the object says how many parts there are: the product has no bound but this one.

use super::ERRORS_LIMIT;
use crate::error::FieldError;

/// How many steps one validation may take. A step looks at one value, one allowed value or some bytes
/// of a text; it takes 20 to 100 nanoseconds. An object of a hundred thousand values, each held
/// against ten schemas, takes a tenth of them.
const STEPS: usize = 10_000_000;
/// Bytes of text that are one step.
const STEP_BYTES: usize = 64;
/// What it takes to put a fault into words, in steps.
const FAULT: usize = 8;
/// How many bytes of faults are told. A pattern and the values that are allowed stand in each.
const ERRORS_BYTES: usize = 1 << 20;
/// As kube-apiserver says it of rules in CEL.
const EXHAUSTED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What was found, and what may still be done.
#[derive(Debug)]
pub struct Faults {
    errors: Vec<FieldError>,
    bytes: usize,
    steps: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { errors: Vec::new(), bytes: 0, steps: STEPS }
    }
}

impl Faults {
    /// Nothing found, and nothing done.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error, if there is room and it is not there yet. The first error is always added.
    pub(super) fn push(&mut self, error: FieldError) {
        self.spend(FAULT);
        if self.errors.contains(&error) {
            return;
        }
        if self.errors.is_empty() || !self.is_full() {
            self.bytes += error.size();
            self.errors.push(error);
        }
    }

    /// Whether nothing more is looked for.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_LIMIT || self.bytes >= ERRORS_BYTES || self.steps == 0
    }

    /// Does so many steps.
    pub(super) fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Looks at so many bytes of text.
    pub(super) fn spend_bytes(&mut self, bytes: usize) {
        self.spend(1 + bytes / STEP_BYTES);
    }

    /// Lets somebody look at bytes of text who takes them from what is left.
    pub(super) fn with_bytes<T>(&mut self, look: impl FnOnce(&mut usize) -> T) -> T {
        let mut left = self.steps.saturating_mul(STEP_BYTES);
        let seen = look(&mut left);
        self.steps = left / STEP_BYTES;
        seen
    }

    /// Looks for the faults of the same value by another schema, beside what was found. What they take
    /// counts here until they are [let go of](Self::release).
    pub fn beside(&mut self, look: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut other = Self { errors: Vec::new(), bytes: self.bytes, steps: self.steps };
        look(&mut other);
        (self.bytes, self.steps) = (other.bytes, other.steps);
        other.errors
    }

    /// What the faults found up to now take, in bytes.
    pub fn held(&self) -> usize {
        self.bytes
    }

    /// Lets go of all that was found beside since so much was held.
    pub fn release(&mut self, held: usize) {
        self.bytes = held;
    }

    /// Takes what was found beside, which is no longer than told.
    pub(super) fn extend(&mut self, errors: Vec<FieldError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// All that was found; the end of the steps alone, if they were not enough to find out.
    pub fn into_errors(self) -> Vec<FieldError> {
        if self.steps == 0 {
            return vec![FieldError::invalid("<nil>", "\"\"", EXHAUSTED)];
        }
        self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(length: usize) -> FieldError {
        FieldError::required("a".repeat(length), "")
    }

    #[test]
    fn faults_are_bounded_by_their_number_and_their_bytes() {
        let mut faults = Faults::new();
        for length in 0..2 * ERRORS_LIMIT {
            faults.push(fault(length));
        }
        assert_eq!(faults.into_errors().len(), ERRORS_LIMIT);
        let mut faults = Faults::new();
        for more in 0..3 {
            faults.push(fault(ERRORS_BYTES + more));
        }
        assert_eq!(faults.into_errors().len(), 1);
    }

    #[test]
    fn equal_errors_are_reported_once() {
        let mut faults = Faults::new();
        [1, 2, 1].into_iter().for_each(|length| faults.push(fault(length)));
        assert_eq!(faults.into_errors().len(), 2);
    }

    #[test]
    fn what_is_found_beside_counts_until_it_is_let_go_of() {
        let mut faults = Faults::new();
        let held = faults.held();
        let beside = faults.beside(|other| other.push(fault(ERRORS_BYTES)));
        assert!(beside.len() == 1 && faults.is_full());
        // The first of each is told.
        assert_eq!(faults.beside(|other| other.push(fault(1))).len(), 1);
        faults.release(held);
        assert!(!faults.is_full() && faults.into_errors().is_empty());
    }

    #[test]
    fn the_end_of_steps_is_told_alone() {
        let mut faults = Faults::new();
        faults.push(fault(1));
        faults.beside(|other| other.spend(STEPS));
        assert!(faults.is_full());
        let told = faults.into_errors();
        assert!(told.len() == 1 && told[0].to_string().ends_with(EXHAUSTED), "{told:?}");
    }
}
