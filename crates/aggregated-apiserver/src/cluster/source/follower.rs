//! Keeps the objects of an informer as the cluster shows them.

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
use super::list_watch::{Change, Excess, Interruption, Keeper, ListWatch};
use super::{SourceInformer, SourceOptions, SourceStreams, SourceType};
use crate::cluster::bounded_client::ANSWER_BYTES;
use crate::log_throttle::{DETAILS, LogThrottle};
use crate::object::Key;

/// What is said of code of the user's own that has panicked.
pub(super) const PANICKED: &str = "reading them panicked";

/// How soon objects that there was no room for are listed again, to see whether there is now.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// Keeps the objects of an informer as the cluster shows them. While the cluster is away they stay
/// as they were last.
pub(super) struct Follower<K> {
    pub informer: Arc<SourceInformer<K>>,
    /// What the objects are called in the API, as `pods`.
    resource: String,
    /// What is missing as long as they are.
    missing: &'static str,
    /// What the list in progress has shown.
    pub present: Option<HashSet<Key>>,
    /// Lines about the resource, which followers of the same resource share.
    reports: Arc<LogThrottle>,
    /// Whether a cluster may do without the resource.
    may_be_absent: bool,
    /// Of objects that cannot be read.
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

    /// The same follower of a scope, which logs with others of its resource.
    pub fn of_scope(self, scope: SourceOptions, reports: Arc<LogThrottle>) -> Self {
        Self { reports, may_be_absent: scope.may_be_absent(), ..self }
    }
}

impl<K> Keeper<K> for Follower<K> {
    fn room(&self, key: &Key) -> usize {
        self.informer.room(key)
    }

    fn hasher(&self) -> &RandomState {
        &self.informer.hasher
    }

    fn is_same(&self, key: &Key, hash: u64) -> bool {
        self.informer.is_same(key, hash)
    }

    fn keep(&mut self, change: Change<K>) {
        match change {
            Change::Kept(key, reading) => {
                if let Some(present) = &mut self.present {
                    present.insert(key.clone());
                }
                self.informer.replace(key, Some(reading));
            }
            Change::Same(key) => {
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
            Change::Gone(key) => self.informer.replace(key, None),
        }
    }
}

impl<K: SourceType> Follower<K> {
    /// Keeps the objects as a stream says, if the type has one, and otherwise as the cluster does, for ever. What is the user's own, as how a type is read, may panic: then it is said
    /// that they cannot be read, and tried again.
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
    /// Keeps the objects as the cluster shows them, for ever, also if reading them panics.
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
                            self.backoff_is_over();
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
                    // What is gone was kept meanwhile. What is there may fit without it.
                    self.informer.exceed(self.explain(excess));
                }
                Err(interruption) => self.wait(interruption).await,
            }
        }
    }

    /// Watches from a revision on, until the objects must be listed again.
    async fn watch(&mut self, objects: &ListWatch<K>, mut revision: String) {
        loop {
            let informer = Arc::clone(&self.informer);
            let is_watching = || informer.set_away(None);
            match objects.watch(&mut revision, self, is_watching).await {
                Ok(true) => self.backoff_is_over(),
                // One that shows nothing is not asked for at once again.
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

    /// Says why the objects are not in view, and waits before they are asked for again.
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
            Interruption::Failed(error) => self.be_away(&error, Cause::Failure).await,
            Interruption::Refused(error) => self.be_away(&error, Cause::Refusal).await,
            Interruption::Absent(error) => self.be_away(&error, Cause::Absence).await,
        }
    }

    async fn be_away(&mut self, error: &str, cause: Cause) {
        match cause {
            // A cluster may do without this API: nothing is wrong.
            Cause::Absence if self.may_be_absent => {
                tracing::debug!(
                    target: DETAILS,
                    source = %self.resource,
                    %error,
                    "source is not served"
                );
            }
            _ => self.tell(error),
        }
        self.informer.set_away(Some((error, cause)));
        self.pause().await;
    }

    /// Says in the log why the objects are not in view.
    pub fn tell(&self, error: &str) {
        self.reports.log(|_| {
            let meanwhile = match self.informer.is_synced() {
                true => "the last view of them stays",
                false => self.missing,
            };
            tracing::warn!(source = %self.resource, %error, "cannot watch source, {meanwhile}");
        });
    }

    /// What goes wrong next is tried again soon.
    fn backoff_is_over(&mut self) {
        self.backoff.reset();
    }

    fn explain(&self, excess: Excess) -> String {
        match excess {
            Excess::Memory => self.informer.explain_excess(),
            Excess::Answer => format!("one of them is longer than {} MiB", ANSWER_BYTES >> 20),
        }
    }

    /// Waits, longer each time, until something goes well.
    async fn pause(&mut self) {
        if let Some(pause) = self.backoff.next() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// A time that differs from this one by a tenth at most.
fn about(time: Duration) -> Duration {
    // The keys of a hasher are random.
    let random = RandomState::new().build_hasher().finish() % 201;
    time * 9 / 10 + time * u32::try_from(random).unwrap_or_default() / 1_000
}
