//! Lists in pages and streaming lists, held against what was there.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::kind::Kind;
use crate::object::selector::{FieldSelector, LabelSelector, Selector};
use crate::object::{Key, Object};
use crate::served_kind::{Backing, ServedKind};
use crate::storage::{MemoryStore, RevisionSequence, Versioned};
use crate::watch_cache::{Scope, WatchCache};

struct World {
    served: ServedKind,
    random: u64,
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
        let sequence = Arc::new(RevisionSequence::starting(now, 7));
        let cache = Arc::new(WatchCache::new(Arc::clone(&sequence)));
        cache.mark_synced();
        let backing = Backing::Stored(Arc::new(MemoryStore::new(sequence)));
        Self { served: ServedKind { kind, cache, backing }, random: 0x2545_f491_4f6c_dd1d }
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
        let tree = json!({"metadata": metadata, "n": self.next(100)});
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let kept = self.next(4) > 0;
        self.served.cache.publish(&key, kept.then_some(object));
    }

    fn selection(&self, labels: &str) -> Selection {
        let labels = LabelSelector::parse(labels).unwrap();
        let fields = FieldSelector::default();
        let kind = Arc::clone(&self.served.kind);
        Selection {
            version: Arc::clone(&kind.storage),
            kind,
            selector: Selector { labels, fields },
        }
    }

    async fn list(
        &self,
        scope: &Scope,
        labels: &str,
        limit: Option<usize>,
        moment: Moment,
    ) -> Result<Listed, crate::error::ApiError> {
        let (selection, collection) = (self.selection(labels), scope.clone());
        let options = ListOptions { selection, collection, limit, moment };
        list(&self.served, scope.clone(), options).await
    }
}

fn told(listed: &Listed) -> Vec<String> {
    let wanted = listed.after(None).filter(|(_, is_wanted)| *is_wanted);
    wanted
        .map(|(Versioned { revision, object }, _)| format!("{}@{revision}", object.key()))
        .collect()
}

#[tokio::test]
async fn pages_together_are_the_list_that_they_began_with() {
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
            let next = Continue::parse(&page.next_token(), &scope).unwrap();
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
async fn a_token_that_is_too_old_can_be_exchanged() {
    let mut world = World::new();
    for _ in 0..20 {
        world.write();
    }
    let page = world.list(&Scope::All, "", Some(1), Moment::Latest).await.unwrap();
    let next = Continue::parse(&page.next_token(), &Scope::All).unwrap();
    // A process that has been started since knows nothing of it.
    let mut other = World::new();
    let sequence = RevisionSequence::starting(Timestamp::from_second(1_900_000_000).unwrap(), 8);
    other.served.cache = Arc::new(WatchCache::new(Arc::new(sequence)));
    other.served.cache.mark_synced();
    for _ in 0..20 {
        other.write();
    }
    let refused = other.list(&Scope::All, "", Some(1), Moment::Continued(next.clone())).await;
    let status = serde_json::to_value(refused.unwrap_err().to_status()).unwrap();
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let inconsistent = Continue::parse(token, &Scope::All).unwrap();
    assert_eq!((inconsistent.revision, &inconsistent.start), (None, &next.start));
    let rest = other.list(&Scope::All, "", None, Moment::Continued(inconsistent)).await.unwrap();
    assert!(told(&rest).len() > 1);
}

#[tokio::test]
async fn the_past_before_the_first_sync_is_not_shown() {
    let mut world = World::new();
    let sequence = RevisionSequence::starting(Timestamp::from_second(1_800_000_000).unwrap(), 7);
    world.served.cache = Arc::new(WatchCache::new(Arc::new(sequence)));
    let before = world.served.cache.snapshot().revision();
    world.write();
    world.write();
    world.served.cache.mark_synced();
    let refused = world.list(&Scope::All, "", None, Moment::Exactly(before)).await.unwrap_err();
    assert_eq!(refused.reason(), crate::error::Reason::Expired);
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark_and_goes_on() {
    let mut world = World::new();
    for _ in 0..20 {
        world.write();
    }
    let whole = world.list(&Scope::All, "app", None, Moment::Latest).await.unwrap();
    let start = WatchStart::State { at_least: Some(whole.revision()), marks_end: true };
    let options = WatchOptions { selection: world.selection("app"), start, bookmarks: true };
    let mut watching = watch(&world.served, Scope::All, options).await.unwrap();
    let mut initial = watching.take_initial().unwrap();
    let mut seen = Vec::new();
    let mut ended = None;
    while let Some(event) = initial.next() {
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
    // Nothing is lost between the two, and a bookmark waits for what is there.
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
    let future = crate::storage::Revision::new(now.number() + 4096 * 100);
    let options = WatchOptions {
        selection: world.selection(""),
        start: WatchStart::After(future),
        bookmarks: true,
    };
    let mut watching = watch(&world.served, Scope::All, options).await.unwrap();
    assert!(watching.bookmark().is_none());
}
