//! Cells that code computes, where a JSONPath is not enough. The code's type is erased: it is
//! given JSON.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

type Compute = Box<dyn Fn(&Value, Timestamp) -> Vec<Value> + Send + Sync>;

/// Cells that code computes, for some columns of one version.
pub struct ErasedCells {
    version: String,
    columns: Vec<&'static str>,
    compute: Compute,
    /// Whether the type of a column is a hint alone.
    is_shown_unchanged: bool,
}

impl ErasedCells {
    /// What `compute` answers for an object are the cells of these columns, in
    /// this order.
    pub fn new(version: &str, columns: Vec<&'static str>, compute: Compute) -> Self {
        Self { version: version.to_owned(), columns, compute, is_shown_unchanged: false }
    }

    /// The same, shown as they are computed, whatever the type of the column.
    #[must_use]
    pub fn shown_unchanged(self) -> Self {
        Self { is_shown_unchanged: true, ..self }
    }

    /// Whether they are shown as they are computed.
    pub(super) fn are_shown_unchanged(&self) -> bool {
        self.is_shown_unchanged
    }

    /// The version whose objects it is given.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The names of the columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().copied()
    }

    /// The cells of an object.
    pub fn compute(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.compute)(object, now)
    }
}

impl fmt::Debug for ErasedCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedCells").field("columns", &self.columns).finish_non_exhaustive()
    }
}
