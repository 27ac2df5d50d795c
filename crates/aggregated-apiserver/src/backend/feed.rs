//! The feed of a virtual kind: it polls the backend or follows its stream, and publishes the changes.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::erased::{BATCH, Feed, changes};
use super::store::{BackendStore, Taken};
use super::{Change, Item, Listing, objects};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Key, Tree};
use crate::storage::StoreError;
use crate::watch_cache::{SourceState, WatchCache};

/// The shortest interval between two polls.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest interval between two polls.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// The longest pause before a backend that has failed is called again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
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

/// The outcome of a list that was taken over.
#[derive(Default)]
struct TakenList {
    is_complete: bool,
    /// The number of objects that do not belong to the kind.
    unfit: usize,
    /// The first error of an object for which there is no memory.
    excess: Option<StoreError>,
}

impl Runner {
    async fn poll(mut self) {
        let Feed::Polled { list, interval } = &self.store.clone().backend.feed else { return };
        let interval = (*interval).clamp(SHORTEST, LONGEST);
        let mut failures = 0;
        loop {
            let (begun, time) = (self.store.begin_list(), Instant::now());
            let (shortest, pause) = match self.store.backend.call(list).await {
                Ok(listing) => {
                    failures = 0;
                    let taken = self.take_list(listing, begun).await;
                    self.store.end_list(begun, taken.is_complete && taken.excess.is_none());
                    self.status.ended(&taken);
                    if taken.is_complete {
                        self.store.remove_obsolete_records(Some(time)).await;
                    }
                    (SHORTEST, interval)
                }
                Err(error) => {
                    failures += 1;
                    self.store.end_list(begun, false);
                    self.status.failed(&error.to_string());
                    let pause = pause(failures).max(interval.min(LONGEST_PAUSE));
                    (pause, pause)
                }
            };
            self.wait(shortest, pause).await;
        }
    }

    /// Waits until the next poll, and takes over changes of metadata in the meantime. A write that needs newer objects
    /// ends the pause, but not before the shortest one.
    async fn wait(&self, shortest: Duration, pause: Duration) {
        let ends = Instant::now() + pause;
        let may_end = Instant::now() + shortest;
        loop {
            self.take_records().await;
            tokio::select! {
                () = sleep_until(ends) => return,
                () = self.store.refresh.notified() => {
                    sleep_until(may_end).await;
                    return;
                }
                () = self.records_changed() => {}
            }
        }
    }

    async fn watch(mut self) {
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let why = self.follow().await;
            // A stream that ends soon after its start has failed, also if it has sent all objects.
            failures = if started.elapsed() > LONGEST_PAUSE { 1 } else { failures + 1 };
            self.status.failed(&why);
            sleep(pause(failures)).await;
        }
    }

    /// Follows one stream of changes. Returns the reason why it has ended.
    async fn follow(&mut self) -> String {
        let store = Arc::clone(&self.store);
        let Feed::Watched { run, .. } = &store.backend.feed else { return String::new() };
        let begun = store.begin_list();
        let (sender, mut receiver) = changes();
        let running = AssertUnwindSafe(async { run(sender).await }).catch_unwind();
        tokio::pin!(running);
        let timeout = store.backend.timeout();
        let first = sleep(timeout);
        tokio::pin!(first);
        let mut is_begun = false;
        let mut sweep = interval(store.grace().clamp(SHORTEST, LONGEST));
        loop {
            tokio::select! {
                change = receiver.recv() => match change {
                    Some(Ok(change)) => {
                        if let Err(why) = self.take_change(change, begun, &mut is_begun).await {
                            return why;
                        }
                    }
                    Some(Err(error)) => return error.to_string(),
                    None => return "the stream has ended".to_owned(),
                },
                ended = &mut running, if !receiver.is_closed() => match ended {
                    // The changes that it has sent are taken first.
                    Ok(()) => receiver.close(),
                    Err(_) => return "the backend panicked".to_owned(),
                },
                () = &mut first, if !is_begun => {
                    return format!("the stream has not sent all objects within {timeout:?}");
                }
                () = store.refresh.notified() => {
                    if let Err(error) = store.resolve_all().await {
                        return error.to_string();
                    }
                }
                () = self.records_changed() => self.take_records().await,
                _ = sweep.tick() => {
                    store.remove_obsolete_records(None).await;
                    store.save_generations().await;
                }
            }
        }
    }

    /// Takes over a change of a stream.
    ///
    /// # Errors
    /// The reason why the stream must restart.
    async fn take_change(
        &mut self,
        change: Change<Tree>,
        begun: u64,
        is_begun: &mut bool,
    ) -> Result<(), String> {
        match change {
            Change::Restarted(listing) => {
                let taken = self.take_list(listing, begun).await;
                self.store.end_list(begun, taken.is_complete && taken.excess.is_none());
                *is_begun |= taken.is_complete;
                self.status.ended(&taken);
                // Restarted, so that the missing objects come again.
                taken.excess.map_or(Ok(()), |error| Err(error.to_string()))
            }
            _ if !*is_begun => {
                Err("the stream does not begin with all objects (Change::Restarted)".into())
            }
            Change::Applied(item) => {
                let key = objects::key(&item.object);
                self.take_event(&key, Some(item), begun)
            }
            Change::Deleted { namespace, name } => {
                let namespace = namespace.as_deref().filter(|namespace| !namespace.is_empty());
                self.take_event(&Key::new(namespace, &name), None, begun)
            }
        }
    }

    fn take_event(
        &mut self,
        key: &Key,
        item: Option<Item<Tree>>,
        begun: u64,
    ) -> Result<(), String> {
        match self.store.take(key, item, begun) {
            Ok(Taken::Known | Taken::Unfit) => Ok(()),
            // The event may be older than a write. The object itself is not.
            Ok(Taken::Skipped) => {
                self.store.note_unresolved(key);
                Ok(())
            }
            Err(error) => {
                self.status.exceeded(&error);
                // Restarted, so that the missing object comes again.
                Err(error.to_string())
            }
        }
    }

    /// Takes over a list that was read after this time.
    async fn take_list(&mut self, listing: Listing<Tree>, begun: u64) -> TakenList {
        let Listing { items, is_complete } = listing;
        let mut taken = TakenList { is_complete, ..TakenList::default() };
        let listed: HashSet<Key> = items.iter().map(|item| objects::key(&item.object)).collect();
        if is_complete {
            // First, because deletions free memory.
            let gone = self.store.keys().into_iter().filter(|key| !listed.contains(key));
            self.take_all(gone.map(|key| (key, None)), begun, &mut taken).await;
        }
        let mut seen = HashSet::with_capacity(listed.len());
        let mut twice = Vec::new();
        let items = items.into_iter().map(|item| (objects::key(&item.object), Some(item)));
        let items = items.filter(|(key, _)| {
            let is_first = seen.insert(key.clone());
            if !is_first {
                twice.push(key.clone());
            }
            is_first
        });
        self.take_all(items, begun, &mut taken).await;
        for key in twice {
            taken.unfit += 1;
            self.store.log_unfit(&key, "the backend has listed it twice");
        }
        if let Some(metadata) = self.store.metadata().filter(|_| is_complete) {
            for key in metadata.keys() {
                match listed.contains(&key) {
                    true => metadata.forget_without_object(&key),
                    false => metadata.note_without_object(&key),
                }
            }
        }
        if is_complete && taken.excess.is_none() {
            self.cache.mark_synced();
        }
        taken
    }

    async fn take_all(
        &self,
        items: impl Iterator<Item = (Key, Option<Item<Tree>>)>,
        begun: u64,
        taken: &mut TakenList,
    ) {
        let is_polled = matches!(self.store.backend.feed, Feed::Polled { .. });
        for (index, (key, item)) in items.enumerate() {
            if index % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            match self.store.take(&key, item, begun) {
                Ok(Taken::Known) => {}
                Ok(Taken::Unfit) => taken.unfit += 1,
                // The next poll has the object.
                Ok(Taken::Skipped) if is_polled => {}
                Ok(Taken::Skipped) => self.store.note_unresolved(&key),
                Err(error) => drop(taken.excess.get_or_insert(error)),
            }
        }
    }

    async fn records_changed(&self) {
        match self.store.metadata() {
            Some(metadata) => metadata.changed.notified().await,
            None => self.store.counted.notified().await,
        }
    }

    /// Takes over the metadata that other replicas have stored, and stores the generations that have grown.
    async fn take_records(&self) {
        let changed = self.store.metadata().map(|metadata| metadata.take_changed());
        for key in changed.into_iter().flatten() {
            if self.store.take_record(&key).is_err() {
                self.store.refresh.notify_one();
            }
        }
        self.store.save_generations().await;
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
    /// The number of objects that do not belong to the kind.
    unfit: usize,
    /// The reason why objects are missing.
    excess: Option<String>,
}

impl Status {
    fn new(store: &BackendStore, cache: &Arc<WatchCache>) -> Self {
        let kind = store.kind().qualified();
        let status = Self::starting(kind, Arc::clone(cache));
        status.show(None);
        status
    }

    fn starting(kind: String, cache: Arc<WatchCache>) -> Self {
        Self { kind, cache, is_synced: false, failed_since: None, unfit: 0, excess: None }
    }

    /// Reports a list that was taken over.
    fn ended(&mut self, taken: &TakenList) {
        self.unfit = taken.unfit;
        if let Some(error) = &taken.excess {
            return self.exceeded(error);
        }
        self.excess = None;
        if !taken.is_complete {
            return self.failed("the backend has listed only a part of its objects");
        }
        self.is_synced = true;
        if self.failed_since.take().is_some() {
            tracing::info!(kind = self.kind, "the backend responds again");
        }
        self.show(None);
    }

    /// Reports that there is no memory for an object.
    fn exceeded(&mut self, error: &StoreError) {
        let excess = "the backend has more objects than fit into the memory limit";
        self.log(&format!("{excess}: {error}"));
        self.excess = Some(excess.to_owned());
        self.show(None);
    }

    /// Reports a failed call.
    fn failed(&mut self, error: &str) {
        self.failed_since.get_or_insert_with(Instant::now);
        self.log(error);
        // The message can contain secrets, so only the log has it.
        self.show(Some("its backend fails"));
    }

    fn log(&self, error: &str) {
        FAILED.log(|suppressed| {
            let error = shown(error);
            tracing::error!(suppressed, kind = self.kind, error, "cannot read from the backend");
        });
    }

    fn show(&self, watch_error: Option<&str>) {
        self.cache.set_sources(vec![SourceState {
            resource: self.kind.clone(),
            is_synced: self.is_synced,
            watch_error: watch_error.map(str::to_owned),
            unseen_since: self.failed_since,
            excess: self.excess.clone(),
            unreadable: self.unfit,
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
        let mut status = Status::starting("books.example.com".to_owned(), Arc::clone(&cache));
        let shown = || cache.sources().into_iter().next().unwrap();
        status.failed("password=hunter2");
        let failed = shown();
        assert_eq!(failed.watch_error.as_deref(), Some("its backend fails"));
        assert!(!failed.is_synced && failed.unseen_since.is_some());
        status.ended(&TakenList::default());
        assert!(!shown().is_synced && shown().unseen_since.is_some(), "the list was partial");
        let complete = || TakenList { is_complete: true, ..TakenList::default() };
        status.ended(&TakenList { unfit: 3, ..complete() });
        let ended = shown();
        assert!(ended.watch_error.is_none() && ended.is_synced && ended.unreadable == 3);
        let full = || TakenList { excess: Some(StoreError::Full { limit: 1 }), ..complete() };
        status.ended(&full());
        assert!(shown().excess.is_some() && !shown().is_in_view());
        status.failed("and then it fails");
        assert!(!shown().is_in_view(), "objects are missing still");
        status.ended(&complete());
        assert!(shown().is_in_view());
    }

    #[test]
    fn pauses_grow_and_are_limited() {
        let pauses: Vec<_> = (1..40).map(pause).collect();
        assert!(pauses.is_sorted() && pauses[0] < Duration::from_secs(1));
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
    }
}
