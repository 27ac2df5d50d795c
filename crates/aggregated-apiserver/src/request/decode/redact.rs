//! What is left out for a reader, and of a revision that it gives back, what was left out when it was given.

use super::Operation;
use crate::error::ApiError;
use crate::kind::MissingRights;
use crate::served_kind::ComputedFrom;
use crate::storage::Revision;
use crate::verb::{ContinueToken, Freshness, Moment, WatchStart};

/// What is left out for a reader.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::request) struct Redacted {
    /// What these rights protect.
    pub missing: MissingRights,
    /// Whether it is a watch whose reader has to list anew, because its changes do not tell everything: more was left out where it
    /// goes on from, or less, and its selector looks at that.
    pub must_list: bool,
    /// The revision that is asked for at least, if its number was larger where it was given than it would be told now.
    pub passed: Option<Revision>,
}

impl Operation {
    /// Whether it is a list whose selector looks at what these rights protect.
    pub(in crate::request) fn selects_by(
        &self,
        from: &ComputedFrom,
        rights: MissingRights,
    ) -> bool {
        let Self::List(_, options) = self else { return false };
        let redaction = from.fields.redaction(rights);
        redaction.is_some_and(|redaction| options.selection.looks_at(&redaction))
    }

    /// Leaves out for a reader what these missing rights protect. A revision that was given with something left out says
    /// what: a watch that goes on from there, or a page, leaves that out too, because of objects that do not change its
    /// reader would not be told what comes back. Answers what is left out.
    ///
    /// # Errors
    /// 410 when less was left out of the first pages of a list.
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
                // It answers the object's own revision, and none that it was asked for.
                if let Freshness::NotOlderThan(revision) = &mut options.freshness {
                    from.unmark(revision);
                }
                (&mut options.redaction, 0)
            }
            Self::List(_, options) => {
                let before = match &mut options.moment {
                    Moment::Continued(ContinueToken { revision: Some(revision), .. }) => {
                        let before = unmark(revision);
                        // Who goes on from the first page would never be told of what is left out of this one.
                        if missing & !before != 0 {
                            return Err(ApiError::fields_have_changed());
                        }
                        before
                    }
                    // All of it is read anew.
                    Moment::NotOlderThan(revision) => {
                        at_least(revision);
                        0
                    }
                    Moment::Exactly(revision) => {
                        unmark(revision);
                        0
                    }
                    // It goes on from a page of another moment.
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
