//! Tests of a cache through the functions that its readers use.

use super::*;
use crate::object::Object;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::json;

fn cache() -> Arc<WatchCache> {
    let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
    Arc::new(WatchCache::new(sequencer, WINDOW_LIMIT))
}

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap();
    Key::new(Some(namespace), name)
}

fn put(cache: &WatchCache, at: &str, content: u64) {
    let key = key(at);
    let tree = json!({
        "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": "u"},
        "content": content,
    });
    cache.publish(&key, Some(Object::from_tree(tree.as_object().unwrap()).unwrap()));
}

fn remove(cache: &WatchCache, at: &str) {
    cache.publish(&key(at), None);
}

fn listed(snapshot: &Snapshot, scope: &Scope) -> Vec<String> {
    snapshot.from(scope, None).map(|versioned| versioned.object.key().to_string()).collect()
}

async fn told(subscription: &mut Subscription) -> Vec<String> {
    let changes = subscription.next().await.unwrap();
    changes
        .iter()
        .map(|change| {
            format!("{}{}", if change.after().is_some() { "+" } else { "-" }, change.key())
        })
        .collect()
}

#[test]
fn lists_a_scope_in_the_order_of_keys() {
    let cache = cache();
    for at in ["m/x", "m-1/x", "m/a", "mm/x"] {
        put(&cache, at, 1);
    }
    let snapshot = cache.snapshot();
    assert_eq!(listed(&snapshot, &Scope::All), ["m-1/x", "m/a", "m/x", "mm/x"]);
    assert_eq!(listed(&snapshot, &Scope::Namespace("m".into())), ["m/a", "m/x"]);
    assert_eq!(listed(&snapshot, &Scope::Object(key("m/x"))), ["m/x"]);
    assert_eq!(listed(&snapshot, &Scope::Object(key("m/b"))), [""; 0]);
}

#[test]
fn a_snapshot_does_not_change() {
    let cache = cache();
    put(&cache, "a/1", 1);
    let snapshot = cache.snapshot();
    put(&cache, "a/2", 1);
    remove(&cache, "a/1");
    assert_eq!(listed(&snapshot, &Scope::All), ["a/1"]);
    assert!(cache.snapshot().revision() > snapshot.revision());
}

#[test]
fn the_same_content_again_is_no_change() {
    let cache = cache();
    put(&cache, "a/1", 1);
    let before = cache.snapshot().revision();
    put(&cache, "a/1", 1);
    remove(&cache, "a/none");
    assert_eq!(cache.snapshot().revision(), before);
}

#[test]
fn a_quiet_cache_is_as_new_as_the_sequence() {
    let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
    let quiet = WatchCache::new(Arc::clone(&sequencer), WINDOW_LIMIT);
    let busy = WatchCache::new(Arc::clone(&sequencer), WINDOW_LIMIT);
    put(&busy, "a/1", 1);
    assert_eq!(quiet.snapshot().revision(), sequencer.current());
}

#[tokio::test]
async fn a_subscription_receives_only_changes_in_its_scope() {
    let cache = cache();
    put(&cache, "a/1", 1);
    let (_, mut all) = cache.subscribe(Scope::All);
    let (_, mut one) = cache.subscribe(Scope::Namespace("b".into()));
    put(&cache, "a/2", 1);
    assert_eq!(told(&mut all).await, ["+a/2"]);
    assert!(one.next().now_or_never().is_none());
    put(&cache, "b/1", 1);
    remove(&cache, "b/1");
    assert_eq!(told(&mut one).await, ["+b/1", "-b/1"]);
    assert_eq!(told(&mut all).await, ["+b/1", "-b/1"]);
}

#[tokio::test]
async fn a_waiting_watcher_is_woken() {
    let cache = cache();
    let (_, mut subscription) = cache.subscribe(Scope::All);
    let waiting = tokio::spawn(async move { told(&mut subscription).await });
    tokio::task::yield_now().await;
    put(&cache, "a/1", 1);
    assert_eq!(waiting.await.unwrap(), ["+a/1"]);
}

#[tokio::test]
async fn changes_outside_of_its_scope_do_not_expire_a_subscription() {
    let cache = cache();
    put(&cache, "quiet/1", 1);
    let (_, mut busy) = cache.subscribe(Scope::All);
    let (_, mut quiet) = cache.subscribe(Scope::Namespace("quiet".into()));
    let start = cache.snapshot().revision();
    for content in 0..=102_400 {
        put(&cache, "busy/1", content);
    }
    assert!(matches!(busy.next().await, Err(Lost { .. })));
    put(&cache, "quiet/2", 1);
    assert_eq!(told(&mut quiet).await, ["+quiet/2"]);
    assert!(cache.subscribe_after(Scope::All, start).is_err(), "older than the window");
}

#[tokio::test]
async fn foreign_revisions_are_rejected_and_future_revisions_are_awaited() {
    let cache = cache();
    let current = cache.snapshot().revision().number();
    let foreign = Revision::new(current + 1);
    assert_eq!(cache.wait_until(foreign).await, Err(NotFresh::Foreign));
    assert!(cache.subscribe_after(Scope::All, foreign).is_err());
    let next = Revision::new(current + (1 << 18));
    let waiting = cache.wait_until(next);
    let publish = async { put(&cache, "a/1", 1) };
    let (waited, ()) = tokio::join!(waiting, publish);
    assert_eq!(waited, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_revision_that_is_never_reached_ends_with_too_large() {
    let cache = cache();
    let current = cache.snapshot().revision();
    let next = Revision::new(current.number() + (1 << 18));
    assert_eq!(cache.wait_until(next).await, Err(NotFresh::TooLarge { current }));
}

/// A list at revision r, followed by a watch from r, has the same result as a list now, for every r.
#[tokio::test]
async fn list_then_watch_equals_list_now() {
    let cache = cache();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let mut histories = Vec::new();
    for _ in 0..400 {
        histories.push(cache.snapshot());
        let at = format!("{}/{}", ["a", "b", "a-1"][usize::try_from(next(3)).unwrap()], next(5));
        if next(3) == 0 { remove(&cache, &at) } else { put(&cache, &at, next(4)) }
    }
    for scope in [Scope::All, Scope::Namespace("a".into()), Scope::Object(key("b/3"))] {
        let now: Vec<_> = cache.snapshot().from(&scope, None).cloned().collect();
        for snapshot in &histories {
            let mut seen: std::collections::BTreeMap<Key, Versioned> = snapshot
                .from(&scope, None)
                .map(|versioned| (versioned.object.key().clone(), versioned.clone()))
                .collect();
            let mut subscription =
                cache.subscribe_after(scope.clone(), snapshot.revision()).unwrap();
            while let Some(changes) = subscription.next().now_or_never() {
                for change in changes.unwrap() {
                    match change.after() {
                        Some(after) => seen.insert(change.key().clone(), after.clone()),
                        None => seen.remove(change.key()),
                    };
                }
            }
            let seen: Vec<_> =
                seen.values().map(|v| (v.revision, v.object.key().clone())).collect();
            let expected: Vec<_> =
                now.iter().map(|v| (v.revision, v.object.key().clone())).collect();
            assert_eq!(seen, expected);
        }
    }
}

#[tokio::test]
async fn changes_of_one_revision_are_received_together() {
    let cache = cache();
    let (_, mut subscription) = cache.subscribe(Scope::All);
    let names: Vec<String> = (0..100).map(|number| format!("m/x{number:03}")).collect();
    for at in &names {
        put(&cache, at, 1);
    }
    while told(&mut subscription).await.last() != Some(&"+m/x099".to_owned()) {}
    let together = cache.sequencer.after(cache.sequencer.current());
    for at in &names {
        cache.apply(together, &key(at), None);
    }
    cache.sequencer.reach(together);
    let expected: Vec<String> = names.iter().map(|at| format!("-{at}")).collect();
    assert_eq!(told(&mut subscription).await, expected);
}

#[tokio::test]
async fn a_waiting_subscription_fails_when_its_history_is_discarded() {
    let cache = cache();
    put(&cache, "m/x", 1);
    let (_, mut subscription) = cache.subscribe(Scope::All);
    let mut waiting = Box::pin(subscription.next());
    assert!(waiting.as_mut().now_or_never().is_none());
    let later = cache.sequencer.after(cache.sequencer.current());
    cache.begin_past(later);
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(waited.is_ok_and(|told| told.is_err()));
}

/// Code that caches data of objects depends on the counter. Deletions at a revision that is already visible also count.
#[test]
fn every_change_is_counted() {
    let cache = cache();
    put(&cache, "a/1", 1);
    put(&cache, "a/2", 1);
    put(&cache, "a/3", 1);
    let current = cache.snapshot().revision();
    let before = cache.changes();
    cache.apply(current, &key("a/1"), None);
    cache.apply(current, &key("a/2"), None);
    assert_eq!(cache.changes(), before + 2);
    cache.mark_damaged(key("a/3"));
    assert_eq!(cache.changes(), before + 3);
    put(&cache, "a/4", 1);
    put(&cache, "a/4", 1);
    assert_eq!(cache.changes(), before + 4);
}

#[tokio::test]
async fn windows_of_all_caches_share_one_budget() {
    const SIZE: usize = 100_000;
    const LIMIT: usize = 2_000_000;
    let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
    let budget = Arc::new(WindowBudget::new(LIMIT));
    let mut caches: Vec<_> = (0..4)
        .map(|_| WatchCache::sharing(Arc::clone(&sequencer), WINDOW_LIMIT, &budget))
        .collect();
    let large = |name: &str, number: usize| {
        let tree = json!({"metadata": {"name": name, "uid": "u"}, "text": format!("{number}{}", "x".repeat(SIZE))});
        Object::from_tree(tree.as_object().unwrap()).unwrap()
    };
    let key = Key::new(None, "a");
    let sum = |caches: &[Arc<WatchCache>]| {
        caches.iter().map(|one| one.extent().window_bytes).sum::<usize>()
    };
    // A kind with many changes uses the whole budget as long as the other kinds have few changes.
    for number in 0..50 {
        caches[0].publish(&key, Some(large("a", number)));
    }
    assert!(budget.used() > LIMIT / 2 && budget.used() <= LIMIT);
    let (_, mut slow) = caches[0].subscribe(Scope::All);
    caches[0].publish(&key, Some(large("a", 50)));
    for number in 0..50 {
        for cache in &caches[1..] {
            cache.publish(&key, Some(large("a", number)));
            assert!(cache.extent().window > 0, "the newest change stays");
            assert!(budget.used() <= LIMIT);
            assert_eq!(budget.used(), sum(&caches));
        }
    }
    // The largest window has dropped its oldest changes. Its watcher gets an error if it has missed one of them.
    assert!(caches.iter().all(|cache| cache.extent().window_bytes < LIMIT / 2));
    assert_eq!(caches[0].get(&key).unwrap().object.to_tree(), large("a", 50).to_tree());
    assert!(slow.next().await.is_err() || caches[0].extent().window > 0);
    // The window of a removed kind no longer counts.
    drop(slow);
    caches.truncate(1);
    assert_eq!(budget.used(), caches[0].extent().window_bytes);
    caches[0].forget_past();
    assert_eq!(budget.used(), 0);
}
