//! The fields that are omitted for a reader. A resourceVersion that a reader sends back contains which fields were
//! omitted when it was returned.

use super::Operation;
use crate::error::ApiError;
use crate::kind::MissingRights;
use crate::served_kind::ComputedFrom;
use crate::storage::Revision;
use crate::verb::{ContinueToken, Freshness, Moment, WatchStart};

/// The fields that are omitted for a reader.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::request) struct Redacted {
    /// The missing permissions that protect the fields.
    pub missing: MissingRights,
    /// Whether the reader is a watch that must list again, because its events would be incomplete: other fields were
    /// omitted where it continues from, and its selector uses them.
    pub must_list: bool,
    /// The minimum revision that the client requested, if its resourceVersion names more missing permissions than now,
    /// and is therefore a larger number than the server would return for the same revision now.
    pub passed: Option<Revision>,
}

impl Operation {
    /// Whether the operation is a list whose selector uses the protected fields.
    pub(in crate::request) fn selects_by(
        &self,
        from: &ComputedFrom,
        rights: MissingRights,
    ) -> bool {
        let Self::List(_, options) = self else { return false };
        let redaction = from.fields.redaction(rights);
        redaction.is_some_and(|redaction| options.selection.looks_at(&redaction))
    }

    /// Omits the fields that these missing permissions protect. A resourceVersion contains the fields that were omitted
    /// when it was returned. A watch or a page that continues from it omits them too, because its reader would not be
    /// notified of the fields of objects that do not change. Returns the omitted fields.
    ///
    /// # Errors
    /// 410 if fewer fields were omitted from the first pages of a list.
    pub(in crate::request) fn redact(
        &mut self,
        from: &ComputedFrom,
        missing: MissingRights,
    ) -> Result<Redacted, ApiError> {
        let mut redacted = Redacted { missing, ..Redacted::default() };
        let unmark = |revision: &mut Revision| from.unmark(revision);
        let mut at_least = |revision: &mut Revision| {
            let asked = *revision;
            unmark(revision);
            if revision.marked(missing) < asked {
                redacted.passed = Some(*revision);
            }
        };
        let mut unmark_freshness = |freshness: &mut Freshness| match freshness {
            Freshness::NotOlderThan(revision) => at_least(revision),
            Freshness::Any | Freshness::Latest => {}
        };
        let (redaction, before) = match self {
            Self::Get(_, options) => {
                // The response contains the revision of the object, not the requested one.
                if let Freshness::NotOlderThan(revision) = &mut options.freshness {
                    from.unmark(revision);
                }
                (&mut options.redaction, 0)
            }
            Self::List(_, options) => {
                let before = match &mut options.moment {
                    Moment::Continued(ContinueToken { revision: Some(revision), .. }) => {
                        let before = unmark(revision);
                        // A client that continues from the first page would never be notified of the fields that are
                        // omitted from this page.
                        if missing & !before != 0 {
                            return Err(ApiError::fields_have_changed());
                        }
                        before
                    }
                    // The whole list is read again.
                    Moment::NotOlderThan(revision) => {
                        at_least(revision);
                        0
                    }
                    Moment::Exactly(revision) => {
                        unmark(revision);
                        0
                    }
                    // The list continues from a page of another moment.
                    Moment::Continued(ContinueToken { left_out, .. }) => {
                        let before = *left_out & from.fields.rights();
                        if missing & !before != 0 {
                            return Err(ApiError::fields_have_changed());
                        }
                        before
                    }
                    Moment::Latest | Moment::Any => 0,
                };
                (&mut options.selection.redaction, before)
            }
            Self::Watch(_, options, _) => {
                let before = match &mut options.start {
                    WatchStart::After(revision) => unmark(revision),
                    WatchStart::State { at_least, .. } => {
                        unmark_freshness(at_least);
                        0
                    }
                    WatchStart::Now => 0,
                };
                let is_resumed = matches!(options.start, WatchStart::After(_));
                let is_selected_by_less = (from.fields.redaction(missing & !before))
                    .is_some_and(|lost| options.selection.looks_at(&lost));
                redacted.must_list = before & !missing != 0 || is_resumed && is_selected_by_less;
                (&mut options.selection.redaction, before)
            }
            Self::Review(..)
            | Self::CreateSubresource(..)
            | Self::Write(..)
            | Self::Delete(..)
            | Self::DeleteCollection(..) => return Ok(Redacted::default()),
        };
        redacted.missing |= before;
        *redaction = from.fields.redaction(redacted.missing);
        Ok(redacted)
    }
}
