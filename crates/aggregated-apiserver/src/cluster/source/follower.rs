//! The follower of a source: it lists and watches the objects, and updates the informer.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use serde::de::DeserializeOwned;

use super::informer::Cause;
use super::list_watch::{Change, ChangeSink, Excess, Interruption, ListWatch};
use super::{SourceInformer, SourceOptions, SourceStreams, SourceType};
use crate::cluster::bounded_client::ANSWER_BYTES;
use crate::log_throttle::{DETAILS, LogThrottle};
use crate::object::Key;

/// The error message for user code that has panicked.
pub(super) const PANICKED: &str = "reading them panicked";

/// The interval after which objects that exceeded a memory limit are listed again.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// Updates the objects of an informer. While the cluster cannot be reached, the objects stay in their last known state.
pub(super) struct Follower<K> {
    pub informer: Arc<SourceInformer<K>>,
    /// The name of the resource, for example `pods`.
    resource: String,
    /// The consequence of missing objects, for the log.
    missing: &'static str,
    /// The keys that the running list has returned so far.
    pub present: Option<HashSet<Key>>,
    /// Limits the log lines about the resource. Followers of the same resource share it.
    reports: Arc<LogThrottle>,
    /// Whether the resource may be absent in a cluster.
    may_be_absent: bool,
    /// Limits the log lines about objects that cannot be decoded.
    unreadable: LogThrottle,
    backoff: DefaultBackoff,
}

impl<K> Follower<K> {
    pub fn new(informer: Arc<SourceInformer<K>>, resource: String, missing: &'static str) -> Self {
        Self {
            informer,
            resource,
            missing,
            present: None,
            reports: Arc::default(),
            may_be_absent: false,
            unreadable: LogThrottle::default(),
            backoff: DefaultBackoff::default(),
        }
    }

    /// Sets the scope, and the limit of log lines that followers of the same resource share.
    pub fn of_scope(self, scope: SourceOptions, reports: Arc<LogThrottle>) -> Self {
        Self { reports, may_be_absent: scope.may_be_absent(), ..self }
    }
}

impl<K> ChangeSink<K> for Follower<K> {
    fn free_bytes(&self, key: &Key) -> usize {
        self.informer.free_bytes(key)
    }

    fn hasher(&self) -> &RandomState {
        &self.informer.hasher
    }

    fn is_same(&self, key: &Key, hash: u64) -> bool {
        self.informer.is_same(key, hash)
    }

    fn apply(&mut self, change: Change<K>) {
        match change {
            Change::Decoded(key, reading) => {
                if let Some(present) = &mut self.present {
                    present.insert(key.clone());
                }
                self.informer.replace(key, Some(reading));
            }
            Change::Unchanged(key) => {
                self.informer.set_readable(&key);
                if let Some(present) = &mut self.present {
                    present.insert(key);
                }
            }
            Change::Unreadable(key, why) => {
                self.unreadable.log(|_| {
                    let what = &self.resource;
                    tracing::error!(
                        source = %what,
                        object = %key,
                        error = %why,
                        "cannot decode source object; its last state stays, or it is omitted"
                    );
                });
                if let Some(present) = &mut self.present {
                    present.insert(key.clone());
                }
                self.informer.set_unreadable(key);
            }
            Change::Deleted(key) => self.informer.replace(key, None),
        }
    }
}

impl<K: SourceType> Follower<K> {
    /// Updates the objects forever, from a stream if the type has one, and otherwise from the cluster. User code, such
    /// as the decoding of a type, may panic. A panic is handled as a failed request, and reading starts again.
    pub async fn follow(mut self, mut objects: ListWatch<K>, streams: SourceStreams) {
        loop {
            let follow = async {
                self.stream(&streams).await;
                self.run(&mut objects).await;
            };
            if AssertUnwindSafe(follow).catch_unwind().await.is_err() {
                self.wait(Interruption::Failed(PANICKED.to_owned())).await;
            }
        }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Follower<K> {
    /// Updates the objects from the cluster forever, even if decoding them panics.
    pub async fn follow_cluster(mut self, mut objects: ListWatch<K>) {
        loop {
            let run = AssertUnwindSafe(self.run(&mut objects));
            if run.catch_unwind().await.is_err() {
                self.wait(Interruption::Failed(PANICKED.to_owned())).await;
            }
        }
    }

    async fn run(&mut self, objects: &mut ListWatch<K>) {
        loop {
            self.present = Some(HashSet::new());
            let listed = objects.list(self).await;
            let present = self.present.take().unwrap_or_default();
            match listed {
                Ok(revision) => {
                    if !self.informer.is_synced() {
                        tracing::debug!(target: DETAILS, "synced source {}", self.resource);
                    }
                    self.informer.complete(&present);
                    drop(present);
                    match (objects.every(), revision) {
                        (Some(every), _) => {
                            self.backoff.reset();
                            tokio::time::sleep(about(every)).await;
                        }
                        (None, Some(revision)) => self.watch(objects, revision).await,
                        (None, None) => {
                            let why = "the list has no resourceVersion to watch from";
                            self.wait(Interruption::Failed(why.to_owned())).await;
                        }
                    }
                }
                Err(Interruption::TooLarge(excess @ Excess::Memory))
                    if self.informer.len() > present.len() =>
                {
                    // Objects that no longer exist were still stored during this list. The existing objects may fit
                    // without them.
                    self.informer.exceed(self.explain(excess));
                }
                Err(interruption) => self.wait(interruption).await,
            }
        }
    }

    /// Watches from a revision until the objects must be listed again.
    async fn watch(&mut self, objects: &ListWatch<K>, mut revision: String) {
        loop {
            let informer = Arc::clone(&self.informer);
            let is_watching = || informer.set_failure(None);
            match objects.watch(&mut revision, self, is_watching).await {
                Ok(true) => self.backoff.reset(),
                // A watch without events is not repeated immediately.
                Ok(false) => self.pause().await,
                Err(interruption) => {
                    let must_list =
                        matches!(interruption, Interruption::Expired | Interruption::TooLarge(_));
                    self.wait(interruption).await;
                    if must_list {
                        return;
                    }
                }
            }
        }
    }

    /// Records and logs why the objects cannot be read, and waits before the next attempt.
    pub async fn wait(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::Expired => self.pause().await,
            Interruption::TooLarge(excess) => {
                let why = self.explain(excess);
                self.reports.log(|_| {
                    tracing::error!(
                        source = %self.resource,
                        error = %why,
                        "dropped the objects of a source, {}; they are listed again every \
                         minute (--source-memory-mib)",
                        self.missing
                    );
                });
                self.informer.exceed(why);
                tokio::time::sleep(AGAIN).await;
            }
            Interruption::Failed(error) => self.record_failure(&error, Cause::Failure).await,
            Interruption::Refused(error) => self.record_failure(&error, Cause::Refusal).await,
            Interruption::Absent(error) => self.record_failure(&error, Cause::Absence).await,
        }
    }

    async fn record_failure(&mut self, error: &str, cause: Cause) {
        match cause {
            // This API may be absent in a cluster, so there is no warning.
            Cause::Absence if self.may_be_absent => {
                tracing::debug!(
                    target: DETAILS,
                    source = %self.resource,
                    %error,
                    "source is not served"
                );
            }
            _ => self.log_failure(error),
        }
        self.informer.set_failure(Some((error, cause)));
        self.pause().await;
    }

    /// Logs why the objects cannot be read.
    fn log_failure(&self, error: &str) {
        self.reports.log(|_| {
            let meanwhile = match self.informer.is_synced() {
                true => "the last known objects stay",
                false => self.missing,
            };
            tracing::warn!(source = %self.resource, %error, "cannot watch source, {meanwhile}");
        });
    }

    fn explain(&self, excess: Excess) -> String {
        match excess {
            Excess::Memory => self.informer.explain_excess(),
            Excess::Answer => format!("one of them is longer than {} MiB", ANSWER_BYTES >> 20),
        }
    }

    /// Waits for the next backoff delay. The delays grow until a request succeeds.
    async fn pause(&mut self) {
        if let Some(pause) = self.backoff.next() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Returns a random time that differs from this one by at most a tenth.
fn about(time: Duration) -> Duration {
    // The keys of a hasher are random.
    let random = RandomState::new().build_hasher().finish() % 201;
    time * 9 / 10 + time * u32::try_from(random).unwrap_or_default() / 1_000
}
