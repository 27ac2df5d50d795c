//! A random model. After any sequence of changes, the published objects equal those that are computed from scratch, and
//! only objects that a change affects are computed again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::core::{Expression, Selector};

use super::*;
use crate::definition::lookup::{ComputationNumber, SharedLookups};
use crate::watch_cache::Subscription;

/// The Secrets and Services that a ConfigMap asks for.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Answer", namespaced)]
struct AnswerSpec {
    version: String,
    found: Vec<String>,
}

thread_local! {
    /// The sources whose computation has returned an object.
    static COMPUTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn data<'a>(map: &'a Option<BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    map.as_ref()?.get(key).map(String::as_str)
}

fn annotation(metadata: &ObjectMeta, key: &str) -> Option<String> {
    data(&metadata.annotations, key).map(str::to_owned)
}

/// An index.
fn color(secret: &Secret) -> Option<String> {
    annotation(&secret.metadata, "color")
}

/// An index with several values.
fn shapes(secret: &Secret) -> Vec<String> {
    let shapes = annotation(&secret.metadata, "shapes").unwrap_or_default();
    shapes.split(' ').map(str::to_owned).collect()
}

/// A measure whose result differs after each change.
fn weight(secret: &Secret) -> (u64, u32) {
    let version = annotation(&secret.metadata, "version").unwrap_or_default();
    (version.parse().unwrap_or_default(), 1)
}

/// A measure whose result seldom differs.
fn colors(secret: &Secret) -> BTreeMap<String, i64> {
    color(secret).into_iter().map(|color| (color, 1)).collect()
}

fn selector(service: &Service) -> Option<Selector> {
    Some(service.spec.as_ref()?.selector.clone()?.into_iter().collect())
}

impl Computed for Answer {
    type Source = ConfigMap;
    type Related = (Lookup<Secret>, Lookup<Service>);

    fn compute(source: &ConfigMap, (secrets, services): &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let ask = |key: &str| data(&source.data, key);
        let namespace = ask("namespace");
        let mut found = vec![secrets.is_available().to_string()];
        let mut note = |metadata: &ObjectMeta| {
            found.push(annotation(metadata, "version").unwrap_or_default());
        };
        let one = ask("name").and_then(|name| secrets.get(Some("n-0"), name));
        one.iter().for_each(|secret| note(&secret.metadata));
        if ask("all").is_some() {
            secrets.list(namespace).iter().for_each(|secret| note(&secret.metadata));
        }
        if let Some(wanted) = ask("color") {
            let found = secrets.find_by(color, namespace, wanted);
            found.iter().for_each(|secret| note(&secret.metadata));
        }
        if let Some(wanted) = ask("shape") {
            let found = secrets.find_by(shapes, namespace, wanted);
            found.iter().for_each(|secret| note(&secret.metadata));
        }
        if let Some(wanted) = ask("sum") {
            found.push(format!(
                "{:?} {} {:?}",
                secrets.sum_by(shapes, weight, namespace, wanted),
                secrets.count_by(color, namespace, wanted),
                secrets.sum_by(color, colors, namespace, wanted),
            ));
        }
        let mut note = |metadata: &ObjectMeta| {
            found.push(annotation(metadata, "version").unwrap_or_default());
        };
        if let Some(wanted) = ask("app") {
            let term = match ask("how") {
                Some("not") => Expression::NotEqual("app".to_owned(), wanted.to_owned()),
                Some("any") => Expression::Exists("app".to_owned()),
                _ => Expression::Equal("app".to_owned(), wanted.to_owned()),
            };
            let found = secrets.find_matching(namespace, term.into());
            found.iter().for_each(|secret| note(&secret.metadata));
        }
        let labels = source.metadata.labels.clone().unwrap_or_default();
        let selecting = services.find_selecting(selector, namespace, &labels);
        selecting.iter().for_each(|service| note(&service.metadata));
        let version = annotation(&source.metadata, "version").unwrap_or_default();
        let mut answer = Self::new(name, AnswerSpec { version, found });
        answer.metadata.namespace = source.metadata.namespace.clone();
        if ask("none").is_some() {
            return None;
        }
        COMPUTED.with_borrow_mut(|computed| computed.push(name.to_owned()));
        Some(answer)
    }
}

/// All objects of the simulated cluster.
#[derive(Default)]
struct Cluster {
    config_maps: BTreeMap<Key, ConfigMap>,
    secrets: BTreeMap<Key, Secret>,
    services: BTreeMap<Key, Service>,
    version: u64,
    /// Whether Secrets cannot be read.
    secrets_are_away: bool,
}

impl Cluster {
    fn metadata(&mut self, key: &Key, random: &mut fastrand::Rng) -> ObjectMeta {
        self.version += 1;
        let some = |random: &mut fastrand::Rng| random.u8(0..3).to_string();
        let mut labels = BTreeMap::new();
        for label in ["app", "tier"] {
            if random.bool() {
                labels.insert(label.to_owned(), some(random));
            }
        }
        let mut annotations = BTreeMap::from([("version".to_owned(), self.version.to_string())]);
        annotations.insert("color".to_owned(), some(random));
        annotations.insert("shapes".to_owned(), format!("{} {}", some(random), some(random)));
        ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(str::to_owned),
            uid: Some(format!("uid-{key}-{}", random.u8(0..2))),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }
    }

    fn config_map(&mut self, key: &Key, random: &mut fastrand::Rng) -> ConfigMap {
        let mut asked = BTreeMap::new();
        for query in ["name", "all", "color", "shape", "sum", "app", "none"] {
            if random.u8(0..4) == 0 {
                asked.insert(query.to_owned(), random.u8(0..3).to_string());
            }
        }
        if let Some(namespace) =
            random.choice([None, Some("n-0"), Some("n-1"), Some("n-2")]).unwrap()
        {
            asked.insert("namespace".to_owned(), namespace.to_owned());
        }
        let how = random.choice(["not", "any", "equal"]).unwrap();
        asked.insert("how".to_owned(), how.to_owned());
        let metadata = self.metadata(key, random);
        ConfigMap { metadata, data: Some(asked), ..ConfigMap::default() }
    }

    fn secret(&mut self, key: &Key, random: &mut fastrand::Rng) -> Secret {
        Secret { metadata: self.metadata(key, random), ..Secret::default() }
    }

    fn service(&mut self, key: &Key, random: &mut fastrand::Rng) -> Service {
        let mut service = Service { metadata: self.metadata(key, random), ..Service::default() };
        if random.u8(0..4) > 0 {
            let selector = service.metadata.labels.clone();
            service.spec =
                Some(k8s_openapi::api::core::v1::ServiceSpec { selector, ..Default::default() });
        }
        service
    }

    /// The expected objects, computed from scratch.
    fn expected(&self) -> BTreeMap<Key, Value> {
        let secrets = match self.secrets_are_away {
            true => Lookup::unavailable(),
            false => Lookup::from_objects(self.secrets.values().cloned()),
        };
        let services = Lookup::from_objects(self.services.values().cloned());
        let related = (secrets, services);
        let computed = self.config_maps.iter().filter_map(|(key, config_map)| {
            let answer = Answer::compute(config_map, &related)?;
            Some((key.clone(), serde_json::to_value(answer.spec).unwrap()))
        });
        let expected = computed.collect();
        COMPUTED.take();
        expected
    }
}

/// The computed kind, and a client that watches it.
struct Watched {
    computation: Computation<Only<Answer>>,
    config_maps: Arc<SourceInformer<ConfigMap>>,
    secrets: Arc<SourceInformer<Secret>>,
    services: Arc<SourceInformer<Service>>,
    cache: Arc<WatchCache>,
    watch: Subscription,
    seen: BTreeMap<Key, Value>,
}

impl Watched {
    fn start() -> Self {
        let cluster = crate::cluster::Cluster::new(unreachable_client());
        let sources = cluster.sources(SourceStreams::default());
        let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::now(), 7));
        let cache = Arc::new(WatchCache::new(sequencer, WINDOW_LIMIT));
        let (_, watch) = cache.subscribe(Scope::All);
        let (notify, shared_lookups) = (Arc::default(), SharedLookups::default());
        let computation = ComputationNumber::default();
        let context = LookupContext {
            sources: &sources,
            notify: &notify,
            computation,
            shared_lookups: &shared_lookups,
        };
        let place = (Vec::new(), false);
        let computation =
            Computation::<Only<Answer>>::new(&context, (Arc::clone(&cache), Arc::default()), place);
        Self {
            computation,
            config_maps: sources.open(SourceOptions::ALL, ""),
            secrets: sources.open(SourceOptions::ALL, ""),
            services: sources.open(SourceOptions::ALL, ""),
            cache,
            watch,
            seen: BTreeMap::new(),
        }
    }

    /// Runs all pending computations. Returns the number of computations and the number of events.
    fn quiet(&mut self) -> (usize, usize) {
        loop {
            let (due, _) = self.computation.take_invalidated();
            if due.changed.is_empty() {
                break;
            }
            due.changed.iter().for_each(|key| _ = self.computation.update(key, false));
        }
        let mut told = 0;
        while let Some(changes) = self.watch.next().now_or_never() {
            for change in changes.unwrap() {
                told += 1;
                let spec = |of: &Object| of.to_tree()["spec"].clone();
                let before = change.before().map(|before| spec(&before.object));
                assert_eq!(before.as_ref(), self.seen.get(change.key()), "{}", change.key());
                match change.after() {
                    Some(after) => self.seen.insert(change.key().clone(), spec(&after.object)),
                    None => self.seen.remove(change.key()),
                };
            }
        }
        (COMPUTED.take().len(), told)
    }

    fn check(&self, cluster: &Cluster) {
        let shown = self.cache.snapshot();
        let shown: BTreeMap<Key, Value> = shown
            .from(&Scope::All, None)
            .map(|shown| (shown.object.key().clone(), shown.object.to_tree()["spec"].clone()))
            .collect();
        assert_eq!(shown, cluster.expected());
        assert_eq!(self.seen, shown, "who watches sees what is listed");
    }
}

fn random_key(random: &mut fastrand::Rng) -> Key {
    Key::new(Some(&format!("n-{}", random.u8(0..3))), &random.u8(0..4).to_string())
}

/// Interrupts or restores reading the Secrets: the cluster rejects reads, or the objects exceed the memory limit.
async fn break_or_mend(cluster: &mut Cluster, view: &Watched, random: &mut fastrand::Rng) {
    let present = cluster.secrets.keys().cloned().collect();
    match random.u8(0..5) {
        0 => {
            view.secrets.exceed("too many".to_owned());
            cluster.secrets_are_away = true;
        }
        1 => {
            // The last known objects are used until the grace period ends.
            view.secrets.set_test_failure(Some(("no right", true)));
        }
        2 => {
            view.secrets.set_test_failure(Some(("no right", true)));
            tokio::time::advance(lookup::GRACE).await;
            cluster.secrets_are_away = true;
        }
        3 => view.secrets.set_test_failure(Some(("no connection", false))),
        _ => {
            // No object was stored while the limit was exceeded.
            for (key, secret) in &cluster.secrets {
                view.secrets.set(key.clone(), Some(secret.clone()));
            }
            view.secrets.complete(&present);
            cluster.secrets_are_away = false;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn incremental_computation_equals_a_full_recomputation() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut cluster = Cluster::default();
    let mut view = Watched::start();
    view.config_maps.complete(&HashSet::new());
    view.secrets.complete(&HashSet::new());
    view.services.complete(&HashSet::new());
    for _ in 0..3_000 {
        let (mut of_sources, mut changes) = (false, 0);
        for _ in 0..random.u8(1..4) {
            let key = random_key(&mut random);
            let is_there = random.u8(0..4) > 0;
            changes += 1;
            match random.u8(0..11) {
                0..3 => {
                    of_sources = true;
                    let object = is_there.then(|| cluster.config_map(&key, &mut random));
                    view.config_maps.set(key.clone(), object.clone());
                    set(&mut cluster.config_maps, key, object);
                }
                3..7 => {
                    let object = is_there.then(|| cluster.secret(&key, &mut random));
                    view.secrets.set(key.clone(), object.clone());
                    set(&mut cluster.secrets, key, object);
                }
                7..9 => {
                    let object = is_there.then(|| cluster.service(&key, &mut random));
                    view.services.set(key.clone(), object.clone());
                    set(&mut cluster.services, key, object);
                }
                9 => {
                    changes += 1;
                    break_or_mend(&mut cluster, &view, &mut random).await;
                }
                _ if cluster.secrets_are_away => {}
                _ => {
                    // The cluster lists again, and some objects are missing.
                    cluster.secrets.retain(|_, _| random.u8(0..4) > 0);
                    view.secrets.complete(&cluster.secrets.keys().cloned().collect());
                    changes += 1;
                }
            }
            if random.bool() {
                // Some objects are computed now, and others change in the meantime.
                break;
            }
        }
        let (computed, told) = view.quiet();
        view.check(&cluster);
        // Each object contains the versions of its dependencies, so an object that was affected has changed.
        if !of_sources && changes == 1 {
            assert_eq!(computed, told, "something was computed that no change has touched");
        }
    }
    for key in std::mem::take(&mut cluster.config_maps).into_keys() {
        view.config_maps.set(key, None);
    }
    view.quiet();
    view.check(&cluster);
    let lookups = view.computation.related.lookups().into_iter();
    assert_eq!(lookups.map(AnyLookup::queries).sum::<usize>(), 0, "queries are forgotten");
}

fn set<T>(all: &mut BTreeMap<Key, T>, key: Key, object: Option<T>) {
    match object {
        Some(object) => all.insert(key, object),
        None => all.remove(&key),
    };
}
