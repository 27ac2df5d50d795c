//! The writes of this process to the status of one ResourceQuota.

use std::sync::Arc;

use super::amounts::Amounts;
use super::limits::Limit;

/// The writes of this process to the status of one quota.
#[derive(Debug)]
pub(super) struct Progress {
    uid: String,
    /// The newest version of the quota that a request has returned. The log may be behind it.
    newest: Option<Arc<Limit>>,
    /// The last confirmed write, with the revision of the quota that contains it.
    last: Option<(u64, WrittenUsage)>,
    /// The write that has no response yet, with the revision of the quota that it replaces.
    pending: Option<(u64, WrittenUsage)>,
}

/// The usage in a status that this process has written.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenUsage {
    /// The usage.
    pub used: Amounts,
    /// The part of the usage that other processes have charged.
    pub elsewhere: Amounts,
    /// The number of the last reservation that is part of the usage.
    pub charged: u64,
}

impl Progress {
    /// The progress of a quota whose status this process has not written.
    pub fn of(limit: &Limit) -> Self {
        Self { uid: limit.uid().to_owned(), newest: None, last: None, pending: None }
    }

    /// Whether this is about the quota, and not about an earlier one of the same name.
    pub fn is_of(&self, limit: &Limit) -> bool {
        self.uid == limit.uid()
    }

    /// The newest known version of the quota.
    pub fn newest<'a>(&'a self, limit: &'a Limit) -> &'a Limit {
        self.newest.as_deref().filter(|newest| newest.revision > limit.revision).unwrap_or(limit)
    }

    /// The write of this process that is the status of this version of the quota.
    ///
    /// The log can show a write before its response arrives. Until the response, a status with the usage of the pending
    /// write is taken for this write. Charges do not depend on this: they start after the response.
    pub fn written(&self, version: &Limit) -> Option<&WrittenUsage> {
        let last = self.last.as_ref().filter(|(revision, _)| *revision == version.revision);
        let pending = self.pending.as_ref().filter(|(replaced, written)| {
            version.revision > *replaced && version.status_used.as_ref() == Some(&written.used)
        });
        last.or(pending).map(|(_, written)| written)
    }

    /// The number of the last reservation that is part of the status.
    pub fn charged(&self) -> u64 {
        self.last.as_ref().map_or(0, |(_, last)| last.charged)
    }

    /// Starts a write that replaces the quota at this revision.
    pub fn begin(&mut self, replaced: u64, written: WrittenUsage) {
        self.pending = Some((replaced, written));
    }

    /// Ends a write that was refused, or whose outcome is not known. If it was stored nevertheless, its usage counts as
    /// charged by another process.
    pub fn abandon(&mut self) {
        self.pending = None;
    }

    /// Records that the quota has this usage at this revision.
    pub fn confirm(&mut self, revision: u64, written: WrittenUsage) {
        self.last = Some((revision, written));
    }

    /// Confirms the pending write with the version of the quota that its response contains.
    pub fn stored(&mut self, limit: Limit) {
        if let Some((_, written)) = self.pending.take() {
            self.confirm(limit.revision, written);
        }
        self.received(limit);
    }

    /// Records the version of the quota that a request has returned.
    pub fn received(&mut self, limit: Limit) {
        if self.newest.as_ref().is_none_or(|newest| newest.revision < limit.revision) {
            self.newest = Some(Arc::new(limit));
        }
    }
}
