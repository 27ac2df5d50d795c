//! The metadata of objects whose kinds are known only when something refers to them.
//!
//! Users write references, so their texts are bounded in what they may cost: a kind takes one of a few places only when
//! the cluster has shown that it serves it and lets it be listed. What it does not serve or show is asked for again
//! later each time, many kinds in one round, and a kind that nothing refers to is forgotten.

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
use super::together::Together;
use super::{Changed, SourceInformer, Sources};
use crate::log_throttle::LogThrottle;

/// So many kinds are watched at most. Few clusters have owners of more.
pub const MOST_KINDS: usize = 32;
/// So much is asked of the cluster in a round: group versions, and kinds whether they can be listed.
const MOST_ASKED: usize = 32;
/// A round begins so long after the last one at the earliest. It is the first pause before a kind is asked for again, too.
const SOON: Duration = Duration::from_secs(10);
/// The longest of these pauses, each of which is twice as long as the one before.
const SELDOM: Duration = Duration::from_secs(600);
/// A kind that nothing refers to is kept for so long, so that one that is replaced is not read anew.
const UNUSED: Duration = Duration::from_secs(300);
/// What the cluster refuses to show is shown as it was for so long.
const GRACE: Duration = Duration::from_secs(60);
/// A round takes no longer than this, so that what is lost is let go of meanwhile. What is left is due in the next one.
const ROUND: Duration = Duration::from_secs(30);
/// How long the cluster has to say whether objects can be listed.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many kinds that cannot be followed are named in the log in a minute.
const LINES: u32 = 8;
/// What the log says while the objects of a kind are not in view.
const MISSING: &str = "chains of owners end at them";

/// The objects of kinds, as far as they can be read.
pub struct KindSources<K> {
    shared: Arc<Shared<K>>,
    rounds: JoinHandle<()>,
}

/// The objects of one kind.
pub struct KindSource<K> {
    /// Its objects.
    pub informer: Arc<SourceInformer<K>>,
    /// What has changed of them.
    pub changed: Arc<Changed>,
    /// Whether they are in namespaces.
    pub is_namespaced: bool,
    /// As `rollouts.argoproj.io`.
    pub resource: String,
    /// When the watch began.
    pub opened: Instant,
    watch: JoinHandle<()>,
}

impl<K> Drop for KindSource<K> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// A kind that is served and cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadKind {
    /// As `rollouts.argoproj.io`.
    pub resource: String,
    /// What the cluster says.
    pub why: String,
}

struct Shared<K> {
    kinds: Mutex<HashMap<KindName, Entry<K>>>,
    /// Something is wanted.
    wake: Notify,
    /// Told of each change of what can be read.
    notify: Arc<Notify>,
    client: Client,
    bound: usize,
    all: Arc<Together>,
    reports: LogThrottle,
    full: LogThrottle,
}

struct Entry<K> {
    source: Option<Arc<KindSource<K>>>,
    /// Why there is none, of a kind that is served.
    unread: Option<UnreadKind>,
    /// When it is asked for next.
    due: Instant,
    /// How often it was asked for in vain.
    tries: u32,
    /// Since when nothing refers to it.
    unused_since: Option<Instant>,
}

impl Sources {
    /// Kinds whose objects are followed when they are wanted; `notify` is told of each change.
    pub fn kinds<K>(&self, notify: &Arc<Notify>) -> KindSources<K>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let shared = Arc::new(Shared {
            kinds: Mutex::default(),
            wake: Notify::new(),
            notify: Arc::clone(notify),
            client: self.client.clone(),
            bound: self.bound,
            all: Arc::clone(&self.referred),
            reports: LogThrottle::at_most(LINES),
            full: LogThrottle::default(),
        });
        let rounds = tokio::spawn(run(Arc::clone(&shared)));
        KindSources { shared, rounds }
    }
}

impl<K> KindSources<K> {
    /// Has the objects of a kind followed, if they can be.
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

    /// Says that nothing refers to a kind any more.
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

    /// The kinds whose objects are followed.
    pub fn followed(&self) -> Vec<(KindName, Arc<KindSource<K>>)> {
        let kinds = self.shared.kinds();
        let found = kinds.iter();
        found
            .filter_map(|(kind, entry)| Some((kind.clone(), Arc::clone(entry.source.as_ref()?))))
            .collect()
    }

    /// Some of the kinds that are served and cannot be read.
    pub fn unread(&self) -> Vec<UnreadKind> {
        let kinds = self.shared.kinds();
        let mut unread: Vec<UnreadKind> =
            kinds.values().filter_map(|entry| entry.unread.clone()).collect();
        unread.sort_by(|one, other| one.resource.cmp(&other.resource));
        unread.truncate(MOST_KINDS);
        unread
    }

    /// Counts bytes that questions about the objects take, instead of those `before`.
    pub fn charge(&self, before: usize, now: usize) {
        self.shared.all.count(before, now);
    }

    /// How many kinds are known by their names.
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

/// Looks for what is wanted, round by round.
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

    /// When there is something to do next.
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

    /// Lets go of what nothing refers to, and of what cannot be read any more, so that others have its place.
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
                let away = source.informer.standing().away;
                let why = away.map(|away| away.why).unwrap_or_default();
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

    /// The kinds that are to be asked for now, the longest waiting first.
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

    /// Notes that a kind was asked for in vain.
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
    /// Asks for all that is due, as far as one round goes.
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
                // It is due again in the next round.
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

    /// Whether the objects of a kind can be listed.
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

    /// Begins to follow the objects of a kind, if it is still wanted.
    fn open(&self, kind: &KindName, served: Served) {
        let mut kinds = self.kinds();
        let Some(entry) = kinds.get_mut(kind).filter(|entry| entry.source.is_none()) else {
            return;
        };
        let Served { path, resource, is_namespaced } = served;
        let share = self.all.share(resource.clone());
        let informer = Arc::new(SourceInformer::new(self.bound, share));
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

/// When the objects of a kind are given up, if they cannot be read.
fn lost_at<K>(source: &KindSource<K>) -> Option<Instant> {
    let standing = source.informer.standing();
    let since = standing.away?.refused_since?;
    Some(if standing.is_synced { since + GRACE } else { since })
}

fn put_off<K>(entry: &mut Entry<K>, now: Instant) {
    let pause = SOON.saturating_mul(2_u32.saturating_pow(entry.tries)).min(SELDOM);
    entry.tries = entry.tries.saturating_add(1);
    // The keys of a hasher are random.
    let random = RandomState::new().build_hasher().finish() % 101;
    entry.due = now + pause + pause * u32::try_from(random).unwrap_or_default() / 500;
}
