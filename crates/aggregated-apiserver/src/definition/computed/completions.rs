//! The asynchronous part of computations: calls of other services.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::variant::Variant;
use crate::definition::lookup::PATIENCE;
use crate::object::Key;

/// The largest number of sources of one type whose objects are completed at the same time. Others wait.
const CONCURRENT: usize = 16;
/// The pause before a failed completion is repeated; it doubles with each failure in a row.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The result of a completion.
pub(super) struct Completed<O> {
    pub source: Key,
    /// The objects of the source, or why they could not be completed.
    pub objects: Result<Vec<O>, String>,
    /// Whether only a measurement of the source has changed.
    pub is_measured: bool,
}

/// The step after a completion in progress.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    /// The source has changed, and must be computed again.
    Again,
    /// The source was deleted, so the result is not used.
    Dropped,
    /// The source was deleted and exists again.
    DroppedAndAgain,
}

/// The sources whose objects are being completed.
pub(super) struct Completions<O> {
    limit: Duration,
    /// When the first objects were computed.
    began: Option<Instant>,
    /// The sources in progress.
    running: HashMap<Key, Next>,
    /// The sources that wait for a place.
    waiting: BTreeSet<Key>,
    /// The number of failures in a row of each source, and when it is computed again.
    failures: HashMap<Key, (u32, Instant)>,
    /// When failed sources are computed again.
    retries: BTreeSet<(Instant, Key)>,
    completed: Arc<Mutex<Vec<Completed<O>>>>,
    notify: Arc<Notify>,
    tasks: JoinSet<()>,
}

impl<O: Send + 'static> Completions<O> {
    /// No completions, each of which may take this long. `notify` is notified after each one.
    pub fn new(limit: Duration, notify: Arc<Notify>) -> Self {
        Self {
            limit,
            began: None,
            running: HashMap::new(),
            waiting: BTreeSet::new(),
            failures: HashMap::new(),
            retries: BTreeSet::new(),
            completed: Arc::default(),
            notify,
            tasks: JoinSet::new(),
        }
    }

    /// Whether the computation of a source must wait, because an earlier one is in progress or no place is free. The
    /// source is returned by [`take`](Self::take) then.
    pub fn must_wait(&mut self, source: &Key) -> bool {
        self.began.get_or_insert_with(Instant::now);
        if let Some(next) = self.running.get_mut(source) {
            *next = match *next {
                Next::Nothing | Next::Again => Next::Again,
                Next::Dropped | Next::DroppedAndAgain => Next::DroppedAndAgain,
            };
            return true;
        }
        if self.running.len() < CONCURRENT {
            return false;
        }
        self.waiting.insert(source.clone());
        true
    }

    /// Completes the objects of a source on a task of its own.
    pub fn begin<V: Variant<Object = O>>(
        &mut self,
        source: &Key,
        objects: Vec<O>,
        is_measured: bool,
    ) {
        self.running.insert(source.clone(), Next::Nothing);
        let (source, limit) = (source.clone(), self.limit);
        let (completed, notify) = (Arc::clone(&self.completed), Arc::clone(&self.notify));
        self.tasks.spawn(async move {
            let all = async {
                let mut all = Vec::with_capacity(objects.len());
                for object in objects {
                    all.extend(V::complete(object).await.map_err(|error| error.to_string())?);
                }
                Ok(all)
            };
            // The user's code may panic; the other objects are still served.
            let objects = match timeout(limit, AssertUnwindSafe(all).catch_unwind()).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("its completion panicked".to_owned()),
                Err(_) => Err(format!("its completion took longer than {limit:?}")),
            };
            let result = Completed { source, objects, is_measured };
            completed.lock().unwrap_or_else(PoisonError::into_inner).push(result);
            notify.notify_one();
        });
    }

    /// Takes the results, and the sources that must be computed now.
    pub fn take(&mut self) -> (Vec<Completed<O>>, Vec<Key>) {
        while self.tasks.try_join_next().is_some() {}
        let mut completed =
            std::mem::take(&mut *self.completed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut due = Vec::new();
        completed.retain(|Completed { source, objects, .. }| {
            let next = self.running.remove(source).unwrap_or(Next::Dropped);
            let is_again = matches!(next, Next::Again | Next::DroppedAndAgain);
            due.extend(is_again.then(|| source.clone()));
            self.note(source, objects.is_err() && next == Next::Nothing);
            matches!(next, Next::Nothing | Next::Again)
        });
        let now = Instant::now();
        while self.retries.first().is_some_and(|(time, _)| *time <= now) {
            due.extend(self.retries.pop_first().map(|(_, source)| source));
        }
        let free = CONCURRENT.saturating_sub(self.running.len() + due.len());
        due.extend(std::iter::from_fn(|| self.waiting.pop_first()).take(free));
        (completed, due)
    }

    /// Records whether the last completion of a source failed.
    fn note(&mut self, source: &Key, has_failed: bool) {
        if !has_failed {
            self.end_pause(source);
            self.failures.remove(source);
            return;
        }
        let before = self.end_pause(source).unwrap_or_default();
        let pause = RETRY.saturating_mul(1 << before.min(6)).min(LONGEST_RETRY);
        let time = Instant::now() + pause;
        self.failures.insert(source.clone(), (before.saturating_add(1), time));
        self.retries.insert((time, source.clone()));
    }

    /// Removes the time at which a failed source is computed again. Returns the number of its failures.
    fn end_pause(&mut self, source: &Key) -> Option<u32> {
        let (failures, time) = self.failures.get(source)?;
        self.retries.remove(&(*time, source.clone()));
        Some(*failures)
    }

    /// Forgets a source that was deleted.
    pub fn forget(&mut self, source: &Key) {
        if let Some(next) = self.running.get_mut(source) {
            *next = Next::Dropped;
        }
        self.waiting.remove(source);
        self.note(source, false);
    }

    /// Whether the first objects are complete, or have had enough time. Also returns when to look again.
    pub fn is_settled(&self) -> (bool, Option<Instant>) {
        let end = self.began.map(|began| began + PATIENCE).filter(|end| *end > Instant::now());
        let is_idle = self.running.is_empty() && self.waiting.is_empty();
        let retry = self.retries.first().map(|(time, _)| *time);
        (is_idle || end.is_none(), end.into_iter().chain(retry).min())
    }
}
