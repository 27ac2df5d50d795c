//! Selection: which objects a reader wants, in the version that it reads.

use std::sync::Arc;

use crate::kind::{Kind, Version};
use crate::object::Object;
use crate::object::selector::Selector;

/// Which objects a reader wants, in the version that it reads.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The version that fields are looked up in.
    pub version: Arc<Version>,
    /// What is asked of labels and fields.
    pub selector: Selector,
}

impl Selection {
    /// Whether the object, as it is kept, is wanted.
    pub fn matches(&self, object: &Arc<Object>) -> bool {
        let Selector { labels, fields } = &self.selector;
        if !labels.matches(object.labels()) {
            return false;
        }
        let selectable = self.kind.selectable(&self.version);
        if fields.needs_content() {
            fields.matches(&self.kind.in_version(object, &self.version), selectable)
        } else {
            fields.matches(object, selectable)
        }
    }

    /// Whether everything is wanted.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty()
    }
}
