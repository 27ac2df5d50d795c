//! The objects that a read selects, in the version of the request.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::ApiError;
use crate::kind::{ErasedVisibility, Kind, Redaction, Version};
use crate::object::Object;
use crate::object::selector::Selector;
use crate::storage::{Revision, Versioned};
use crate::user::User;

/// The objects that a read selects, in the version of the request.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The version of the request, in which fields are compared.
    pub version: Arc<Version>,
    /// The label and field selectors.
    pub selector: Selector,
    /// The user of the request, if the kind may hide objects from this user.
    pub viewer: Option<Arc<User>>,
    /// The rule with the state that the read uses, if the visibility follows a state.
    pub rule: Option<Arc<ErasedVisibility>>,
    /// The fields that are omitted for the user, if there are any.
    pub redaction: Option<Redaction>,
}

impl Selection {
    /// Returns an object in the form that is visible to the user, if it matches. No other data of the object may be
    /// sent.
    pub fn shown<'a>(&self, versioned: &'a Versioned) -> Option<Cow<'a, Versioned>> {
        if !self.matches(&versioned.object) {
            return None;
        }
        redacted(self.redaction.as_ref(), versioned)
    }

    /// Returns the form of a revision that is sent to the user.
    pub fn told(&self, revision: Revision) -> Revision {
        told(self.redaction.as_ref(), revision)
    }

    /// Whether the stored object matches. Omitted fields are not compared, because a selector would reveal their
    /// values.
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
        // Hidden objects are checked first: neither their fields nor an error in reading the fields may reveal them.
        if self.viewer.as_ref().is_some_and(|viewer| !self.is_visible_to(viewer, whole)) {
            return false;
        }
        let selectable = self.kind.selectable(&self.version);
        if self.looks_at_converted() {
            // An object that cannot be converted matches the selector, so that the reader receives the error.
            let shown = self.kind.in_version_shared(object, &self.version);
            shown.map_or(true, |shown| {
                labels.matches(shown.labels()) && fields.matches(&shown, selectable)
            })
        } else {
            fields.matches(object, selectable)
        }
    }

    fn is_visible_to(&self, viewer: &User, object: &Arc<Object>) -> bool {
        match &self.rule {
            Some(rule) => self.kind.is_visible_by(rule, viewer, object),
            None => self.kind.is_visible_to(viewer, object),
        }
    }

    /// Whether omitted fields may affect whether an object matches.
    pub fn looks_at(&self, redaction: &Redaction) -> bool {
        let Selector { labels, fields } = &self.selector;
        fields.needs_content() || (!labels.is_empty() && redaction.changes_labels())
    }

    /// Rejects an object that cannot be converted, if the conversion decides whether the object matches.
    /// [`matches`](Self::matches) returns true for such an object, so that readers receive the error, but such an
    /// object must not be deleted.
    ///
    /// # Errors
    /// 500 if the object cannot be converted, and its fields or converted labels matter.
    pub fn ensure_known(&self, object: &Arc<Object>) -> Result<(), ApiError> {
        if self.looks_at_converted() {
            self.kind.in_version(object, &self.version)?;
        }
        Ok(())
    }

    /// Whether a webhook must convert objects to find out which objects match.
    pub fn asks(&self) -> bool {
        self.kind.is_converted_by_webhook() && self.looks_at_converted()
    }

    /// Whether objects are compared in the version of the request instead of the stored version.
    fn looks_at_converted(&self) -> bool {
        self.selector.fields.needs_content() || self.labels_are_converted()
    }

    /// Whether labels are compared after conversion, because a webhook may change them.
    fn labels_are_converted(&self) -> bool {
        // Applies to the storage version, too: an object may be stored in the previous storage version.
        !self.selector.labels.is_empty() && self.kind.is_converted_by_webhook()
    }

    /// Whether all objects match and are visible.
    pub fn is_everything(&self) -> bool {
        self.selector.is_empty() && self.viewer.is_none()
    }
}

/// Returns an object without the omitted fields. Returns `None` if the rest is not an object.
pub(super) fn redacted<'a>(
    redaction: Option<&Redaction>,
    versioned: &'a Versioned,
) -> Option<Cow<'a, Versioned>> {
    let Some(redaction) = redaction else { return Some(Cow::Borrowed(versioned)) };
    let object = redaction.apply(&versioned.object)?;
    Some(Cow::Owned(Versioned { revision: told(Some(redaction), versioned.revision), object }))
}

/// Returns a revision with the missing permissions of the reader. A request that continues from the revision omits the
/// same fields.
fn told(redaction: Option<&Redaction>, revision: Revision) -> Revision {
    redaction.map_or(revision, |redaction| revision.marked(redaction.missing()))
}
