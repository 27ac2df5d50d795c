//! Omission of fields from reads. A revision records which fields were omitted when it was issued.

use super::{ContinueToken, Freshness, Moment, Read, WatchStart};
use crate::error::ApiError;
use crate::kind::MissingRights;
use crate::served_kind::ComputedFrom;
use crate::storage::Revision;

/// The fields that are omitted for a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redacted {
    /// The permissions that protect the omitted fields.
    pub missing: MissingRights,
    /// Whether the request is a watch whose client must list again, because the changes do not contain everything. This
    /// is the case if more fields were omitted before the revision of the watch, or if fewer were and the selector
    /// reads one of them.
    pub must_list: bool,
    /// The minimum revision that the client requests, if the client's number for it is larger than the number that a
    /// response would contain now. The next read must then have a newer revision.
    pub passed: Option<Revision>,
}

impl Read {
    /// Whether the read is a list whose selector reads a field that these permissions protect.
    pub fn selects_by(&self, from: &ComputedFrom, rights: MissingRights) -> bool {
        let Self::List(_, options) = self else { return false };
        let redaction = from.fields.redaction(rights);
        redaction.is_some_and(|redaction| options.selection.looks_at(&redaction))
    }

    /// Omits the fields of these missing permissions from a read. If a watch or a page starts from an issued revision,
    /// the fields that were omitted at that revision are omitted too. Otherwise, its client would never receive these
    /// fields of unchanged objects. Returns the omitted fields.
    ///
    /// # Errors
    /// 410 if fewer fields were omitted from the first pages of a list.
    pub fn redact(
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
                // The response contains the revision of the object, not the requested revision.
                if let Freshness::NotOlderThan(revision) = &mut options.freshness {
                    from.unmark(revision);
                }
                (&mut options.redaction, 0)
            }
            Self::List(_, options) => {
                let before = match &mut options.moment {
                    Moment::Continued(ContinueToken { revision: Some(revision), .. }) => {
                        let before = unmark(revision);
                        // A client that watches from the revision of the first page would never receive the fields that
                        // are omitted from this page.
                        if missing & !before != 0 {
                            return Err(ApiError::fields_have_changed());
                        }
                        before
                    }
                    // All objects are read again.
                    Moment::NotOlderThan(revision) => {
                        at_least(revision);
                        0
                    }
                    Moment::Exactly(revision) => {
                        unmark(revision);
                        0
                    }
                    // The list continues after a page of another revision.
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
        };
        redacted.missing |= before;
        *redaction = from.fields.redaction(redacted.missing);
        Ok(redacted)
    }
}
