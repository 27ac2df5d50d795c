//! Which objects a reader wants: label selectors and field selectors.

mod field;
mod label;
mod selectable;

pub use field::FieldSelector;
pub use label::LabelSelector;
pub use selectable::SelectableFields;
pub(super) use selectable::Selected;

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
}
