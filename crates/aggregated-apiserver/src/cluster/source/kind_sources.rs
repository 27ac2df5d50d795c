//! Metadata of objects whose kinds become known at run time, from references such as owner references.
//!
//! Users write references, so the cost of a reference is limited. A kind occupies one of a few slots only after the
//! cluster has served it and allowed a list of it. A kind that is not served or not readable is retried with growing
//! delays, with many kinds in one round. A kind without references is forgotten.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::discovery::{Discovery, NotFound, Served};
use super::follower::Follower;
use super::kind_name::KindName;
use super::list_watch::{Interruption, ListWatch};
use super::shared_limit::SharedLimit;
use super::{ChangedKeys, SourceInformer, Sources};
use crate::log_throttle::LogThrottle;

/// The largest number of watched kinds. Owners in most clusters have fewer kinds.
pub const MOST_KINDS: usize = 32;
/// The largest number of discovery requests for group versions in a round, and also the largest number of kinds in a
/// round for which a list is tried.
const MOST_ASKED: usize = 32;
/// The shortest time between two rounds, and the first delay before a kind is retried.
const SOON: Duration = Duration::from_secs(10);
/// The longest delay before a kind is retried. Each delay is twice the previous one.
const SELDOM: Duration = Duration::from_secs(600);
/// The time that a kind without references stays watched, so that an owner that is replaced does not cause a new list.
const UNUSED: Duration = Duration::from_secs(300);
/// The time that the last known objects stay visible after the cluster has refused to show them.
const GRACE: Duration = Duration::from_secs(60);
/// The longest time of a round, so that lost kinds are dropped between rounds. The remaining kinds follow in the next
/// round.
const ROUND: Duration = Duration::from_secs(30);
/// The longest time for a response to the test list.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest number of log lines per minute about kinds that cannot be read.
const LINES: u32 = 8;
/// The consequence of missing objects, for the log.
const MISSING: &str = "chains of owners end at them";

/// The sources of all wanted kinds that can be read.
pub struct KindSources<K> {
    shared: Arc<Shared<K>>,
    rounds: JoinHandle<()>,
}

/// The objects of one kind.
pub struct KindSource<K> {
    /// The informer of the objects.
    pub informer: Arc<SourceInformer<K>>,
    /// The objects that have changed and are not processed yet.
    pub changed: Arc<ChangedKeys>,
    /// Whether the kind is namespaced.
    pub is_namespaced: bool,
    /// The name of the resource, for example `rollouts.argoproj.io`.
    pub resource: String,
    /// The start of the watch.
    pub opened: Instant,
    watch: JoinHandle<()>,
}

impl<K> Drop for KindSource<K> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// A kind that is served and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadKind {
    /// The name of the resource, for example `rollouts.argoproj.io`.
    pub resource: String,
    /// The reason, for example the error message of the cluster.
    pub why: String,
}

struct Shared<K> {
    kinds: Mutex<HashMap<KindName, Entry<K>>>,
    /// Notified when a kind is wanted or released.
    wake: Notify,
    /// Notified when the set of readable kinds changes.
    notify: Arc<Notify>,
    client: Client,
    limit: usize,
    all: Arc<SharedLimit>,
    reports: LogThrottle,
    full: LogThrottle,
}

struct Entry<K> {
    source: Option<Arc<KindSource<K>>>,
    /// The reason why there is no source, if the kind is served.
    unread: Option<UnreadKind>,
    /// The time of the next attempt.
    due: Instant,
    /// The number of failed attempts.
    tries: u32,
    /// The time at which the last reference disappeared.
    unused_since: Option<Instant>,
}

impl Sources {
    /// Creates an empty set of kinds. Their objects are followed once they are wanted; `notify` is notified of each
    /// change.
    pub fn kinds<K>(&self, notify: &Arc<Notify>) -> KindSources<K>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let shared = Arc::new(Shared {
            kinds: Mutex::default(),
            wake: Notify::new(),
            notify: Arc::clone(notify),
            client: self.client.clone(),
            limit: self.limit,
            all: Arc::clone(&self.referred),
            reports: LogThrottle::at_most(LINES),
            full: LogThrottle::default(),
        });
        let rounds = tokio::spawn(run(Arc::clone(&shared)));
        KindSources { shared, rounds }
    }
}

impl<K> KindSources<K> {
    /// Requests that the objects of a kind are followed, if the kind can be read.
    pub fn want(&self, kind: &KindName) {
        let mut kinds = self.shared.kinds();
        match kinds.get_mut(kind) {
            Some(entry) => entry.unused_since = None,
            None => {
                let (source, unread, due) = (None, None, Instant::now());
                let entry = Entry { source, unread, due, tries: 0, unused_since: None };
                kinds.insert(kind.clone(), entry);
                drop(kinds);
                self.shared.wake.notify_one();
            }
        }
    }

    /// Records that no reference to a kind is left.
    pub fn release(&self, kind: &KindName) {
        let mut kinds = self.shared.kinds();
        let Some(entry) = kinds.get_mut(kind) else { return };
        if entry.source.is_none() {
            kinds.remove(kind);
        } else {
            entry.unused_since.get_or_insert_with(Instant::now);
            drop(kinds);
            self.shared.wake.notify_one();
        }
    }

    /// The kinds with followed objects.
    pub fn followed(&self) -> Vec<(KindName, Arc<KindSource<K>>)> {
        let kinds = self.shared.kinds();
        let found = kinds.iter();
        found
            .filter_map(|(kind, entry)| Some((kind.clone(), Arc::clone(entry.source.as_ref()?))))
            .collect()
    }

    /// At most [`MOST_KINDS`] of the kinds that are served and cannot be read, sorted by resource.
    pub fn unread(&self) -> Vec<UnreadKind> {
        let kinds = self.shared.kinds();
        let mut unread: Vec<UnreadKind> =
            kinds.values().filter_map(|entry| entry.unread.clone()).collect();
        unread.sort_by(|one, other| one.resource.cmp(&other.resource));
        unread.truncate(MOST_KINDS);
        unread
    }

    /// Counts `now` bytes for queries about the objects, in place of the `before` bytes of the last call.
    pub fn charge(&self, before: usize, now: usize) {
        self.shared.all.count(before, now);
    }

    /// The number of known kinds.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.shared.kinds().len()
    }
}

impl<K> Drop for KindSources<K> {
    fn drop(&mut self) {
        self.rounds.abort();
    }
}

/// Runs the rounds forever.
async fn run<K: DeserializeOwned + Send + Sync + 'static>(shared: Arc<Shared<K>>) {
    loop {
        let wanted = shared.wake.notified();
        match shared.next() {
            Some(time) => drop(tokio::time::timeout_at(time, wanted).await),
            None => wanted.await,
        }
        shared.drop_lost();
        if shared.next().is_some_and(|time| time <= Instant::now()) {
            shared.round().await;
            tokio::time::sleep(SOON).await;
        }
    }
}

impl<K> Shared<K> {
    fn kinds(&self) -> MutexGuard<'_, HashMap<KindName, Entry<K>>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the next action, or `None` if there is nothing to do.
    fn next(&self) -> Option<Instant> {
        let kinds = self.kinds();
        let times = kinds.values().map(|entry| match &entry.source {
            None => entry.due,
            Some(source) => {
                let end = entry.unused_since.map(|since| since + UNUSED);
                let looked_at = lost_at(source).unwrap_or_else(|| Instant::now() + GRACE);
                end.into_iter().fold(looked_at, Instant::min)
            }
        });
        times.min()
    }

    /// Drops the sources without references and the sources that cannot be read any more, which frees their slots.
    fn drop_lost(&self) {
        let now = Instant::now();
        let mut is_changed = false;
        let mut kinds = self.kinds();
        kinds.retain(|_, entry| {
            let Some(source) = &entry.source else { return true };
            if entry.unused_since.is_some_and(|since| since + UNUSED <= now) {
                is_changed = true;
                return false;
            }
            if lost_at(source).is_some_and(|time| time <= now) {
                is_changed = true;
                if entry.unused_since.is_some() {
                    return false;
                }
                let failure = source.informer.status().failure;
                let why = failure.map(|failure| failure.why).unwrap_or_default();
                entry.unread = Some(UnreadKind { resource: source.resource.clone(), why });
                entry.source = None;
                put_off(entry, now);
            }
            true
        });
        drop(kinds);
        if is_changed {
            self.notify.notify_one();
        }
    }

    /// The kinds that are due, the longest waiting first.
    fn due(&self) -> Vec<KindName> {
        let (now, kinds) = (Instant::now(), self.kinds());
        let due = kinds.iter().filter(|(_, entry)| entry.source.is_none() && entry.due <= now);
        let mut due: Vec<_> = due.map(|(kind, entry)| (entry.due, kind.clone())).collect();
        drop(kinds);
        due.sort_unstable();
        due.into_iter().map(|(_, kind)| kind).collect()
    }

    fn followed(&self) -> usize {
        self.kinds().values().filter(|entry| entry.source.is_some()).count()
    }

    /// Records a failed attempt for a kind.
    fn put_off(&self, kind: &KindName, unread: Option<UnreadKind>, why: &str) {
        let mut kinds = self.kinds();
        let Some(entry) = kinds.get_mut(kind) else { return };
        let is_first = entry.tries == 0;
        let is_news = entry.unread != unread;
        entry.unread = unread;
        put_off(entry, Instant::now());
        drop(kinds);
        if is_first {
            self.reports.log(|suppressed| {
                tracing::warn!(
                    suppressed,
                    source = %kind,
                    error = %why,
                    "cannot read source; chains of owners end there until a later attempt"
                );
            });
        }
        if is_news {
            self.notify.notify_one();
        }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Shared<K> {
    /// Runs a round: tries all kinds that are due, within the limits of a round.
    async fn round(self: &Arc<Self>) {
        let mut discovery = Discovery::new(&self.client, MOST_ASKED);
        let mut left = MOST_ASKED;
        let end = Instant::now() + ROUND;
        for (index, kind) in self.due().into_iter().enumerate() {
            if Instant::now() >= end {
                break;
            }
            if index % 256 == 255 {
                tokio::task::yield_now().await;
            }
            let served = match discovery.find(&kind).await {
                Ok(served) => served,
                // The kind stays due for the next round.
                Err(NotFound::Later) => continue,
                Err(NotFound::Absent) => {
                    self.put_off(&kind, None, "the cluster does not serve it");
                    continue;
                }
                Err(NotFound::Failed(why)) => {
                    self.put_off(&kind, None, &why);
                    continue;
                }
            };
            if self.followed() >= MOST_KINDS {
                let why = format!("{MOST_KINDS} kinds of owners are watched already");
                self.full
                    .log(|_| tracing::warn!(source = %kind, error = %why, "source is not watched"));
                let unread = UnreadKind { resource: served.resource, why: why.clone() };
                self.put_off(&kind, Some(unread), &why);
                continue;
            }
            let Some(rest) = usize::checked_sub(left, 1) else { continue };
            left = rest;
            match self.probe(&served).await {
                Ok(()) => self.open(&kind, served),
                Err(why) => {
                    let unread = UnreadKind { resource: served.resource, why: why.clone() };
                    self.put_off(&kind, Some(unread), &why);
                }
            }
        }
    }

    /// Checks that the objects of a kind can be listed.
    async fn probe(&self, served: &Served) -> Result<(), String> {
        let objects = ListWatch::<K>::of_metadata(self.client.clone(), &served.path);
        let answer = tokio::time::timeout(PATIENCE, objects.probe()).await;
        let why = match answer {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(interruption)) => interruption,
            Err(_) => return Err("no answer in time".to_owned()),
        };
        Err(match why {
            Interruption::Failed(why) | Interruption::Refused(why) | Interruption::Absent(why) => {
                why
            }
            Interruption::Expired | Interruption::TooLarge(_) => {
                "it cannot be listed now".to_owned()
            }
        })
    }

    /// Starts following the objects of a kind, if the kind is still wanted.
    fn open(&self, kind: &KindName, served: Served) {
        let mut kinds = self.kinds();
        let Some(entry) = kinds.get_mut(kind).filter(|entry| entry.source.is_none()) else {
            return;
        };
        let Served { path, resource, is_namespaced } = served;
        let memory = self.all.of_type(resource.clone());
        let informer = Arc::new(SourceInformer::new(self.limit, memory));
        let changed = informer.follow(Arc::clone(&self.notify));
        let follower = Follower::new(Arc::clone(&informer), resource.clone(), MISSING);
        let objects = ListWatch::of_metadata(self.client.clone(), &path);
        let watch = tokio::spawn(follower.follow_cluster(objects));
        let opened = Instant::now();
        let source = KindSource { informer, changed, is_namespaced, resource, opened, watch };
        entry.source = Some(Arc::new(source));
        (entry.unread, entry.tries) = (None, 0);
        drop(kinds);
        self.notify.notify_one();
    }
}

/// The time at which an unreadable source is dropped.
fn lost_at<K>(source: &KindSource<K>) -> Option<Instant> {
    let status = source.informer.status();
    let since = status.failure?.refused_since?;
    Some(if status.is_synced { since + GRACE } else { since })
}

fn put_off<K>(entry: &mut Entry<K>, now: Instant) {
    let pause = SOON.saturating_mul(2_u32.saturating_pow(entry.tries)).min(SELDOM);
    entry.tries = entry.tries.saturating_add(1);
    // The keys of a hasher are random.
    let random = RandomState::new().build_hasher().finish() % 101;
    entry.due = now + pause + pause * u32::try_from(random).unwrap_or_default() / 500;
}
