//! A store with slow commits, which continue after their callers have stopped waiting, like those of a disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, Object, ObjectIndex, Revision, RevisionSequencer, Store,
    StoreError, Versioned,
};
use fastrand::Rng;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

/// One entry of the history of a store. The history is in chronological order.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object was stored; `is_new` if there was none before.
    Stored { collection: String, object: Arc<Object>, revision: u64, is_new: bool },
    /// An object was removed.
    Removed { uid: String },
    /// A note of the test.
    Noted(Note),
}

/// A note of the test in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// From here on, only this definition is served.
    Serves(u64),
    /// From here on, no definition is served and nothing is stored.
    Withdrawn,
}

/// The behaviour of commits.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The longest delay before a commit is written, and before its caller receives the result.
    pub longest: Duration,
    /// The number of commits per thousand that fail.
    pub failures: u32,
    /// The number of commits per thousand that have an unknown outcome and are written later.
    pub late: u32,
    /// Whether other processes write to the store too.
    pub is_shared: bool,
}

/// The longest delay of a late commit. A shared store settles an unknown outcome after ten seconds.
const LATEST: Duration = Duration::from_secs(9);

/// A store with delays.
pub struct DelayedStore(Arc<Inner>);

struct Inner {
    sequencer: Arc<RevisionSequencer>,
    object_index: Mutex<ObjectIndex>,
    behaviour: Behaviour,
    random: Mutex<Rng>,
    events: Mutex<Vec<Event>>,
    /// The number of waiting objects and their bytes, by the user in their spec.
    waiting: watch::Sender<HashMap<String, (usize, usize)>>,
    most: Mutex<(usize, usize)>,
    is_blocked: watch::Sender<bool>,
    /// The delay after which the next commits are written; their outcome is unknown until then.
    loses: Mutex<Option<Duration>>,
    is_calm: AtomicBool,
}

impl DelayedStore {
    pub fn new(seed: u64, behaviour: Behaviour) -> Arc<Self> {
        let mut object_index = ObjectIndex::new(64 << 20, NamespaceLimit::WHOLE);
        let sequencer = Arc::new(RevisionSequencer::continuing(Vec::new(), 41));
        object_index.begin_past(sequencer.current());
        Arc::new(Self(Arc::new(Inner {
            sequencer,
            object_index: Mutex::new(object_index),
            behaviour,
            random: Mutex::new(Rng::with_seed(seed)),
            events: Mutex::default(),
            waiting: watch::Sender::default(),
            most: Mutex::default(),
            is_blocked: watch::Sender::new(false),
            loses: Mutex::default(),
            is_calm: AtomicBool::new(false),
        })))
    }

    /// Blocks or releases commits.
    pub fn block(&self, is_blocked: bool) {
        self.0.is_blocked.send_replace(is_blocked);
    }

    /// Makes the outcome of the next commits unknown; they are written after this delay. `None` ends that.
    pub fn lose(&self, happens_after: Option<Duration>) {
        *self.0.loses.lock().unwrap() = happens_after;
    }

    /// Stops failures and delays.
    pub fn calm(&self) {
        self.0.is_calm.store(true, Ordering::Relaxed);
    }

    pub fn note(&self, note: Note) {
        self.0.events.lock().unwrap().push(Event::Noted(note));
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.events.lock().unwrap().clone()
    }

    /// The largest number of commits of one user that waited at the same time, and of their bytes.
    pub fn most_waiting(&self) -> (usize, usize) {
        *self.0.most.lock().unwrap()
    }

    /// Waits until exactly `count` commits wait.
    pub async fn wait_for(&self, count: usize) {
        let mut waiting = self.0.waiting.subscribe();
        let all = |by_user: &HashMap<String, (usize, usize)>| {
            by_user.values().map(|(count, _)| count).sum::<usize>()
        };
        waiting.wait_for(|by_user| all(by_user) == count).await.unwrap();
    }
}

impl Inner {
    /// Commits after a delay, even if the caller has stopped waiting.
    async fn commit(&self, commit: Commit, late: Option<Duration>) -> Result<Revision, StoreError> {
        let (mut user, size) = of(&commit);
        if late.is_some() {
            // The request has been answered and holds no memory.
            user.clear();
        }
        self.waits(&user, size, true);
        sleep(late.unwrap_or_default()).await;
        self.delay().await;
        let mut blocked = self.is_blocked.subscribe();
        blocked.wait_for(|is_blocked| !is_blocked).await.unwrap();
        let written = self.write(commit);
        self.delay().await;
        self.waits(&user, size, false);
        written
    }

    /// The delay of a commit whose outcome is unknown.
    fn late(&self) -> Option<Duration> {
        let chosen = *self.loses.lock().unwrap();
        if chosen.is_some() || self.is_calm.load(Ordering::Relaxed) {
            return chosen;
        }
        let mut random = self.random.lock().unwrap();
        let is_late = random.u32(0..1_000) < self.behaviour.late;
        let longest = LATEST / [1_000, 50, 5, 1][random.usize(0..4)];
        is_late.then(|| longest.mul_f64(random.f64()))
    }

    async fn delay(&self) {
        let longest = u64::try_from(self.behaviour.longest.as_millis()).unwrap();
        let delay = self.random.lock().unwrap().u64(0..=longest);
        sleep(Duration::from_millis(delay)).await;
    }

    fn waits(&self, user: &str, size: usize, begins: bool) {
        self.waiting.send_modify(|waiting| {
            let (count, bytes) = waiting.entry(user.to_owned()).or_default();
            if begins {
                (*count, *bytes) = (*count + 1, *bytes + size);
                // Removals contain no user.
                if !user.is_empty() {
                    let mut most = self.most.lock().unwrap();
                    *most = (most.0.max(*count), most.1.max(*bytes));
                }
            } else {
                (*count, *bytes) = (*count - 1, *bytes - size);
            }
        });
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        let (is_unavailable, is_unknown) = {
            let mut random = self.random.lock().unwrap();
            let is_calm = self.is_calm.load(Ordering::Relaxed);
            let mut fails = || !is_calm && random.u32(0..1_000) < self.behaviour.failures;
            (fails(), fails())
        };
        if is_unavailable {
            return Err(StoreError::Unavailable);
        }
        let written = self.sequencer.publish(|revision| {
            let mut object_index = self.object_index.lock().unwrap();
            let kept = object_index.get(&commit.collection, &commit.key)?.cloned();
            object_index.take_room(&commit, kept.as_ref())?;
            let collection = commit.collection.to_string();
            let event = match (&commit.object, &kept) {
                (Some(object), _) => {
                    let (object, revision) = (Arc::clone(object), revision.number());
                    Event::Stored { collection, object, revision, is_new: kept.is_none() }
                }
                (None, Some(kept)) => Event::Removed { uid: kept.object.uid().to_owned() },
                (None, None) => return Err(StoreError::Absent),
            };
            self.events.lock().unwrap().push(event);
            object_index.keep(revision, commit);
            Ok(revision)
        });
        if written.is_ok() && is_unknown { Err(StoreError::Unknown) } else { written }
    }
}

/// The user in the spec of an object, and its size.
fn of(commit: &Commit) -> (String, usize) {
    let Some(object) = &commit.object else { return (String::new(), 0) };
    let tree = Value::Object(object.to_tree());
    (tree["spec"]["user"].as_str().unwrap_or_default().to_owned(), object.size())
}

impl Store for DelayedStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept =
            self.0.object_index.lock().unwrap().get(collection, key).map(|kept| kept.cloned());
        Box::pin(async move { kept })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let late = inner.late();
            tokio::spawn(async move { sender.send(inner.commit(commit, late).await) });
            if late.is_some() {
                return Err(StoreError::Unknown);
            }
            receiver.await.unwrap()
        })
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.object_index.lock().unwrap().follow(collection, reader);
        Box::pin(async { Ok(()) })
    }

    fn collections(&self) -> Vec<Collection> {
        self.0.object_index.lock().unwrap().collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.0.sequencer)
    }

    fn is_shared(&self) -> bool {
        self.0.behaviour.is_shared
    }

    fn outlives_process(&self) -> bool {
        true
    }
}
