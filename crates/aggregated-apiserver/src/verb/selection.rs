//! Selection: which objects a reader wants, in the version that it reads.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::ApiError;
use crate::kind::{Kind, Redaction, Version};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::storage::{Revision, Versioned};
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
    /// What is left out of objects for the reader, if anything is.
    pub redaction: Option<Redaction>,
}

impl Selection {
    /// An object as the reader is shown it, if it is wanted: nothing else of it may be sent.
    pub fn shown<'a>(&self, versioned: &'a Versioned) -> Option<Cow<'a, Versioned>> {
        if !self.matches(&versioned.object) {
            return None;
        }
        redacted(self.redaction.as_ref(), versioned)
    }

    /// A revision as the reader is told it.
    pub fn told(&self, revision: Revision) -> Revision {
        told(self.redaction.as_ref(), revision)
    }

    /// Whether the object, as it is kept, is wanted. What the reader is not shown of it does not count: a selector
    /// would tell it.
    pub fn matches(&self, object: &Arc<Object>) -> bool {
        let Selector { labels, fields } = &self.selector;
        let whole = object;
        let redaction = self.redaction.as_ref().filter(|redaction| self.looks_at(redaction));
        let redacted = match redaction.map(|redaction| redaction.apply(object)) {
            Some(None) => return false,
            redacted => redacted.flatten(),
        };
        let object = redacted.as_ref().unwrap_or(object);
        if !self.labels_are_converted() && !labels.matches(object.labels()) {
            return false;
        }
        // First: what is hidden may not show by its fields, or by having none that can be read.
        if self.viewer.as_ref().is_some_and(|viewer| !self.kind.is_visible_to(viewer, whole)) {
            return false;
        }
        let selectable = self.kind.selectable(&self.version);
        if self.looks_at_converted() {
            // What cannot be converted is wanted, so that the reader is told so.
            let shown = self.kind.in_version_shared(object, &self.version);
            shown.map_or(true, |shown| {
                labels.matches(shown.labels()) && fields.matches(&shown, selectable)
            })
        } else {
            fields.matches(object, selectable)
        }
    }

    /// Whether what is left out may say whether an object is wanted.
    pub fn looks_at(&self, redaction: &Redaction) -> bool {
        let Selector { labels, fields } = &self.selector;
        fields.needs_content() || (!labels.is_empty() && redaction.changes_labels())
    }

    /// Refuses an object of which it cannot be said whether it is wanted, because it cannot be
    /// converted: readers are told so, but nothing may be deleted for that.
    ///
    /// # Errors
    /// 500 when it cannot be converted, and its fields or converted labels matter.
    pub fn ensure_known(&self, object: &Arc<Object>) -> Result<(), ApiError> {
        if self.looks_at_converted() {
            self.kind.in_version(object, &self.version)?;
        }
        Ok(())
    }

    /// Whether a webhook has to be asked which objects are wanted.
    pub fn asks(&self) -> bool {
        self.kind.is_converted_by_webhook() && self.looks_at_converted()
    }

    /// Whether objects have to be in the version that is read before it can be said whether they are wanted.
    fn looks_at_converted(&self) -> bool {
        self.selector.fields.needs_content() || self.labels_are_converted()
    }

    /// Whether labels count that are not those of the object as it is kept: a webhook may change them.
    fn labels_are_converted(&self) -> bool {
        // In the stored version too: an object may be kept in the one that was stored before.
        !self.selector.labels.is_empty() && self.kind.is_converted_by_webhook()
    }

    /// Whether everything is wanted, and shown.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty() && self.viewer.is_none()
    }
}

/// An object as a reader is shown it from whom this is kept. `None` if nothing is left that is an object.
pub(super) fn redacted<'a>(
    redaction: Option<&Redaction>,
    versioned: &'a Versioned,
) -> Option<Cow<'a, Versioned>> {
    let Some(redaction) = redaction else { return Some(Cow::Borrowed(versioned)) };
    let object = redaction.apply(&versioned.object)?;
    Some(Cow::Owned(Versioned { revision: told(Some(redaction), versioned.revision), object }))
}

/// A revision as it is told to a reader from whom this is kept: it says what was left out, so that what goes on from
/// there shows no more.
fn told(redaction: Option<&Redaction>, revision: Revision) -> Revision {
    redaction.map_or(revision, |redaction| revision.marked(redaction.missing()))
}
