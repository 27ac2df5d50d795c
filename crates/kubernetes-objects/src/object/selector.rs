//! Label selectors and field selectors, which select the objects for a list or a watch.

mod field;
mod label;
mod selectable;

pub use field::FieldSelector;
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
pub use selectable::SelectableFields;
pub(super) use selectable::Selection;

/// The largest number of terms and values in a selector of labels or of fields. Equal ones count once. The limit exists
/// because a watch holds its selector as long as it is open.
const TERMS_LIMIT: usize = 500;
/// The memory of a term besides its strings, in bytes. A value of a term uses as much.
const TERM: usize = 64;

/// The largest number of terms and values in the text of a selector, including equal ones, because parsing them is
/// work.
const WRITTEN_LIMIT: usize = 4 * TERMS_LIMIT;

/// Rejects a text with too many terms and values before it is parsed.
fn check_written(text: &str) -> Result<(), String> {
    let commas = text.bytes().filter(|&byte| byte == b',').count();
    if commas >= WRITTEN_LIMIT {
        return Err(format!("a selector holds at most {WRITTEN_LIMIT} terms and values"));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), String> {
    if count > TERMS_LIMIT {
        return Err(format!(
            "a selector holds at most {TERMS_LIMIT} different terms and values, got {count}"
        ));
    }
    Ok(())
}

/// A label selector and a field selector. An empty selector selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The requirements on labels.
    pub labels: LabelSelector,
    /// The requirements on fields.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether the selector selects every object.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The approximate memory of the selector, in bytes.
    pub fn size(&self) -> usize {
        self.labels.size() + self.fields.size()
    }
}
