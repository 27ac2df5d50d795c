//! Configurations that admission reads from the cluster, with the consequence of those that cannot be read.

use std::sync::{Arc, OnceLock};

use super::AdmissionError;
use crate::cluster::{FollowedObjects, SourceType, Sources, resource_name};
use crate::watch_cache::SourceState;

/// The consequence of configurations that cannot be read from the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadConfigurations {
    /// Writes are refused with 503.
    #[default]
    Refuse,
    /// Writes are admitted without them.
    Admit,
}

/// The configurations of one type in the cluster.
pub(super) struct ClusterConfigurations<K> {
    sources: Arc<Sources>,
    /// The watch, which starts with the server, or with the first write to a kind that was added at run time.
    followed: OnceLock<FollowedObjects<K>>,
    unread: UnreadConfigurations,
    /// The consequence of unread configurations, for the log.
    missing: &'static str,
}

impl<K: SourceType> ClusterConfigurations<K> {
    /// The configurations, which are watched from the first use on.
    pub(super) fn new(
        sources: Arc<Sources>,
        unread: UnreadConfigurations,
        missing: &'static str,
    ) -> Self {
        Self { sources, followed: OnceLock::new(), unread, missing }
    }

    pub(super) fn followed(&self) -> &FollowedObjects<K> {
        self.followed.get_or_init(|| FollowedObjects::new(Arc::clone(&self.sources), self.missing))
    }

    /// Whether all configurations are known. A cluster that does not serve their API has none.
    pub(super) fn are_known(&self) -> bool {
        let followed = self.followed();
        let is_absent = || followed.status().failure.is_some_and(|failure| failure.is_absent);
        followed.are_complete() || is_absent()
    }

    /// Waits until the configurations are synced or cannot be read.
    ///
    /// # Errors
    /// 503 if the configurations are unknown and writes are refused then. The message begins with `plugin` and `what`,
    /// for example `the webhooks of the cluster`.
    pub(super) async fn settled(&self, plugin: &str, what: &str) -> Result<(), AdmissionError> {
        if self.are_known() {
            return Ok(());
        }
        self.followed().settled().await;
        if self.are_known() || self.unread == UnreadConfigurations::Admit {
            return Ok(());
        }
        let why = self.explain();
        Err(AdmissionError::unavailable(format!("{plugin}: {what} are unknown: {why}")))
    }

    /// The state of the configurations as a source, once they are followed. A cluster without the API has none.
    pub(super) fn source(&self) -> Option<SourceState> {
        let status = self.followed.get()?.status();
        let is_absent = status.failure.as_ref().is_some_and(|failure| failure.is_absent);
        (!is_absent).then(|| SourceState {
            resource: resource_name::<K>(),
            is_synced: status.is_synced,
            is_rightly_absent: false,
            unseen_since: status.failure.as_ref().map(|failure| failure.since),
            watch_error: status.failure.map(|failure| failure.why),
            excess: status.excess,
            unreadable: status.unreadable,
            is_left_out: None,
        })
    }

    /// The reason why the configurations are unknown.
    fn explain(&self) -> String {
        let (resource, status) = (resource_name::<K>(), self.followed().status());
        match (status.excess, status.failure) {
            (Some(excess), _) => format!("{resource} are not stored: {excess}"),
            (None, Some(failure)) => format!("{resource} cannot be listed: {}", failure.why),
            (None, None) if status.is_synced => {
                format!("{} of {resource} cannot be decoded", status.unreadable)
            }
            (None, None) => format!("{resource} have not been listed yet"),
        }
    }
}
