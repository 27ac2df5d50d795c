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
    /// The last write that was confirmed.
    last: Option<WrittenUsage>,
    /// A write whose outcome is not known.
    pending: Option<WrittenUsage>,
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

    /// The write of this process that has resulted in this usage.
    pub fn written(&self, used: &Amounts) -> Option<&WrittenUsage> {
        [&self.pending, &self.last].into_iter().flatten().find(|written| written.used == *used)
    }

    /// The number of the last reservation that is part of the status.
    pub fn charged(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.charged)
    }

    /// Starts a write.
    pub fn begin(&mut self, written: WrittenUsage) {
        self.pending = Some(written);
    }

    /// Records that the status has this usage.
    pub fn confirm(&mut self, written: WrittenUsage) {
        self.last = Some(written);
    }

    /// Confirms the pending write if the quota has its usage. An earlier request may have ended without a response.
    pub fn settle(&mut self, limit: &Limit) {
        let newest = self.newest(limit);
        let is_confirmed =
            self.pending.as_ref().is_some_and(|one| newest.status_used.as_ref() == Some(&one.used));
        if is_confirmed {
            self.last = self.pending.take();
        }
    }

    /// Records the version of the quota that a request has returned.
    pub fn received(&mut self, limit: Limit) {
        if self.newest.as_ref().is_none_or(|newest| newest.revision < limit.revision) {
            self.newest = Some(Arc::new(limit));
        }
    }
}
