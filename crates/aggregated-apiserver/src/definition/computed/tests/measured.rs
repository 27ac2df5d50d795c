//! Tests of when measurements are published.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use super::*;
use crate::definition::LookupOptions;

struct Measured;

impl LookupOptions for Measured {
    const OPTIONS: SourceOptions = SourceOptions::ALL.measured();
}

/// The measurement of a ConfigMap, taken from the Secret of the same name.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Usage", namespaced)]
struct UsageSpec {
    value: String,
    used: i64,
}

/// The difference in usage that is worth an event.
const THRESHOLD: i64 = 10;

fn number(metadata: &ObjectMeta) -> i64 {
    let annotations = metadata.annotations.as_ref();
    annotations.and_then(|all| all.get("used")?.parse().ok()).unwrap_or_default()
}

impl Computed for Usage {
    type Source = ConfigMap;
    type Related = Lookup<Secret, Measured>;

    fn compute(source: &ConfigMap, secrets: &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let secret = secrets.get(source.metadata.namespace.as_deref(), name);
        let used = secret.map_or(0, |secret| number(&secret.metadata));
        let value = source.data.as_ref()?.get("value")?.clone();
        Some(Self::new(name, UsageSpec { value, used }))
    }

    fn is_worth_publishing(shown: &Self, computed: &Self) -> bool {
        assert_ne!(computed.spec.used, 500, "what the user wrote may panic");
        (shown.spec.used - computed.spec.used).abs() > THRESHOLD
    }
}

fn secret(name: &str, used: i64) -> Secret {
    let annotations = Some(BTreeMap::from([("used".to_owned(), used.to_string())]));
    Secret { metadata: ObjectMeta { annotations, ..metadata(name) }, ..Secret::default() }
}

struct View {
    config_maps: Arc<SourceInformer<ConfigMap>>,
    secrets: Arc<SourceInformer<Secret>>,
    cache: Arc<WatchCache>,
}

async fn start(names: &[&str]) -> View {
    let cluster = crate::cluster::Cluster::new(unreachable_client());
    let sources = Arc::new(cluster.sources(SourceStreams::default()));
    let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
    let cache = Arc::new(WatchCache::new(sequencer, WINDOW_LIMIT));
    let (config_maps, secrets) =
        (sources.open(SourceOptions::ALL, ""), sources.open(Measured::OPTIONS, ""));
    tokio::spawn(run_one::<Usage>(sources, Arc::clone(&cache)));
    for name in names {
        config_maps.set(key(name), Some(config_map(name, &[("value", "0")])));
    }
    config_maps.complete(&names.iter().map(|name| key(name)).collect());
    secrets.complete(&HashSet::new());
    cache.wait_synced().await;
    View { config_maps, secrets, cache }
}

impl View {
    fn shown(&self, name: &str) -> (String, i64) {
        let spec = self.cache.get(&key(name)).unwrap().object.to_tree()["spec"].clone();
        (spec["value"].as_str().unwrap().to_owned(), spec["used"].as_i64().unwrap())
    }

    async fn measure(&self, used: i64) {
        self.secrets.set(key("a"), Some(secret("a", used)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn small_measurement_changes_are_published_with_the_next_change_or_later() {
    let view = start(&["a"]).await;
    let shown = || view.shown("a").1;
    view.measure(5).await;
    assert_eq!(shown(), 0);
    tokio::time::sleep(Usage::MEASURED_AT_LATEST - Duration::from_secs(1)).await;
    assert_eq!(shown(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(shown(), 5);

    view.measure(7).await;
    view.config_maps.set(key("a"), Some(config_map("a", &[("value", "1")])));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(view.shown("a"), ("1".to_owned(), 7));

    // A measurement that returns to the published value is not held back any more.
    view.measure(9).await;
    view.measure(7).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    view.measure(8).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(shown(), 7);
}

#[tokio::test(start_paused = true)]
async fn large_measurement_changes_are_published_at_a_limited_rate() {
    let view = start(&["a"]).await;
    view.measure(100).await;
    assert_eq!(view.shown("a").1, 100);
    view.measure(200).await;
    view.measure(300).await;
    assert_eq!(view.shown("a").1, 100);
    tokio::time::sleep(Usage::MEASURED_AT_MOST_EVERY).await;
    assert_eq!(view.shown("a").1, 300);
    // A panic is worth an event.
    tokio::time::sleep(Usage::MEASURED_AT_MOST_EVERY).await;
    view.measure(500).await;
    assert_eq!(view.shown("a").1, 500);
}

/// After any sequence of measurements and changes, events keep their minimum distance, the published value stays near
/// the current one, and in the end both are equal.
#[tokio::test(start_paused = true)]
async fn measurements_are_published_at_a_limited_rate_and_eventually() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let view = start(&NAMES).await;
    let (_, mut watch) = view.cache.subscribe(Scope::All);
    let mut random = fastrand::Rng::with_seed(3);
    let (mut used, mut value) = (BTreeMap::new(), BTreeMap::new());
    let mut told: BTreeMap<String, Instant> = BTreeMap::new();
    let mut wanted_since: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut events = 0;
    for step in 0..4_000 {
        let name = random.choice(NAMES).unwrap();
        let is_of_source = random.u8(0..50) == 0;
        if is_of_source {
            value.insert(name, step.to_string());
            view.config_maps
                .set(key(name), Some(config_map(name, &[("value", &step.to_string())])));
        } else {
            let now: &mut i64 = used.entry(name).or_default();
            *now = (*now + random.i64(-8..9)).clamp(0, 400);
            view.secrets.set(key(name), Some(secret(name, *now)));
        }
        tokio::time::sleep(Duration::from_millis(random.u64(1..5_000))).await;
        while let Some(changes) = watch.next().now_or_never() {
            for change in changes.unwrap() {
                events += 1;
                let name = change.key().name().to_owned();
                let spec = |of: &Object| of.to_tree()["spec"].clone();
                let before = spec(&change.before().unwrap().object);
                let after = spec(&change.after().unwrap().object);
                assert_ne!(before, after, "an event without a change");
                if before["value"] != after["value"] {
                    continue;
                }
                let now = Instant::now();
                if let Some(last) = told.insert(name, now) {
                    // The test sees an event up to five seconds after it was published.
                    let least = Usage::MEASURED_AT_MOST_EVERY - Duration::from_secs(5);
                    assert!(now - last >= least, "{:?}", now - last);
                }
            }
        }
        for name in NAMES {
            let expected = value.get(name).map_or("0", String::as_str);
            let shown = view.shown(name);
            assert_eq!(shown.0, expected, "what is no measurement is told at once");
            if (used.get(name).copied().unwrap_or_default() - shown.1).abs() <= THRESHOLD {
                wanted_since.remove(name);
            } else {
                let since = *wanted_since.entry(name).or_insert_with(Instant::now);
                assert!(since.elapsed() <= Usage::MEASURED_AT_MOST_EVERY, "it is far from what is");
            }
        }
    }
    assert!(events > 500, "{events}");
    tokio::time::sleep(Usage::MEASURED_AT_LATEST + Duration::from_secs(1)).await;
    for name in NAMES {
        assert_eq!(view.shown(name).1, used[name]);
    }
}
