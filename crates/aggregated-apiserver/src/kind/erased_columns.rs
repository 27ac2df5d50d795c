//! Table cells that are computed by code, for columns that a JSONPath cannot express. The code's type is erased: it
//! receives JSON.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

type Compute = Box<dyn Fn(&Value, Timestamp) -> Vec<Value> + Send + Sync>;

/// Code that computes the cells of some columns of one version.
pub struct ErasedColumns {
    version: String,
    columns: Vec<&'static str>,
    compute: Compute,
    /// Whether the type of a column is only a hint.
    is_shown_unchanged: bool,
}

impl ErasedColumns {
    /// `compute` returns the cells of these columns for an object, in this order.
    pub fn new(version: &str, columns: Vec<&'static str>, compute: Compute) -> Self {
        Self { version: version.to_owned(), columns, compute, is_shown_unchanged: false }
    }

    /// Cells that are not formatted according to the type of their column.
    #[must_use]
    pub fn shown_unchanged(self) -> Self {
        Self { is_shown_unchanged: true, ..self }
    }

    /// Whether the cells are not formatted according to the type of their column.
    pub(super) fn are_shown_unchanged(&self) -> bool {
        self.is_shown_unchanged
    }

    /// The version of the objects that the code receives.
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

impl fmt::Debug for ErasedColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedCells").field("columns", &self.columns).finish_non_exhaustive()
    }
}
