//! Faults: the errors of a validation, and the limits on the work to find them.
//!
//! A definition determines how often each part of an object is visited, and an object determines the number of its
//! parts. Only these limits apply to the product.

use super::ERRORS_LIMIT;
use crate::error::FieldError;

/// The largest number of steps of one validation. A step visits one value, one allowed value or `STEP_BYTES` of a
/// string, and takes 20 to 100 nanoseconds. An object with 100,000 values, each validated against ten schemas, takes a
/// tenth of these steps.
const STEPS: usize = 10_000_000;
/// The number of bytes of a string that are visited in one step.
const STEP_BYTES: usize = 64;
/// The cost of formatting an error, in steps.
const FAULT: usize = 8;
/// The largest total size of reported errors, in bytes. Each error can contain a pattern and all allowed values.
const ERRORS_BYTES: usize = 1 << 20;
/// kube-apiserver's message about CEL rules that exceed their cost budget.
const EXHAUSTED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The errors that were found, and the steps that are left.
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
    /// Creates an empty list of errors with all steps left.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error, unless it is a duplicate or a limit is reached. The first error is always added.
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

    /// Whether a limit is reached, so that the validation stops.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_LIMIT || self.bytes >= ERRORS_BYTES || self.steps == 0
    }

    /// Subtracts steps.
    pub(super) fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Subtracts the steps for this many bytes of text.
    pub(super) fn spend_bytes(&mut self, bytes: usize) {
        self.spend(1 + bytes / STEP_BYTES);
    }

    /// Calls a function with the number of bytes of text that are left. The function subtracts the bytes that it uses.
    pub(super) fn with_bytes<T>(&mut self, look: impl FnOnce(&mut usize) -> T) -> T {
        let mut left = self.steps.saturating_mul(STEP_BYTES);
        let seen = look(&mut left);
        self.steps = left / STEP_BYTES;
        seen
    }

    /// Collects the errors of the same value against another schema in a separate list. Their size counts here until it
    /// is [released](Self::release).
    pub fn beside(&mut self, look: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut other = Self { errors: Vec::new(), bytes: self.bytes, steps: self.steps };
        look(&mut other);
        (self.bytes, self.steps) = (other.bytes, other.steps);
        other.errors
    }

    /// Returns the total size of the errors so far, in bytes.
    pub fn held(&self) -> usize {
        self.bytes
    }

    /// Releases the size of all separate lists that were created since `held` was the total size.
    pub fn release(&mut self, held: usize) {
        self.bytes = held;
    }

    /// Adds the errors of a separate list, which is within the limits.
    pub(super) fn extend(&mut self, errors: Vec<FieldError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// Returns all errors. If the steps were exhausted, returns only an error about that.
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
    fn validation_errors_are_limited_by_number_and_bytes() {
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
    fn separate_error_lists_count_towards_the_limit_until_released() {
        let mut faults = Faults::new();
        let held = faults.held();
        let beside = faults.beside(|other| other.push(fault(ERRORS_BYTES)));
        assert!(beside.len() == 1 && faults.is_full());
        // The first error of each separate list is added in any case.
        assert_eq!(faults.beside(|other| other.push(fault(1))).len(), 1);
        faults.release(held);
        assert!(!faults.is_full() && faults.into_errors().is_empty());
    }

    #[test]
    fn exhausted_validation_steps_replace_all_other_errors() {
        let mut faults = Faults::new();
        faults.push(fault(1));
        faults.beside(|other| other.spend(STEPS));
        assert!(faults.is_full());
        let told = faults.into_errors();
        assert!(told.len() == 1 && told[0].to_string().ends_with(EXHAUSTED), "{told:?}");
    }
}
