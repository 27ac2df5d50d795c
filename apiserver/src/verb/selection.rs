//! Selection: which objects a reader wants, in the version that it reads.

use std::sync::Arc;

use crate::error::ApiError;
use crate::kind::{Kind, Version};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::user::User;

/// Which objects a reader wants, in the version that it reads.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The version that fields are looked up in.
    pub version: Arc<Version>,
    /// What is asked of labels and fields.
    pub selector: Selector,
    /// Who reads, if the kind may hide objects from this user.
    pub viewer: Option<Arc<User>>,
}

impl Selection {
    /// Whether the object, as it is kept, is wanted.
    pub fn matches(&self, object: &Arc<Object>) -> bool {
        let Selector { labels, fields } = &self.selector;
        if !labels.matches(object.labels()) {
            return false;
        }
        // First: what is hidden may not show by its fields, or by having none that can be read.
        if self.viewer.as_ref().is_some_and(|viewer| !self.kind.is_visible_to(viewer, object)) {
            return false;
        }
        let selectable = self.kind.selectable(&self.version);
        if fields.needs_content() {
            // What cannot be converted is wanted, so that the reader is told so.
            let shown = self.kind.in_version_shared(object, &self.version);
            shown.map_or(true, |shown| fields.matches(&shown, selectable))
        } else {
            fields.matches(object, selectable)
        }
    }

    /// Refuses an object of which it cannot be said whether it is wanted, because it cannot be
    /// converted: readers are told so, but nothing may be deleted for that.
    ///
    /// # Errors
    /// 500 when it cannot be converted, and its fields matter.
    pub fn ensure_known(&self, object: &Arc<Object>) -> Result<(), ApiError> {
        if self.selector.fields.needs_content() {
            self.kind.in_version(object, &self.version)?;
        }
        Ok(())
    }

    /// Whether a webhook has to be asked which objects are wanted.
    pub fn asks(&self) -> bool {
        self.kind.is_converted_by_webhook() && self.selector.fields.needs_content()
    }

    /// Whether everything is wanted, and shown.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty() && self.viewer.is_none()
    }
}
