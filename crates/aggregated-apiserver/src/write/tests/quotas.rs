//! Tests of quota reservations, while writes wait for their store.

use super::*;
use crate::admission::{QuotaLimits, QuotaUsages, ResourceQuota};
use crate::storage::LogEntry;
use futures::future::{join_all, ready};
use std::time::Duration;

/// A store whose commits yield to other tasks first.
struct Late(MemoryStore);

impl Store for Late {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        self.0.get(collection, key)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            tokio::task::yield_now().await;
            self.0.commit(commit).await
        }
        .boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.follow(collection, reader)
    }

    fn collections(&self) -> Vec<Collection> {
        self.0.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        self.0.sequencer()
    }
}

/// A world with a `Late` store, and a quota of `hard` Foos.
fn limited(hard: &str) -> (World, AdmissionChain) {
    let mut world = World::new(kind());
    // The system clock gives each object a different uid.
    world.clock = Clock::system();
    let sequencer = Arc::new(RevisionSequencer::starting(world.clock.now(), 7));
    let store =
        Arc::new(Late(MemoryStore::new(MEMORY_STORE_LIMIT, sequencer, NamespaceLimit::default())));
    let usages = QuotaUsages::default();
    let collection = Collection::new(&world.served.kind.collection());
    at_once(store.follow(&collection, usages.counter(&world.served.kind))).unwrap();
    world.served.backing = Backing::Stored(store);
    let quota = json!({
        "metadata": {"name": "q", "namespace": "default", "uid": "q"},
        "spec": {"hard": {"count/foos.example.com": hard}},
    });
    let quota = Object::from_tree(quota.as_object().unwrap()).unwrap();
    let limits = QuotaLimits::default();
    limits.append(LogEntry {
        revision: Revision::new(1),
        key: quota.key().clone(),
        before: None,
        object: Some(Arc::new(quota)),
    });
    let mut admission = AdmissionChain::default();
    admission.set_last(Arc::new(ResourceQuota::new(limits, usages)));
    (world, admission)
}

/// The results of `count` simultaneous creates; `name` returns the name of each.
async fn create(
    (world, admission): &(World, AdmissionChain),
    count: usize,
    name: impl Fn(usize) -> String,
    dry_run: bool,
) -> Vec<Result<(), Reason>> {
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    let (kinds, turns) = (ServedKinds::default(), SlowWrites::default());
    let attributes = Attributes {
        served: &world.served,
        version: &world.served.kind.storage,
        part: Part::Main,
        namespace: Some("default"),
        name: None,
        options: &options,
        user: &world.user,
        now: world.clock.now(),
        origin: Origin::Request,
        account: &world.account,
        environment: Environment {
            clock: &world.clock,
            admission,
            kinds: &kinds,
            turns: &turns,
            unsettled: &UnsettledWrites::default(),
            managed_fields: ManagedFields::default(),
        },
        authorizer: &restore::AlwaysAllow,
        section: &CriticalSection::default(),
        audit: None,
    };
    let one = |number| {
        let Value::Object(tree) = foo(json!({"name": name(number)}), json!({"size": 1})) else {
            unreachable!()
        };
        let submitted = Submitted::new(tree, Vec::new());
        write(&attributes, Change::Create(submitted))
    };
    let written = join_all((0..count).map(one)).await;
    written.into_iter().map(|one| one.map(drop).map_err(|error| error.reason())).collect()
}

fn count(answers: &[Result<(), Reason>], wanted: Result<(), Reason>) -> usize {
    answers.iter().filter(|one| **one == wanted).count()
}

#[tokio::test]
async fn pending_creates_count_against_the_quota() {
    let limited = limited("50");
    let answers = create(&limited, 200, |number| format!("f{number}"), false).await;
    assert_eq!(count(&answers, Ok(())), 50);
    assert_eq!(count(&answers, Err(Reason::Forbidden)), 150);
}

#[tokio::test]
async fn failed_creates_and_dry_runs_release_their_quota() {
    let limited = limited("50");
    // Four creates share each name, and one of them succeeds.
    let answers = create(&limited, 40, |number| format!("f{}", number % 10), false).await;
    assert_eq!(count(&answers, Ok(())), 10);
    assert_eq!(count(&answers, Err(Reason::AlreadyExists)), 30);
    // Dry runs are checked against the quota, but do not use it.
    let rehearsed = create(&limited, 60, |number| format!("g{number}"), true).await;
    assert_eq!(count(&rehearsed, Ok(())), 60);
    let answers = create(&limited, 60, |number| format!("g{number}"), false).await;
    assert_eq!(count(&answers, Ok(())), 40);
    let rehearsed = create(&limited, 1, |_| "h".to_owned(), true).await;
    assert_eq!(rehearsed, [Err(Reason::Forbidden)]);
}

#[tokio::test]
async fn a_cancelled_create_releases_its_quota() {
    let limited = limited("1");
    {
        let waiting = create(&limited, 1, |_| "a".to_owned(), false);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let refused = create(&limited, 1, |_| "b".to_owned(), true).await;
        assert_eq!(refused, [Err(Reason::Forbidden)]);
    }
    assert_eq!(create(&limited, 1, |_| "b".to_owned(), false).await, [Ok(())]);
}

/// A store of several processes whose commits have an unknown outcome.
struct Doubtful(MemoryStore);

impl Store for Doubtful {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        self.0.get(collection, key)
    }

    fn commit(&self, _: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        ready(Err(StoreError::Unknown)).boxed()
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.follow(collection, reader)
    }

    fn collections(&self) -> Vec<Collection> {
        self.0.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        self.0.sequencer()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_reservation_is_held_until_an_unknown_outcome_is_resolved() {
    let (mut world, admission) = limited("1");
    let sequencer = Arc::new(RevisionSequencer::starting(world.clock.now(), 7));
    let store = MemoryStore::new(MEMORY_STORE_LIMIT, sequencer, NamespaceLimit::default());
    world.served.backing = Backing::Stored(Arc::new(Doubtful(store)));
    let limited = (world, admission);
    let attempt = async || create(&limited, 1, |_| "a".to_owned(), false).await[0];
    assert_eq!(attempt().await, Err(Reason::Timeout));
    assert_eq!(attempt().await, Err(Reason::Forbidden), "it may have been written");
    // After this time it is known that nothing was stored.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(attempt().await, Err(Reason::Timeout));
}
