//! Objects that are completed asynchronously.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use tokio::sync::Notify;

use super::*;

/// The actions of a completion; the value of its object names one of them.
const WAIT: &str = "wait";
const FAIL: &str = "fail";
const PANIC: &str = "panic";
const NONE: &str = "none";
/// Takes a second.
pub(super) const SLOW: &str = "slow";
/// Fails after a second.
pub(super) const SLOW_FAIL: &str = "slow-fail";
/// Panics when it is dropped because of its timeout.
pub(super) const PANIC_IN_DROP: &str = "panic-in-drop";
/// The computation panics, so there is no completion.
pub(super) const BROKEN: &str = "broken";

/// The completions of one test: tests run concurrently, and differ by the prefix of their values.
#[derive(Default)]
pub(super) struct Calls {
    /// The number of calls for each value.
    pub made: BTreeMap<String, usize>,
    pub running: usize,
    most_running: usize,
}

static CALLS: LazyLock<Mutex<BTreeMap<String, Calls>>> = LazyLock::new(Mutex::default);
static GO: LazyLock<Notify> = LazyLock::new(Notify::new);

pub(super) fn calls<T>(test: &str, look: impl FnOnce(&mut Calls) -> T) -> T {
    look(CALLS.lock().unwrap().entry(test.to_owned()).or_default())
}

/// A value `TEST/ACTION/TEXT` of a ConfigMap.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Priced", namespaced)]
struct PricedSpec {
    value: String,
    price: Option<String>,
}

/// Counts a call that is running until it is dropped.
struct Running(String);

impl Drop for Running {
    fn drop(&mut self) {
        calls(&self.0, |calls| calls.running -= 1);
    }
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl Computed for Priced {
    type Source = ConfigMap;
    type Related = ();

    const COMPLETION_TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));

    fn compute(source: &ConfigMap, (): &()) -> Option<Self> {
        let value = source.data.as_ref()?.get("value")?.clone();
        assert!(!value.contains(BROKEN), "cannot be computed");
        Some(Self::new(source.metadata.name.as_deref()?, PricedSpec { value, price: None }))
    }

    async fn complete(mut object: Self) -> Result<Option<Self>, CompletionError> {
        let value = object.spec.value.clone();
        let mut parts = value.splitn(3, '/').map(str::to_owned);
        let (test, action) = (parts.next().unwrap(), parts.next().unwrap());
        calls(&test, |calls| {
            *calls.made.entry(value.clone()).or_default() += 1;
            calls.running += 1;
            calls.most_running = calls.most_running.max(calls.running);
        });
        let _running = Running(test);
        match action.as_str() {
            WAIT => GO.notified().await,
            FAIL => return Err("no price".into()),
            PANIC => panic!("no price"),
            NONE => return Ok(None),
            SLOW => tokio::time::sleep(Duration::from_secs(1)).await,
            SLOW_FAIL => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Err("no price".into());
            }
            PANIC_IN_DROP => {
                let _panics = PanicsInDrop;
                std::future::pending::<()>().await;
            }
            _ => tokio::task::yield_now().await,
        }
        object.spec.price = parts.next();
        Ok(Some(object))
    }
}

pub(super) fn start_priced() -> Fixture {
    start_of::<Priced>(SourceOptions::ALL)
}

impl Fixture {
    pub(super) fn set(&self, name: &str, value: &str) {
        self.config_maps.set(key(name), Some(config_map(name, &[("value", value)])));
    }

    pub(super) fn price(&self, name: &str) -> Option<String> {
        let shown = self.cache.get(&key(name))?;
        shown.object.to_tree()["spec"]["price"].as_str().map(str::to_owned)
    }

    pub(super) fn complete_with(&self, names: &[&str]) {
        self.config_maps.complete(&names.iter().map(|name| key(name)).collect());
    }
}

/// Waits until a condition holds; the clock of the test stands still.
pub(super) async fn until(mut is_true: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_true() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition does not hold");
}

#[tokio::test(start_paused = true)]
async fn objects_are_served_once_they_are_complete() {
    let fixture = start_priced();
    fixture.set("a", "served/ok/7");
    fixture.set("b", "served/none/7");
    fixture.complete_with(&["a", "b"]);
    fixture.cache.wait_synced().await;
    assert_eq!(fixture.price("a").as_deref(), Some("7"));
    assert!(fixture.cache.get(&key("b")).is_none());
    fixture.set("b", "served/ok/8");
    until(|| fixture.price("b").as_deref() == Some("8")).await;
    fixture.set("b", "served/none/8");
    until(|| fixture.cache.get(&key("b")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_completion_keeps_the_last_object_and_is_repeated() {
    let fixture = start_priced();
    fixture.set("a", "failed/ok/7");
    fixture.complete_with(&["a"]);
    fixture.cache.wait_synced().await;
    for action in [FAIL, PANIC, WAIT] {
        let value = format!("failed/{action}/8");
        let made = || calls("failed", |calls| calls.made.get(&value).copied().unwrap_or_default());
        fixture.set("a", &value);
        // The paused clock advances to the next timer whenever all tasks wait.
        while made() < 3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(fixture.price("a").as_deref(), Some("7"), "{action}");
        // The pauses become longer, up to a minute.
        let (before, hour) = (made(), Duration::from_secs(3600));
        tokio::time::sleep(hour).await;
        let more = made() - before;
        assert!((50..=70).contains(&more), "{action}: {more}");
    }
    fixture.set("a", "failed/ok/9");
    until(|| fixture.price("a").as_deref() == Some("9")).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_waits_for_its_first_objects_for_ten_seconds() {
    let fixture = start_priced();
    fixture.set("a", "first/ok/7");
    fixture.set("b", "first/wait/7");
    let began = Instant::now();
    fixture.complete_with(&["a", "b"]);
    fixture.cache.wait_synced().await;
    let waited = began.elapsed();
    assert!(Duration::from_secs(5) <= waited && waited <= Duration::from_secs(11), "{waited:?}");
    assert_eq!(fixture.price("a").as_deref(), Some("7"));
    assert!(fixture.cache.get(&key("b")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_limited_number_of_sources_is_completed_at_the_same_time() {
    let fixture = start_priced();
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    for name in &names {
        fixture.set(name, &format!("limited/ok/{name}"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fixture.complete_with(&names);
    fixture.cache.wait_synced().await;
    until(|| names.iter().all(|name| fixture.price(name).as_deref() == Some(name))).await;
    assert_eq!(calls("limited", |calls| calls.most_running), 16);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_completion_causes_another_one() {
    let fixture = start_priced();
    fixture.set("a", "change/ok/1");
    fixture.complete_with(&["a"]);
    fixture.cache.wait_synced().await;
    fixture.set("a", "change/wait/2");
    until(|| calls("change", |calls| calls.running) == 1).await;
    for number in 3..=9 {
        fixture.set("a", &format!("change/ok/{number}"));
        tokio::task::yield_now().await;
    }
    // The completion in progress ends by its timeout, and the next one follows after a pause.
    tokio::time::sleep(Duration::from_secs(7)).await;
    until(|| fixture.price("a").as_deref() == Some("9")).await;
    let made = calls("change", |calls| calls.made.clone());
    assert_eq!(made.values().sum::<usize>(), 3, "{made:?}");
}

#[tokio::test(start_paused = true)]
async fn the_completion_of_a_deleted_source_is_not_used() {
    let fixture = start_priced();
    fixture.set("a", "deleted/wait/1");
    fixture.complete_with(&["a"]);
    until(|| calls("deleted", |calls| calls.running) == 1).await;
    fixture.config_maps.set(key("a"), None);
    tokio::task::yield_now().await;
    fixture.set("a", "deleted/ok/2");
    tokio::task::yield_now().await;
    GO.notify_waiters();
    until(|| fixture.cache.get(&key("a")).is_some()).await;
    assert_eq!(fixture.price("a").as_deref(), Some("2"));
    // A source that failed is not computed again after it was deleted.
    fixture.set("b", "deleted/fail/3");
    let made = || calls("deleted", |calls| calls.made.get("deleted/fail/3").copied());
    until(|| made() == Some(1)).await;
    fixture.config_maps.set(key("b"), None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(made(), Some(1));
}
