//! The order of completions, their retries, and the objects of a source that are completed together.

use super::completed::{BROKEN, PANIC_IN_DROP, SLOW, SLOW_FAIL, calls, start_priced, until};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Waits until this number of completions of a test is in progress.
async fn running(test: &str, count: usize) {
    until(|| calls(test, |calls| calls.running) == count).await;
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// Changes sources to values of a test.
fn set_all(fixture: &Fixture, names: &[String], value: &str) {
    names.iter().for_each(|name| fixture.set(name, value));
}

async fn synced_without_objects() -> Fixture {
    let fixture = start_priced();
    fixture.complete_with(&[]);
    fixture.cache.wait_synced().await;
    fixture
}

#[tokio::test(start_paused = true)]
async fn sources_that_cannot_be_computed_do_not_stall_others() {
    let fixture = synced_without_objects().await;
    let [first, broken, last] = [("a", 16), ("b", 16), ("c", 8)].map(|(p, count)| names(p, count));
    set_all(&fixture, &first, &format!("stall/{SLOW}/1"));
    running("stall", 16).await;
    set_all(&fixture, &broken, &format!("stall/{BROKEN}/1"));
    tokio::time::sleep(SECOND / 2).await;
    set_all(&fixture, &last, "stall/ok/1");
    tokio::time::sleep(SECOND).await;
    let is_shown = |name: &String| fixture.price(name).is_some();
    assert!(first.iter().chain(&last).all(is_shown));
    assert!(!broken.iter().any(is_shown));
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns() {
    let fixture = synced_without_objects().await;
    set_all(&fixture, &names("n", 64), &format!("turns/{SLOW}/1"));
    running("turns", 16).await;
    let mut other = config_map("a", &[("value", "turns/ok/2")]);
    other.metadata.namespace = Some("other".to_owned());
    let key = Key::new(Some("other"), "a");
    fixture.config_maps.set(key.clone(), Some(other));
    // It has the second slot that becomes free, although 48 sources of another namespace wait.
    tokio::time::sleep(SECOND + SECOND / 2).await;
    assert!(fixture.cache.get(&key).is_some());
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(fixture.price("n63").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn sources_that_change_all_the_time_do_not_delay_others() {
    let fixture = synced_without_objects().await;
    let busy = names("busy", 16);
    set_all(&fixture, &busy, &format!("busy/{SLOW}/0"));
    running("busy", 16).await;
    fixture.set("z", "busy/ok/1");
    for round in 1..4 {
        set_all(&fixture, &busy, &format!("busy/{SLOW}/{round}"));
        tokio::time::sleep(SECOND / 2).await;
    }
    assert_eq!(fixture.price("z").as_deref(), Some("1"));
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(fixture.price("busy7").as_deref(), Some("3"));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_changes_and_fails_pauses() {
    let fixture = synced_without_objects().await;
    fixture.set("a", &format!("pauses/{SLOW_FAIL}/0"));
    tokio::time::sleep(SECOND / 2).await;
    for round in 1..60 {
        // The source changes in the middle of each completion.
        if calls("pauses", |calls| calls.running) == 1 {
            fixture.set("a", &format!("pauses/{SLOW_FAIL}/{round}"));
        }
        tokio::time::sleep(SECOND).await;
    }
    // The pauses take 1, 2, 4, 8, 16 and 32 seconds.
    assert_eq!(calls("pauses", |calls| calls.made.values().sum::<usize>()), 6);
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_not_published_under_the_uid_of_a_successor() {
    let fixture = synced_without_objects().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.set("a", &format!("successor/{SLOW}/1"));
    running("successor", 1).await;
    let mut successor = config_map("a", &[("value", "successor/ok/2")]);
    successor.metadata.uid = Some("another".to_owned());
    // The task does not see that the source did not exist for a moment.
    fixture.config_maps.set(key("a"), None);
    fixture.config_maps.set(key("a"), Some(successor));
    assert_eq!(fixture.next(&mut watch).await[0].1["price"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_destructor_frees_the_slot() {
    let fixture = synced_without_objects().await;
    let broken = names("a", 16);
    set_all(&fixture, &broken, &format!("destructor/{PANIC_IN_DROP}/1"));
    until(|| calls("destructor", |calls| calls.running) == 16).await;
    fixture.set("b", "destructor/ok/1");
    tokio::time::sleep(6 * SECOND).await;
    assert_eq!(fixture.price("b").as_deref(), Some("1"));
}

/// The rows of a ConfigMap, which are measurements. A completion takes a second.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Metered", namespaced)]
struct MeteredSpec {
    price: String,
}

impl Computed for Metered {
    type Source = ConfigMap;
    type Related = ();

    const OPTIONS: SourceOptions = SourceOptions::ALL.measured();
    const FAN_OUT: FanOut = FanOut::Several;
    const COMPLETION_TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));

    fn compute_all(source: &ConfigMap, (): &()) -> Vec<Self> {
        let name = source.metadata.name.as_deref().unwrap_or_default();
        let rows = source.data.iter().flatten();
        rows.map(|(row, price)| {
            Self::new(&format!("{row}.{name}"), MeteredSpec { price: price.clone() })
        })
        .collect()
    }

    fn source_name(name: &str) -> Option<String> {
        name.split_once('.').map(|(_, source)| source.to_owned())
    }

    async fn complete(object: Self) -> Result<Option<Self>, CompletionError> {
        tokio::time::sleep(SECOND).await;
        match &*object.spec.price {
            "fail" => Err("no price".into()),
            _ => Ok(Some(object)),
        }
    }
}

async fn metered() -> Fixture {
    let fixture = start_of::<Metered>(Metered::OPTIONS);
    fixture.complete_with(&[]);
    fixture.cache.wait_synced().await;
    fixture
}

/// Measurements are published at most every 15 seconds, also if their completions wait, repeat or fail.
#[tokio::test(start_paused = true)]
async fn completed_measurements_are_held_back() {
    let fixture = metered().await;
    let names = names("n", 20);
    let set = |name: &String, price: &str| {
        fixture.config_maps.set(key(name), Some(config_map(name, &[("row", price)])));
    };
    let all_are = |price: &str| {
        let price = Some(price.to_owned());
        names.iter().all(|name| fixture.price(&format!("row.{name}")) == price)
    };
    for price in ["1", "2"] {
        names.iter().for_each(|name| set(name, price));
        tokio::time::sleep(3 * SECOND).await;
        assert!(all_are(price), "{price}");
    }
    names.iter().for_each(|name| set(name, "fail"));
    tokio::time::sleep(SECOND / 2).await;
    names.iter().for_each(|name| set(name, "3"));
    tokio::time::sleep(6 * SECOND).await;
    assert!(all_are("2"));
    tokio::time::sleep(15 * SECOND).await;
    assert!(all_are("3"));
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_not_computed_any_more_are_deleted_before_a_completion() {
    let fixture = metered().await;
    let rows = [("cat", "1"), ("git", "1"), ("vim", "1")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &rows)));
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(fixture.price("vim.a").as_deref(), Some("1"));
    // All or none: the completion of `git` fails, so `cat` keeps its price, too.
    let rows = [("cat", "2"), ("git", "fail"), ("zsh", "2")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &rows)));
    tokio::time::sleep(60 * SECOND).await;
    let prices = ["cat.a", "git.a", "vim.a", "zsh.a"].map(|name| fixture.price(name));
    assert_eq!(prices, [Some("1".to_owned()), Some("1".to_owned()), None, None]);
}
