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
            // What cannot be converted is wanted, so that the reader is told so.
            let shown = self.kind.in_version(object, &self.version);
            shown.map_or(true, |shown| fields.matches(&shown, selectable))
        } else {
            fields.matches(object, selectable)
        }
    }

    /// Whether everything is wanted.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty()
    }
}
