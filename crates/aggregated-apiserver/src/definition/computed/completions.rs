//! The asynchronous part of computations: calls of other services.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::fair_queue::FairQueue;
use super::variant::Variant;
use crate::definition::lookup::PATIENCE;
use crate::object::Key;

/// The largest number of sources of one type whose objects are completed at the same time: the number of slots. Others
/// wait.
const CONCURRENT: usize = 16;
/// The pause before a failed completion is repeated; it doubles with each failure in a row.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The result of a completion.
pub(super) struct Completed<O> {
    pub source: Key,
    /// The uid of the source from which the objects were computed.
    uid: Option<String>,
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
    Again {
        /// Whether only a measurement of the source has changed.
        is_measured: bool,
    },
    /// The source was deleted, so the result is not used.
    Dropped,
    /// The source was deleted and exists again.
    DroppedAndAgain,
}

/// The failures in a row of a source.
struct Failed {
    count: u32,
    /// When the source is computed again.
    retry: Instant,
    /// Whether only measurements have changed since the last success.
    is_measured: bool,
}

/// The sources whose objects are being completed.
pub(super) struct Completions<O> {
    limit: Duration,
    /// When the first objects were computed.
    began: Option<Instant>,
    /// The sources in progress; each has a slot.
    running: HashMap<Key, Next>,
    /// The sources that wait for a slot.
    waiting: FairQueue,
    /// The sources that [`take`](Self::take) has returned and that have not been computed since.
    taken: HashSet<Key>,
    failures: HashMap<Key, Failed>,
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
            waiting: FairQueue::default(),
            taken: HashSet::new(),
            failures: HashMap::new(),
            retries: BTreeSet::new(),
            completed: Arc::default(),
            notify,
            tasks: JoinSet::new(),
        }
    }

    /// Whether the computation of a source must wait for a slot or for an earlier computation. The source is returned
    /// by [`take`](Self::take) then. A source that `take` has returned does not wait.
    pub fn must_wait(&mut self, source: &Key, is_measured: bool) -> bool {
        self.began.get_or_insert_with(Instant::now);
        if self.taken.remove(source) {
            return false;
        }
        let Some(next) = self.running.get_mut(source) else {
            // A change of which the completion failed is not published yet.
            let earlier = self.failures.get(source).is_none_or(|failed| failed.is_measured);
            self.waiting.push(source.clone(), is_measured && earlier);
            return true;
        };
        *next = match *next {
            Next::Nothing => Next::Again { is_measured },
            Next::Again { is_measured: earlier } => {
                Next::Again { is_measured: earlier && is_measured }
            }
            Next::Dropped | Next::DroppedAndAgain => Next::DroppedAndAgain,
        };
        true
    }

    /// Completes the objects of a source with this uid on a task of its own.
    pub fn begin<V: Variant<Object = O>>(
        &mut self,
        (source, uid): (&Key, Option<String>),
        objects: Vec<O>,
        is_measured: bool,
    ) {
        self.waiting.remove(source);
        self.end_pause(source);
        self.running.insert(source.clone(), Next::Nothing);
        let (source, limit) = (source.clone(), self.limit);
        let (completed, notify) = (Arc::clone(&self.completed), Arc::clone(&self.notify));
        self.tasks.spawn(async move {
            let objects = complete_all::<V>(objects, limit).await;
            let result = Completed { source, uid, objects, is_measured };
            completed.lock().unwrap_or_else(PoisonError::into_inner).push(result);
            notify.notify_one();
        });
    }

    /// Takes the results, and the sources that must be computed now, each with whether only a measurement has changed.
    /// Results of sources that do not exist any more with this uid are dropped.
    pub fn take(
        &mut self,
        exists: impl Fn(&Key, Option<&str>) -> bool,
    ) -> (Vec<Completed<O>>, Vec<(Key, bool)>) {
        while self.tasks.try_join_next().is_some() {}
        let mut completed =
            std::mem::take(&mut *self.completed.lock().unwrap_or_else(PoisonError::into_inner));
        completed.retain(|completed| {
            let next = self.running.remove(&completed.source).unwrap_or(Next::Dropped);
            let next = match next {
                _ if exists(&completed.source, completed.uid.as_deref()) => next,
                Next::Nothing | Next::Dropped => Next::Dropped,
                Next::Again { .. } | Next::DroppedAndAgain => Next::DroppedAndAgain,
            };
            self.follow(completed, next);
            matches!(next, Next::Nothing | Next::Again { .. })
        });
        let now = Instant::now();
        while self.retries.first().is_some_and(|(time, _)| *time <= now) {
            if let Some((_, source)) = self.retries.pop_first() {
                let is_measured = self.failures.get(&source).is_some_and(|one| one.is_measured);
                self.waiting.push(source, is_measured);
            }
        }
        let free = CONCURRENT.saturating_sub(self.running.len());
        let due: Vec<_> = std::iter::from_fn(|| self.waiting.pop()).take(free).collect();
        self.taken = due.iter().map(|(source, _)| source.clone()).collect();
        (completed, due)
    }

    /// Records a result, and when its source is computed again. A source that has changed during a completion that
    /// failed is computed again after the pause, too. Otherwise a source that changes all the time would never pause.
    fn follow(&mut self, completed: &Completed<O>, next: Next) {
        let Completed { source, objects, is_measured, .. } = completed;
        match (next, objects) {
            (Next::Nothing, Err(_)) => self.pause(source, *is_measured),
            (Next::Again { is_measured: later }, Err(_)) => {
                self.pause(source, *is_measured && later);
            }
            (Next::Again { is_measured: later }, Ok(_)) => {
                self.forget_failures(source);
                self.waiting.push(source.clone(), later);
            }
            (Next::DroppedAndAgain, _) => {
                self.forget_failures(source);
                self.waiting.push(source.clone(), false);
            }
            (Next::Nothing | Next::Dropped, _) => self.forget_failures(source),
        }
    }

    /// Records a failure of a source, which is computed again after a pause.
    fn pause(&mut self, source: &Key, is_measured: bool) {
        self.end_pause(source);
        let before = self.failures.get(source).map_or(0, |failed| failed.count);
        let pause = RETRY.saturating_mul(1 << before.min(6)).min(LONGEST_RETRY);
        let (count, retry) = (before.saturating_add(1), Instant::now() + pause);
        self.failures.insert(source.clone(), Failed { count, retry, is_measured });
        self.retries.insert((retry, source.clone()));
    }

    /// Removes the time at which a failed source is computed again.
    fn end_pause(&mut self, source: &Key) {
        if let Some(failed) = self.failures.get(source) {
            self.retries.remove(&(failed.retry, source.clone()));
        }
    }

    fn forget_failures(&mut self, source: &Key) {
        self.end_pause(source);
        self.failures.remove(source);
    }

    /// Forgets a source that was deleted.
    pub fn forget(&mut self, source: &Key) {
        if let Some(next) = self.running.get_mut(source) {
            *next = Next::Dropped;
        }
        self.waiting.remove(source);
        self.taken.remove(source);
        self.forget_failures(source);
    }

    /// Whether the first objects are complete, or have had enough time. Also returns when to look again: now, if a
    /// source waits and a slot is free, because no completion in progress causes the next look then.
    pub fn is_settled(&self) -> (bool, Option<Instant>) {
        let now = Instant::now();
        let end = self.began.map(|began| began + PATIENCE).filter(|end| *end > now);
        let is_idle = self.running.is_empty() && self.waiting.is_empty();
        let retry = self.retries.first().map(|(time, _)| *time);
        let has_free_slot = self.running.len() < CONCURRENT && !self.waiting.is_empty();
        let times = [end, retry, has_free_slot.then_some(now)];
        (is_idle || end.is_none(), times.into_iter().flatten().min())
    }
}

/// Completes the objects of a source, all or none. The user's code may panic; the other objects are still served.
async fn complete_all<V: Variant>(
    objects: Vec<V::Object>,
    limit: Duration,
) -> Result<Vec<V::Object>, String> {
    let all = async move {
        let mut all = Vec::with_capacity(objects.len());
        for object in objects {
            all.extend(V::complete(object).await.map_err(|error| error.to_string())?);
        }
        Ok(all)
    };
    // After the timeout, the completion is dropped within this future: its destructors may panic, too.
    let limited = async move { timeout(limit, all).await };
    match AssertUnwindSafe(limited).catch_unwind().await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("its completion took longer than {limit:?}")),
        Err(_) => Err("its completion panicked".to_owned()),
    }
}
