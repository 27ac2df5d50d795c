//! Which objects a reader wants: label selectors and field selectors.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

use super::Object;

/// Labels and fields together; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// What is asked of labels.
    pub labels: LabelSelector,
    /// What is asked of fields.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether the object is wanted.
    pub fn matches(&self, object: &Object) -> bool {
        self.labels.matches(object.labels()) && self.fields.matches(object)
    }
}
