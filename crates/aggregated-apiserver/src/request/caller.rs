//! The user of a request, and what the user is not allowed to read.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::answers::Answer;
use super::authorize::{Authorized, Permission, Revoked};
use crate::clock::Clock;
use crate::error::ApiError;
use crate::served_kind::ServedKind;
use crate::user::User;
use crate::verb::{Read, Redacted};
use crate::watch_cache::SourceState;

/// The user of a request, with the response that memory is charged to.
pub(super) struct Caller<'a> {
    pub user: &'a Arc<User>,
    pub answer: &'a Answer,
    /// The permission that a watch depends on while it is open.
    pub permission: Option<Permission>,
    /// The fields that are omitted from objects for this caller.
    pub authorized: Authorized,
}

impl Caller<'_> {
    /// Omits the fields of a computed kind that the caller is not allowed to read.
    ///
    /// # Errors
    /// 410 if fewer fields were omitted from the first pages of a list.
    pub(super) fn redact(
        &mut self,
        read: &mut Read,
        served: &ServedKind,
    ) -> Result<Redacted, ApiError> {
        let Some(from) = served.computed_from() else { return Ok(Redacted::default()) };
        let Authorized { missing, missing_to_select } = &mut self.authorized;
        if let Some(more) = missing_to_select.take()
            && read.selects_by(from, more.rights)
        {
            *missing = more;
        }
        // This call is also necessary for callers that see all fields, because a revision records which fields were
        // hidden when it was issued.
        let redacted = read.redact(from, missing.rights)?;
        if let Some(revision) = redacted.passed {
            served.cache.pass(revision);
        }
        Ok(redacted)
    }

    /// Warnings for readers of a computed or virtual kind: the state of its sources, and the omitted fields.
    pub(super) fn warnings(&self, served: &ServedKind) -> Vec<String> {
        if served.is_stored() {
            return Vec::new();
        }
        let sources = served.cache.sources();
        let of_sources = sources.iter().filter_map(SourceState::warning);
        // If the cluster does not have a resource, nothing is omitted.
        let is_absent = |resource: &str| {
            sources.iter().any(|source| source.resource == resource && source.is_rightly_absent)
        };
        let left_out = self.authorized.missing.left_out.iter();
        let left_out = left_out.filter(|one| !is_absent(&one.resource));
        of_sources
            .chain(left_out.map(|one| format!("{}: what that would add is left out", one.why)))
            .collect()
    }

    /// Completes when a watch of the caller must end.
    pub(super) fn revoked(self, redacted: &Redacted, clock: &Clock) -> BoxFuture<'static, Revoked> {
        match self.permission {
            _ if redacted.must_list => std::future::ready(Revoked::Fields).boxed(),
            Some(permission) => permission.ended(clock.clone(), redacted.missing).boxed(),
            None => futures::future::pending().boxed(),
        }
    }
}
