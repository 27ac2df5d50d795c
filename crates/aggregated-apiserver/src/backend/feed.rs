//! The feed of a virtual kind: it polls the backend or follows its stream, and publishes the changes.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};

use super::erased::{Feed, changes};
use super::store::BackendStore;
use super::{Change, Item, Listing, objects};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Key, Tree};
use crate::storage::StoreError;
use crate::watch_cache::{SourceState, WatchCache};

/// The shortest interval between two polls.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause before a backend that has failed is called again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The number of objects after which other tasks run.
const BATCH: usize = 256;

/// Throttles the log about backends that fail.
static FAILED: LogThrottle = LogThrottle::at_most(5);

/// Publishes the changes of a backend until the server stops.
pub(crate) async fn run(store: Arc<BackendStore>, cache: Arc<WatchCache>) {
    if let Some(metadata) = store.metadata() {
        metadata.known().await;
    }
    let feed = Runner { status: Status::new(&store, &cache), store, cache };
    match &feed.store.backend.feed {
        Feed::Polled { .. } => feed.poll().await,
        Feed::Watched { .. } => feed.watch().await,
    }
}

struct Runner {
    store: Arc<BackendStore>,
    cache: Arc<WatchCache>,
    status: Status,
}

impl Runner {
    async fn poll(mut self) {
        let Feed::Polled { list, interval } = &self.store.clone().backend.feed else { return };
        let interval = (*interval).max(SHORTEST);
        let mut failures = 0;
        loop {
            let begun = self.store.begin_poll();
            let listed = self.store.backend.call(list).await;
            let pause = match listed {
                Ok(listing) => {
                    let is_complete = listing.is_complete;
                    let taken = self.take_list(listing, Some(begun)).await;
                    self.store.end_poll(begun, is_complete && taken.is_ok());
                    failures = 0;
                    self.status.ended(&taken, is_complete);
                    interval
                }
                Err(error) => {
                    failures += 1;
                    self.status.failed(&error.to_string());
                    pause(failures).max(interval.min(LONGEST_PAUSE))
                }
            };
            self.wait(pause).await;
        }
    }

    /// Waits until the next poll, and takes over the changes of metadata in the meantime.
    async fn wait(&self, pause: Duration) {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            self.take_metadata().await;
            let changed = async {
                match self.store.metadata() {
                    Some(metadata) => metadata.changed.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut pause => return,
                () = self.store.refresh.notified() => return,
                () = changed => {}
            }
        }
    }

    async fn watch(mut self) {
        let Feed::Watched { run } = &self.store.clone().backend.feed else { return };
        let mut failures = 0;
        loop {
            let (sender, mut receiver) = changes();
            let running = AssertUnwindSafe(async { run(sender).await }).catch_unwind();
            tokio::pin!(running);
            let mut is_begun = false;
            let why = loop {
                let metadata = async {
                    match self.store.metadata() {
                        Some(metadata) => metadata.changed.notified().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    change = receiver.recv() => match change {
                        Some(Ok(change)) => match self.take_change(change, &mut is_begun).await {
                            Ok(()) => failures = 0,
                            Err(why) => break why,
                        },
                        Some(Err(error)) => break error.to_string(),
                        None => break "the stream has ended".to_owned(),
                    },
                    ended = &mut running, if !receiver.is_closed() => match ended {
                        // The changes that it has sent are taken first.
                        Ok(()) => receiver.close(),
                        Err(_) => break "the backend panicked".to_owned(),
                    },
                    () = metadata => self.take_metadata().await,
                }
            };
            failures += 1;
            self.status.failed(&why);
            sleep(pause(failures)).await;
        }
    }

    /// Takes over a change of a stream.
    ///
    /// # Errors
    /// The reason why the stream must restart.
    async fn take_change(
        &mut self,
        change: Change<Tree>,
        is_begun: &mut bool,
    ) -> Result<(), String> {
        let taken = match change {
            Change::Restarted(listing) => {
                let is_complete = listing.is_complete;
                *is_begun |= is_complete;
                let taken = self.take_list(listing, None).await;
                self.store.end_poll(u64::MAX, is_complete && taken.is_ok());
                self.status.ended(&taken, is_complete);
                taken
            }
            _ if !*is_begun => {
                return Err("the stream does not begin with all objects (Change::Restarted)".into());
            }
            Change::Applied(item) => {
                let key = objects::key(&item.object);
                self.store.take(&key, Some(item))
            }
            Change::Deleted { namespace, name } => {
                self.store.take(&Key::new(namespace.as_deref(), &name), None)
            }
        };
        taken.map_err(|error| error.to_string())
    }

    /// Takes over a list. `begun` is the time when a poll began: keys that were written since are skipped.
    ///
    /// # Errors
    /// If the known objects exceed their memory limit.
    async fn take_list(
        &mut self,
        listing: Listing<Tree>,
        begun: Option<u64>,
    ) -> Result<(), StoreError> {
        let Listing { items, is_complete } = listing;
        let mut listed = HashSet::new();
        for (index, item) in items.into_iter().enumerate() {
            if index % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            self.take_listed(item, &mut listed, begun)?;
        }
        if !is_complete {
            return Ok(());
        }
        for key in self.store.keys() {
            if !listed.contains(&key) && !self.is_written_since(&key, begun) {
                self.store.take(&key, None)?;
            }
        }
        if let Some(metadata) = self.store.metadata().filter(|_| !self.cache.is_synced()) {
            let records = metadata.keys().into_iter();
            records.filter(|key| !listed.contains(key)).for_each(|key| metadata.note_deleted(&key));
        }
        self.cache.mark_synced();
        Ok(())
    }

    fn take_listed(
        &self,
        item: Item<Tree>,
        listed: &mut HashSet<Key>,
        begun: Option<u64>,
    ) -> Result<(), StoreError> {
        let key = objects::key(&item.object);
        if listed.contains(&key) {
            self.store.log_unfit(&key, "the backend has listed it twice");
            return Ok(());
        }
        listed.insert(key.clone());
        match self.is_written_since(&key, begun) {
            true => Ok(()),
            false => self.store.take(&key, Some(item)),
        }
    }

    fn is_written_since(&self, key: &Key, begun: Option<u64>) -> bool {
        begun.is_some_and(|begun| self.store.is_written_since(key, begun))
    }

    /// Takes over the metadata that other replicas have stored, and removes records of deleted objects.
    async fn take_metadata(&self) {
        let Some(metadata) = self.store.metadata() else { return };
        for key in metadata.take_changed() {
            if self.store.take_metadata(&key).is_err() {
                self.store.refresh.notify_one();
            }
        }
        for key in metadata.take_obsolete() {
            if let Err(why) = self.store.remove_metadata(&key).await {
                self.store.log_unfit(&key, &why);
            }
        }
    }
}

/// The pause after this number of failures.
fn pause(failures: u32) -> Duration {
    let pause = SHORTEST.saturating_mul(1 << failures.min(10));
    pause.min(LONGEST_PAUSE)
}

/// The state of the backend, as health checks, metrics and warnings report it.
struct Status {
    kind: String,
    cache: Arc<WatchCache>,
    is_synced: bool,
    failed_since: Option<Instant>,
}

impl Status {
    fn new(store: &BackendStore, cache: &Arc<WatchCache>) -> Self {
        let kind = store.kind().qualified();
        let status = Self { kind, cache: Arc::clone(cache), is_synced: false, failed_since: None };
        status.show(None, None);
        status
    }

    /// Reports a list that was taken over.
    fn ended(&mut self, taken: &Result<(), StoreError>, is_complete: bool) {
        match taken {
            Ok(()) => {
                if self.failed_since.take().is_some() {
                    tracing::info!(kind = self.kind, "the backend responds again");
                }
                self.is_synced |= is_complete;
                self.show(None, None);
            }
            Err(error) => {
                let excess = "the backend has more objects than fit into the memory limit";
                self.log(&format!("{excess}: {error}"));
                self.show(None, Some(excess.to_owned()));
            }
        }
    }

    /// Reports a failed call.
    fn failed(&mut self, error: &str) {
        self.failed_since.get_or_insert_with(Instant::now);
        self.log(error);
        // The message can contain secrets, so only the log has it.
        self.show(Some("its backend fails"), None);
    }

    fn log(&self, error: &str) {
        FAILED.log(|suppressed| {
            let error = shown(error);
            tracing::error!(suppressed, kind = self.kind, error, "cannot read from the backend");
        });
    }

    fn show(&self, watch_error: Option<&str>, excess: Option<String>) {
        self.cache.set_sources(vec![SourceState {
            resource: self.kind.clone(),
            is_synced: self.is_synced,
            watch_error: watch_error.map(str::to_owned),
            unseen_since: self.failed_since,
            excess,
            unreadable: 0,
            is_left_out: None,
            is_rightly_absent: false,
        }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::RevisionSequencer;

    #[test]
    fn the_status_reports_failures_without_their_messages() {
        let sequencer = Arc::new(RevisionSequencer::starting(jiff::Timestamp::UNIX_EPOCH, 0));
        let cache = Arc::new(WatchCache::new(sequencer, 1 << 20));
        let (kind, is_synced, failed_since) = ("books.example.com".to_owned(), false, None);
        let mut status = Status { kind, cache: Arc::clone(&cache), is_synced, failed_since };
        let shown = || cache.sources().into_iter().next().unwrap();
        status.failed("password=hunter2");
        let failed = shown();
        assert_eq!(failed.watch_error.as_deref(), Some("its backend fails"));
        assert!(!failed.is_synced && failed.unseen_since.is_some());
        status.ended(&Ok(()), false);
        assert!(shown().watch_error.is_none() && !shown().is_synced, "the list was partial");
        status.ended(&Ok(()), true);
        assert!(shown().is_synced && shown().is_in_view());
        status.ended(&Err(StoreError::Full { limit: 1 }), true);
        assert!(shown().excess.is_some() && !shown().is_in_view());
    }

    #[test]
    fn pauses_grow_and_are_limited() {
        let pauses: Vec<_> = (1..40).map(pause).collect();
        assert!(pauses.is_sorted() && pauses[0] < Duration::from_secs(1));
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
    }
}
