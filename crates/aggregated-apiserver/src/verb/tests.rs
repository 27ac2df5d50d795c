//! Tests that compare paged and streaming lists with the stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::json;
use tokio::task::coop::unconstrained;

use super::watch::{EventType, ObjectEvent};
use super::*;
use crate::error::Reason;
use crate::kind::Kind;
use crate::object::selector::{FieldSelector, LabelSelector, Selector};
use crate::object::{Key, Object};
use crate::quota::Account;
use crate::served_kind::{Backing, CommitGate, CreateGate, ServedKind};
use crate::storage::{
    MEMORY_STORE_LIMIT, MemoryStore, NamespaceLimit, Revision, RevisionSequencer, Versioned,
};
use crate::watch_cache::{Scope, WINDOW_LIMIT, WatchCache};
use tokio_util::sync::CancellationToken;

struct World {
    served: ServedKind,
    random: u64,
    /// The size of objects. With larger objects, the watch window contains fewer changes.
    filler: usize,
    /// The revisions after each write.
    past: Vec<Revision>,
}

impl World {
    fn new() -> Self {
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let kind =
            Arc::new(Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sequencer = Arc::new(RevisionSequencer::starting(now, 7));
        let cache = Arc::new(WatchCache::new(Arc::clone(&sequencer), WINDOW_LIMIT));
        cache.mark_synced();
        let backing = Backing::Stored(Arc::new(MemoryStore::new(
            MEMORY_STORE_LIMIT,
            sequencer,
            NamespaceLimit::default(),
        )));
        Self {
            served: ServedKind {
                kind,
                cache,
                backing,
                visibility: None,
                ended: CancellationToken::new(),
                create_gate: CreateGate::default(),
                gate: CommitGate::default(),
                unavailable: None,
                came_at_run_time: false,
            },
            random: 0x2545_f491_4f6c_dd1d,
            filler: 0,
            past: Vec::new(),
        }
    }

    /// Creates a world with other random numbers.
    fn from_seed(seed: u64) -> Self {
        Self { random: seed | 1, ..Self::new() }
    }

    fn next(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn write(&mut self) {
        let namespace = ["m", "m-1", "n"][usize::try_from(self.next(3)).unwrap()];
        let name = format!("a{}", self.next(12));
        let key = Key::new(Some(namespace), &name);
        let labels = if self.next(2) == 0 { json!({"app": "x"}) } else { json!({}) };
        let metadata = json!({"name": name, "namespace": namespace, "uid": "u", "labels": labels});
        let filler = "x".repeat(self.filler);
        let tree = json!({"metadata": metadata, "n": self.next(100), "filler": filler});
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let kept = self.next(4) > 0;
        self.served.cache.publish(&key, kept.then_some(object));
        self.past.push(self.served.cache.snapshot().revision());
    }

    /// The list at a past revision, or the current list if the revision has expired.
    async fn list_of_some_moment(&self, scope: &Scope, labels: &str, back: usize) -> ListPage {
        let then = self.past.len().checked_sub(back).and_then(|at| self.past.get(at));
        let moment = then.map_or(Moment::Latest, |revision| Moment::Exactly(*revision));
        match self.list(scope, labels, None, moment).await {
            Ok(listed) => listed,
            Err(error) => {
                assert_eq!(error.reason(), Reason::Expired, "{error}");
                self.list(scope, labels, None, Moment::Latest).await.unwrap()
            }
        }
    }

    fn selection(&self, labels: &str) -> Selection {
        let labels = LabelSelector::parse(labels).unwrap();
        let fields = FieldSelector::default();
        let kind = Arc::clone(&self.served.kind);
        Selection {
            version: Arc::clone(&kind.storage),
            kind,
            selector: Selector { labels, fields },
            viewer: None,
            rule: None,
            redaction: None,
        }
    }

    async fn list(
        &self,
        scope: &Scope,
        labels: &str,
        limit: Option<usize>,
        moment: Moment,
    ) -> Result<ListPage, ApiError> {
        let (selection, collection) = (self.selection(labels), scope.clone());
        let options = ListOptions { selection, collection, limit, moment };
        list(&self.served, scope.clone(), options, &Account::own()).await
    }
}

/// Reads all initial events of a watch, at most three in each call.
fn all_of(initial: &mut InitialEvents) -> Vec<Event> {
    let mut events = Vec::new();
    while !initial.is_done() {
        let mut wanted = 3;
        initial.look(|event| {
            events.push(event);
            wanted -= 1;
            wanted > 0
        });
    }
    events
}

fn told(listed: &ListPage) -> Vec<String> {
    let wanted = listed.after(None).filter(|(_, is_wanted)| *is_wanted);
    wanted.map(|(shown, _)| format!("{}@{}", shown.object.key(), shown.revision)).collect()
}

#[tokio::test]
async fn pages_together_equal_the_list_at_the_revision_of_the_first_page() {
    let mut world = World::new();
    for _ in 0..40 {
        world.write();
    }
    for round in 0..60 {
        let scope = [Scope::All, Scope::Namespace("m".into())][round % 2].clone();
        let labels = ["", "app", "!app", "none"][round / 2 % 4];
        let limit = usize::try_from(1 + world.next(5)).unwrap();
        let whole = world.list(&scope, labels, None, Moment::Latest).await.unwrap();
        let mut page = world.list(&scope, labels, Some(limit), Moment::Latest).await.unwrap();
        let mut together = told(&page);
        while !page.next_token().is_empty() {
            assert!(told(&page).len() <= limit);
            let before = page.remaining();
            world.write();
            let next = ContinueToken::parse(&page.next_token(), &scope).unwrap();
            let moment = Moment::Continued(next);
            page = world.list(&scope, labels, Some(limit), moment).await.unwrap();
            assert_eq!(page.revision(), whole.revision());
            together.extend(told(&page));
            let shown = told(&page).len() as u64;
            let after = page.remaining().unwrap_or_default();
            if let Some(before) = before {
                assert_eq!(before, after + shown);
            }
        }
        assert_eq!(together, told(&whole), "{labels:?} by {limit}");
        let exactly = Moment::Exactly(whole.revision());
        let again = world.list(&scope, labels, None, exactly).await.unwrap();
        assert_eq!(told(&again), told(&whole));
    }
}

#[tokio::test]
async fn an_expired_continue_token_is_replaced_by_an_inconsistent_one() {
    let mut world = World::new();
    for _ in 0..20 {
        world.write();
    }
    let page = world.list(&Scope::All, "", Some(1), Moment::Latest).await.unwrap();
    let next = ContinueToken::parse(&page.next_token(), &Scope::All).unwrap();
    // A process that was started later does not know the revision.
    let mut other = World::new();
    let sequencer = RevisionSequencer::starting(Timestamp::from_second(1_900_000_000).unwrap(), 8);
    other.served.cache = Arc::new(WatchCache::new(Arc::new(sequencer), WINDOW_LIMIT));
    other.served.cache.mark_synced();
    for _ in 0..20 {
        other.write();
    }
    let refused = other.list(&Scope::All, "", Some(1), Moment::Continued(next.clone())).await;
    let status = serde_json::to_value(refused.unwrap_err().to_status()).unwrap();
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let inconsistent = ContinueToken::parse(token, &Scope::All).unwrap();
    assert_eq!((inconsistent.revision, &inconsistent.start), (None, &next.start));
    let rest = other.list(&Scope::All, "", None, Moment::Continued(inconsistent)).await.unwrap();
    assert!(told(&rest).len() > 1);
}

#[tokio::test]
async fn revisions_before_the_first_sync_are_expired() {
    let mut world = World::new();
    let sequencer = RevisionSequencer::starting(Timestamp::from_second(1_800_000_000).unwrap(), 7);
    world.served.cache = Arc::new(WatchCache::new(Arc::new(sequencer), WINDOW_LIMIT));
    let before = world.served.cache.snapshot().revision();
    world.write();
    world.write();
    world.served.cache.mark_synced();
    let refused = world.list(&Scope::All, "", None, Moment::Exactly(before)).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Expired);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_and_later_bookmarks_follow_events() {
    let mut world = World::new();
    for _ in 0..20 {
        world.write();
    }
    let whole = world.list(&Scope::All, "app", None, Moment::Latest).await.unwrap();
    let start =
        WatchStart::State { at_least: Freshness::NotOlderThan(whole.revision()), marks_end: true };
    let options = WatchOptions { selection: world.selection("app"), start, bookmarks: true };
    let mut watching = watch(&world.served, Scope::All, options, &Account::own()).await.unwrap();
    let mut initial = watching.take_initial().unwrap();
    let mut seen = Vec::new();
    let mut ended = None;
    for event in all_of(&mut initial) {
        assert_eq!(ended, None, "the bookmark is the last one");
        match event {
            Event::Object(event) => {
                let Versioned { revision, object } = event.versioned;
                seen.push(format!("{}@{revision}", object.key()));
            }
            Event::Bookmark(bookmark) => ended = Some(bookmark),
        }
    }
    assert_eq!(seen, told(&whole));
    assert!(ended.is_some_and(|end| end.ends_initial && end.revision >= whole.revision()));
    // No change is lost between the initial events and the watch, and there is no bookmark while changes are unread.
    world.write();
    while world.served.cache.snapshot().revision() == whole.revision() {
        world.write();
    }
    assert!(watching.bookmark().is_none());
}

#[tokio::test]
async fn a_watch_of_the_future_has_no_bookmark_yet() {
    let mut world = World::new();
    world.write();
    let now = world.served.cache.snapshot().revision();
    let future = Revision::new(now.number() + (1 << 18) * 100);
    let options = WatchOptions {
        selection: world.selection(""),
        start: WatchStart::After(future),
        bookmarks: true,
    };
    let mut watching = watch(&world.served, Scope::All, options, &Account::own()).await.unwrap();
    assert!(watching.bookmark().is_none());
}

/// A client that lists and watches, reads at its own pace, loses its connection, and lists again if its revision has
/// expired.
struct Reflector {
    scope: Scope,
    labels: &'static str,
    /// Whether the client requests the list as the initial events of its watch.
    streams: bool,
    /// The largest age of the list, in changes.
    back: usize,
    /// The parsed form of `labels`.
    selection: Selection,
    seen: BTreeMap<Key, Revision>,
    /// The revision up to which the client has seen all changes.
    reached: Option<Revision>,
    watching: Option<WatchStream>,
    relisted: usize,
    /// Whether the next event is the first event after a reconnect.
    is_back: bool,
    resumed: usize,
}

impl Reflector {
    async fn connect(&mut self, world: &World) {
        self.is_back = self.reached.is_some();
        let start = match self.reached {
            Some(revision) => WatchStart::After(revision),
            None if self.streams => {
                WatchStart::State { at_least: Freshness::Latest, marks_end: true }
            }
            None => {
                self.back = (self.back * 7 + 3) % 40;
                let list = world.list_of_some_moment(&self.scope, self.labels, self.back).await;
                let wanted = list.after(None).filter(|(_, is_wanted)| *is_wanted);
                self.seen = wanted.map(|(v, _)| (v.object.key().clone(), v.revision)).collect();
                self.relisted += 1;
                WatchStart::After(list.revision())
            }
        };
        if let WatchStart::After(revision) = start {
            self.reached = Some(revision);
        }
        let options =
            WatchOptions { selection: world.selection(self.labels), start, bookmarks: true };
        let mut watching =
            watch(&world.served, self.scope.clone(), options, &Account::own()).await.unwrap();
        if let Some(mut initial) = watching.take_initial() {
            self.seen.clear();
            self.relisted += 1;
            all_of(&mut initial).into_iter().for_each(|event| self.take(event));
        }
        self.watching = Some(watching);
    }

    fn take(&mut self, event: Event) {
        let ObjectEvent { event_type, versioned, .. } = match event {
            Event::Bookmark(bookmark) => {
                assert!(Some(bookmark.revision) >= self.reached, "bookmarks do not go back");
                self.reached = Some(bookmark.revision);
                return;
            }
            Event::Object(event) => event,
        };
        self.resumed += usize::from(std::mem::take(&mut self.is_back));
        let key = versioned.object.key().clone();
        let before = self.seen.remove(&key);
        match event_type {
            EventType::Added => assert_eq!(before, None, "{key} was there"),
            EventType::Modified | EventType::Deleted => {
                assert!(before.is_some_and(|before| before < versioned.revision), "{key}");
            }
        }
        // The event of an object that no longer matches contains its last matching state.
        assert!(self.selection.matches(&versioned.object), "{key}");
        if event_type != EventType::Deleted {
            self.seen.insert(key, versioned.revision);
        }
        // Initial events are not in the order of revisions.
        if self.reached.is_some() {
            assert!(self.reached < Some(versioned.revision), "in the order of revisions");
            self.reached = Some(versioned.revision);
        }
    }

    /// Reads at most this many of the available events.
    async fn read(&mut self, world: &World, events: usize) {
        for _ in 0..events {
            if self.watching.is_none() {
                self.connect(world).await;
            }
            let Some(watching) = &mut self.watching else { return };
            match unconstrained(watching.next()).now_or_never() {
                None => return,
                Some(None) => self.watching = None,
                Some(Some(Ok(event))) => self.take(event),
                Some(Some(Err(error))) => {
                    assert_eq!(error.reason(), Reason::Expired);
                    self.reached = None;
                    self.watching = None;
                }
            }
        }
    }
}

/// Every client finally has the current state, for any writes, any reading pace and any number of reconnects.
#[tokio::test]
async fn every_watcher_converges_to_the_list() {
    for seed in 1..=4 {
        eprintln!("seed {seed}");
        follow_from_seed(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)).await;
    }
}

async fn follow_from_seed(seed: u64) {
    let mut world = World::from_seed(seed);
    let mut clients = Vec::new();
    for scope in
        [Scope::All, Scope::Namespace("m".into()), Scope::Object(Key::new(Some("n"), "a1"))]
    {
        for labels in ["", "app", "app!=x", "none"] {
            for streams in [false, true] {
                clients.push(Reflector {
                    scope: scope.clone(),
                    labels,
                    streams,
                    back: labels.len(),
                    selection: world.selection(labels),
                    seen: BTreeMap::new(),
                    reached: None,
                    watching: None,
                    relisted: 0,
                    is_back: false,
                    resumed: 0,
                });
            }
        }
    }
    for round in 0..1_000 {
        // Long periods with all past changes in the window alternate with short periods with few of them.
        world.filler = if round / 50 % 8 == 7 { 400 << 10 } else { 0 };
        for _ in 0..world.next(6) {
            world.write();
        }
        let chosen = usize::try_from(world.next(clients.len() as u64)).unwrap();
        let client = &mut clients[chosen];
        match world.next(4) {
            0 => client.watching = None,
            1 => {
                let bookmark = client.watching.as_mut().and_then(WatchStream::bookmark);
                bookmark.into_iter().for_each(|bookmark| client.take(bookmark));
            }
            _ => {
                let events = usize::try_from(world.next(20)).unwrap();
                client.read(&world, events).await;
            }
        }
    }
    for client in &mut clients {
        client.read(&world, 10_000).await;
        let list = world.list(&client.scope, client.labels, None, Moment::Latest).await.unwrap();
        let wanted = list.after(None).filter(|(_, is_wanted)| *is_wanted);
        let expected: BTreeMap<Key, Revision> =
            wanted.map(|(v, _)| (v.object.key().clone(), v.revision)).collect();
        assert_eq!(client.seen, expected, "{:?} {:?}", client.scope, client.labels);
    }
    // Both ways to reconnect have been tested.
    let sum = |count: fn(&Reflector) -> usize| clients.iter().map(count).sum::<usize>();
    assert!(sum(|client| client.relisted) > clients.len());
    assert!(sum(|client| client.resumed) > clients.len());
}
