//! Which objects a reader wants: label selectors and field selectors.

mod field;
mod label;
mod selectable;

pub use field::FieldSelector;
pub use label::LabelSelector;
pub use selectable::SelectableFields;
pub(super) use selectable::Selection;

/// Terms and values in a selector of labels or of fields, equal ones counted once: a
/// watch holds them for as long as it lasts.
const TERMS_LIMIT: usize = 500;
/// What a term takes besides its texts, in bytes; a value in it takes as much.
const TERM: usize = 64;

/// Terms and values as they are written, before it is known which are equal: reading them is work.
const WRITTEN_LIMIT: usize = 4 * TERMS_LIMIT;

/// Refuses a text that is not worth reading.
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

/// Labels and fields together; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// What is asked of labels.
    pub labels: LabelSelector,
    /// What is asked of fields.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether everything is wanted.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// How many bytes it takes, about.
    pub fn size(&self) -> usize {
        self.labels.size() + self.fields.size()
    }
}
