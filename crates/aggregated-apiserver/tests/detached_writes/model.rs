//! Random histories. Requests of several users time out, disconnect or are answered. The store is slow, fails
//! sometimes, or commits writes after it reported an unknown outcome. Definitions are added, changed and removed, and
//! there is a quota. The test compares the history of the store with the responses of clients, and with a sequential
//! model.
//!
//! `DETACHED_WRITES_SECONDS=3600 cargo test -p aggregated-apiserver --test detached_writes model` runs it for an hour.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use crate::store::{Behaviour, Event, Note};
use crate::world::{QUOTA, World, foos, object, path};

/// The default duration, unless the environment variable is set.
const SECONDS: u64 = 10;
const USERS: [&str; 3] = ["jane", "joe", "jim"];
const REQUESTS: usize = 60;
const LANES: usize = 6;

/// The response to a request.
struct Told {
    /// The mark that the request wrote into its object; for a deletion, the uid of the object.
    mark: String,
    status: StatusCode,
    answer: Value,
    is_deletion: bool,
}

/// One random history.
struct History {
    world: World,
    /// The number of the definition that was served last; 0 if none is served.
    epoch: AtomicU64,
    told: Mutex<Vec<Told>>,
}

#[test]
fn random_histories_agree_with_a_sequential_model() {
    let seconds = std::env::var("DETACHED_WRITES_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let began = Instant::now();
    let mut seed = 0;
    while seed == 0 || began.elapsed() < Duration::from_secs(seconds) {
        seed += 1;
        // The paused clock advances when all tasks wait, so a history of seconds takes milliseconds.
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        eprintln!("seed {seed}");
        runtime.block_on(run(seed));
    }
}

async fn run(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let is_shared = random.bool();
    let behaviour = Behaviour {
        longest: Duration::from_millis([0, 5, 50, 400][random.usize(0..4)]),
        failures: if random.bool() { 0 } else { 50 },
        late: if is_shared { [0, 50, 300][random.usize(0..3)] } else { 0 },
        is_shared,
    };
    let slow = Duration::from_millis([0, 30][random.usize(0..2)]);
    let world = World::new(seed, behaviour, slow).await;
    let history = Arc::new(History { world, epoch: AtomicU64::new(0), told: Mutex::default() });
    let definitions = history.definitions(random.fork());
    let clients = USERS.iter().flat_map(|user| (0..LANES).map(move |lane| (user, lane)));
    let clients: Vec<_> =
        clients.map(|(user, lane)| history.client(user, lane, random.fork())).collect();
    tokio::join!(definitions, join_all(clients));
    history.world.store.calm();
    history.world.store.wait_for(0).await;
    // The paused clock advances only when all tasks wait, so after this sleep every task has seen the last commit.
    tokio::time::sleep(Duration::from_secs(60)).await;
    history.check().await;
}

impl History {
    /// Adds, changes and removes definitions.
    async fn definitions(&self, mut random: Rng) {
        let kinds = self.world.server.runtime_kinds();
        for epoch in 1..10 {
            kinds.serve(&foos(epoch)).await.unwrap();
            self.world.store.note(Note::Serves(epoch));
            self.epoch.store(epoch, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(random.u64(0..200))).await;
            if random.bool() {
                if random.bool() {
                    kinds.close("foos.example.com").await;
                    tokio::time::sleep(Duration::from_millis(random.u64(0..50))).await;
                }
                kinds.withdraw("foos.example.com", async || None).await;
                self.world.store.note(Note::Withdrawn);
                self.epoch.store(0, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(random.u64(0..50))).await;
            }
        }
        if self.epoch.load(Ordering::Relaxed) == 0 {
            kinds.serve(&foos(10)).await.unwrap();
            self.world.store.note(Note::Serves(10));
            self.epoch.store(10, Ordering::Relaxed);
        }
    }

    async fn client(&self, user: &str, lane: usize, mut random: Rng) {
        for number in 0..REQUESTS / LANES {
            let mark = format!("{user}-{lane}-{number}");
            let (plural, kind) = [("foos", "Foo"), ("bars", "Bar")][random.usize(0..2)];
            let epoch = self.epoch.load(Ordering::Relaxed);
            let size = if random.u32(0..10) == 0 { 100_000 } else { 10 };
            let spec = json!({"epoch": epoch, "mark": mark, "user": user, "x": "x".repeat(size)});
            let name = format!("n{}", random.u32(0..6));
            let whole = object(kind, &name, &spec);
            let (all, one) = (path(plural), format!("{}/{name}", path(plural)));
            let (method, target, body) = match random.u32(0..10) {
                0..5 => ("POST", all, whole),
                5 => ("PUT", one, whole),
                6 => ("PATCH", one, json!({"spec": spec})),
                7 if random.u32(0..4) == 0 => ("DELETE", all, Value::Null),
                _ => ("DELETE", one, Value::Null),
            };
            self.ask((user, &mark), (method, target), &body, &mut random).await;
            tokio::time::sleep(Duration::from_millis(random.u64(0..30))).await;
        }
    }

    async fn ask(
        &self,
        (user, mark): (&str, &str),
        (method, mut target): (&str, String),
        body: &Value,
        random: &mut Rng,
    ) {
        let (gives_up, disconnects) = (random.bool(), random.bool());
        let after = random.u64(1..100);
        if gives_up && !disconnects {
            target = format!("{target}?timeout={after}ms");
        }
        let asked = self.world.ask(user, (method, &target), body);
        let answered = if gives_up && disconnects {
            tokio::time::timeout(Duration::from_millis(after), asked).await.ok()
        } else {
            Some(asked.await)
        };
        let Some((status, answer)) = answered else { return };
        let is_of_many = method == "DELETE" && answer["kind"].as_str().unwrap().ends_with("List");
        if is_of_many {
            return;
        }
        let is_deletion = method == "DELETE";
        let uid = answer["details"]["uid"].as_str().unwrap_or_default();
        let mark = if is_deletion { uid.to_owned() } else { mark.to_owned() };
        self.told.lock().unwrap().push(Told { mark, status, answer, is_deletion });
    }

    /// Compares the stored objects with the responses.
    async fn check(&self) {
        let events = self.world.store.events();
        let left = replay(&events);
        let stored: HashMap<u64, &Value> =
            left.stored.iter().map(|(revision, tree)| (*revision, tree)).collect();
        let last: HashSet<&str> = left.now.values().map(mark_of).collect();
        for Told { mark, status, answer, is_deletion } in self.told.lock().unwrap().iter() {
            match (status.is_success(), is_deletion) {
                (true, true) => {
                    assert!(mark.is_empty() || left.removed.contains(mark), "{mark} is there");
                }
                (true, false) => {
                    let revision = answer["metadata"]["resourceVersion"].as_str().unwrap();
                    let tree = stored.get(&revision.parse().unwrap());
                    let tree = tree.unwrap_or_else(|| panic!("{mark} at {revision} is lost"));
                    assert_eq!(tree["metadata"]["uid"], answer["metadata"]["uid"], "{mark}");
                }
                // An unknown outcome is not a rejection.
                (false, false) if *status != StatusCode::GATEWAY_TIMEOUT => {
                    assert!(!last.contains(mark.as_str()), "{mark} was refused: {answer}");
                }
                _ => {}
            }
        }
        let (count, bytes) = self.world.store.most_waiting();
        assert!(count <= 12 && bytes < 64 << 20, "{count} writes of a user, {bytes} bytes");
        self.fill_quota("bars", "Bar", left.count("bars")).await;
        self.fill_quota("foos", "Foo", left.count("foos")).await;
    }

    /// Checks that exactly as many objects can be created as the quota leaves, so that every reservation has been
    /// released.
    async fn fill_quota(&self, plural: &str, kind: &str, there: usize) {
        assert_eq!(self.world.names(plural).await.len(), there);
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut created = there;
        for number in 0..100 {
            let body = object(kind, &format!("last-{number}"), &json!({"epoch": epoch}));
            let (status, answer) = self.world.ask("judy", ("POST", &path(plural)), &body).await;
            match status {
                StatusCode::CREATED => created += 1,
                StatusCode::FORBIDDEN => {
                    assert_eq!(created, QUOTA, "{plural}: {answer}");
                    return;
                }
                _ => panic!("{answer}"),
            }
        }
        panic!("{plural} have no quota");
    }
}

/// The result of a history.
#[derive(Default)]
struct Left {
    /// The existing objects, by collection and name.
    now: HashMap<(String, String), Value>,
    /// Every object that was ever stored, by revision.
    stored: HashMap<u64, Value>,
    /// The uids of removed objects.
    removed: HashSet<String>,
}

impl Left {
    fn count(&self, plural: &str) -> usize {
        self.now.keys().filter(|(collection, _)| collection.starts_with(plural)).count()
    }
}

fn mark_of(tree: &Value) -> &str {
    tree["spec"]["mark"].as_str().unwrap_or_default()
}

/// Replays a history. Checks that the quota is never exceeded, and that every object is validated by the definition
/// that is served.
fn replay(events: &[Event]) -> Left {
    let mut left = Left::default();
    let mut in_service: Option<u64> = None;
    for event in events {
        match event {
            Event::Noted(Note::Serves(epoch)) => in_service = Some(*epoch),
            Event::Noted(Note::Withdrawn) => {
                in_service = None;
                assert_eq!(left.count("foos"), 0, "objects of a withdrawn definition are left");
            }
            Event::Stored { collection, object, revision, is_new } => {
                let tree = Value::Object(object.to_tree());
                let name = tree["metadata"]["name"].as_str().unwrap().to_owned();
                let key = (collection.clone(), name);
                assert_eq!(left.now.contains_key(&key), !is_new, "{key:?}");
                if collection.starts_with("foos") {
                    // A definition is served shortly before that is recorded in the history.
                    let epoch = tree["spec"]["epoch"].as_u64().unwrap();
                    // Fields that were invalid before and are unchanged are accepted.
                    let before = left.now.get(&key).and_then(|tree| tree["spec"]["epoch"].as_u64());
                    let is_current =
                        in_service.is_none_or(|current| epoch >= current) || before == Some(epoch);
                    assert!(is_current, "{epoch} was stored under {in_service:?}");
                }
                left.stored.insert(*revision, tree.clone());
                left.now.insert(key, tree);
                let plural = collection.split('.').next().unwrap();
                assert!(left.count(plural) <= QUOTA, "over quota: {:?}", left.now.keys());
            }
            Event::Removed { uid } => {
                left.now.retain(|_, tree| tree["metadata"]["uid"] != **uid);
                left.removed.insert(uid.clone());
            }
        }
    }
    left
}
