//! Farm pods and their owners of unknown kinds. Objects are added, changed, forbidden and deleted at random. At each
//! quiet moment, the farm pods are equal to those that are computed from scratch from all readable objects.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aggregated_apiserver::computed::{MetadataLookup, SourceType};
use aggregated_apiserver::{ApiServer, Computed, InProcess, Kinds, Lookup};
use axum::body::Body;
use farm_operator::FarmPod;
use fastrand::Rng;
use futures::FutureExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_server::{Events, FakeCluster, admin};

/// The possible owners of Pods: apiVersion, kind, list path, and whether the kind is namespaced. The program knows the
/// first two kinds, and the cluster does not serve the last one.
const KINDS: [(&str, &str, &str, bool); 7] = [
    ("apps/v1", "ReplicaSet", "/apis/apps/v1/replicasets", true),
    ("apps/v1", "Deployment", "/apis/apps/v1/deployments", true),
    ("argoproj.io/v1alpha1", "Rollout", "/apis/argoproj.io/v1alpha1/rollouts", true),
    ("farms.io/v1", "Herd", "/apis/farms.io/v1/herds", true),
    ("farms.io/v1beta1", "Herd", "/apis/farms.io/v1beta1/herds", true),
    ("farms.io/v1", "Land", "/apis/farms.io/v1/lands", false),
    ("nobody.io/v1", "Ghost", "/apis/nobody.io/v1/ghosts", true),
];
/// The kinds that are served at some times only.
const UNKNOWN: std::ops::Range<usize> = 2..6;
const PODS: &str = "/api/v1/pods";
/// The paths of other lookups, which have no objects.
const OTHERS: [&str; 8] = [
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/api/v1/nodes",
    "/api/v1/services",
    "/api/v1/events",
    "/api/v1/persistentvolumeclaims",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/metrics.k8s.io/v1beta1/pods",
];
/// The number of objects of a kind in a namespace.
const NAMES: u8 = 2;
const ROUNDS: usize = 300;

/// The state of a kind in the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Serving {
    Shown,
    Refused,
    Absent,
}

struct World {
    cluster: FakeCluster,
    server: InProcess,
    random: Rng,
    /// The objects, by path, then by namespace and name.
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    serving: [Serving; KINDS.len()],
    version: usize,
    watch: Events,
    /// The revision of the watch.
    revision: String,
    /// The farm pods that the client of the watch has received.
    seen: BTreeMap<String, Value>,
}

impl World {
    async fn start(seed: u64) -> Self {
        let cluster = FakeCluster::default();
        cluster.set_document("/api/v1", json!({"resources": []}));
        let known = KINDS.map(|(_, _, path, _)| path);
        for path in [PODS].into_iter().chain(OTHERS).chain(known) {
            cluster.set(path, Vec::new());
        }
        let serving = KINDS.map(|(_, kind, ..)| match kind {
            "Ghost" => Serving::Absent,
            _ => Serving::Shown,
        });
        say_what_is_served(&cluster, &serving);
        let kinds = Kinds::new().computed::<FarmPod>();
        let server = ApiServer::new("farm", kinds).in_process(cluster.client()).await.unwrap();
        server.wait_synced().await;
        let watch = watch(&server, "").await;
        Self {
            cluster,
            server,
            random: Rng::with_seed(seed),
            objects: BTreeMap::new(),
            serving,
            version: 1,
            watch,
            revision: String::new(),
            seen: BTreeMap::new(),
        }
    }

    /// A reference to an object that may exist now, or may have existed before.
    fn reference(&mut self) -> Value {
        let (api_version, kind, ..) = KINDS[self.random.usize(0..KINDS.len())];
        let name = self.random.u8(0..NAMES).to_string();
        let uid = self.uid(kind, &name);
        let controller = self.random.u8(0..8) > 0;
        json!({
            "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
            "controller": controller,
        })
    }

    /// The uid of an object, or sometimes of another object that had the same name at another time.
    fn uid(&mut self, kind: &str, name: &str) -> String {
        format!("{kind}-{name}-{}", self.random.u8(0..8) / 7)
    }

    fn metadata(&mut self, name: &str, namespace: Option<&str>, uid: &str) -> Value {
        self.version += 1;
        let mut metadata =
            json!({"name": name, "uid": uid, "resourceVersion": self.version.to_string()});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        if self.random.u8(0..6) > 0 {
            metadata["ownerReferences"] = json!([self.reference()]);
        }
        if self.random.u8(0..3) == 0 {
            let release = format!("r-{}", self.random.u8(0..3));
            metadata["annotations"] = json!({"meta.helm.sh/release-name": release});
        }
        metadata
    }

    /// Creates, replaces or deletes an object.
    fn change(&mut self, path: &'static str, object: Result<Value, String>) {
        let key = |object: &Value| {
            let text = |of: &str| object["metadata"][of].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        };
        let all = self.objects.entry(path).or_default();
        let (event, object) = match object {
            Ok(object) => match all.insert(key(&object), object.clone()) {
                None => ("ADDED", object),
                Some(_) => ("MODIFIED", object),
            },
            Err(key) => match all.remove(&key) {
                None => return,
                Some(gone) => ("DELETED", gone),
            },
        };
        self.cluster.set(path, all.values().cloned().collect());
        self.cluster.tell(path, event, &object);
    }

    fn change_pod(&mut self) {
        let name = format!("p-{}", self.random.u8(0..4));
        let namespace = format!("n-{}", self.random.u8(0..2));
        if self.random.u8(0..4) == 0 {
            return self.change(PODS, Err(format!("{namespace}/{name}")));
        }
        let metadata = self.metadata(&name, Some(&namespace), &name);
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        self.change(PODS, Ok(json!({"metadata": metadata, "spec": spec})));
    }

    fn change_owner(&mut self) {
        // Objects of the kind that the cluster does not serve are never created.
        let (_, kind, path, is_namespaced) = KINDS[self.random.usize(0..UNKNOWN.end)];
        let name = self.random.u8(0..NAMES).to_string();
        let namespace = is_namespaced.then(|| format!("n-{}", self.random.u8(0..2)));
        if self.random.u8(0..8) == 0 {
            let namespace = namespace.unwrap_or_default();
            return self.change(path, Err(format!("{namespace}/{name}")));
        }
        let uid = self.uid(kind, &name);
        let metadata = self.metadata(&name, namespace.as_deref(), &uid);
        self.change(path, Ok(json!({"metadata": metadata})));
    }

    /// Makes a kind that the program does not know served, forbidden or absent.
    fn change_serving(&mut self) {
        let place = self.random.usize(UNKNOWN);
        let path = KINDS[place].2;
        let serving = [Serving::Shown, Serving::Shown, Serving::Refused, Serving::Absent];
        let serving = serving[self.random.usize(0..serving.len())];
        if self.serving[place] == serving {
            return;
        }
        self.serving[place] = serving;
        match serving {
            Serving::Shown => self.cluster.allow(path),
            Serving::Refused => self.cluster.refuse(path, StatusCode::FORBIDDEN),
            Serving::Absent => self.cluster.refuse(path, StatusCode::NOT_FOUND),
        }
        say_what_is_served(&self.cluster, &self.serving);
    }

    /// Waits until nothing changes any more. The discovery of a kind that was not served is retried after ten minutes
    /// at the latest.
    async fn rest(&mut self) {
        for _ in 0..20 {
            let known = KINDS.map(|(_, _, path, _)| path);
            for path in [PODS].into_iter().chain(OTHERS).chain(known) {
                let bookmark = json!({"metadata": {"resourceVersion": self.version.to_string()}});
                self.cluster.tell(path, "BOOKMARK", &bookmark);
            }
            tokio::time::sleep(Duration::from_secs(45)).await;
        }
        while let Some(event) = self.watch.next().now_or_never() {
            match event {
                Some(event) => self.apply(&event),
                // A watch ends after some time.
                None => self.watch = watch(&self.server, &self.revision).await,
            }
        }
    }

    /// Applies a received event.
    fn apply(&mut self, event: &Value) {
        let revision = &event["object"]["metadata"]["resourceVersion"];
        self.revision = revision.as_str().unwrap().to_owned();
        if event["type"] == "BOOKMARK" {
            return;
        }
        let (key, status) = key_and_status(&event["object"]);
        let before = match event["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => self.seen.insert(key, status.clone()),
            "DELETED" => self.seen.remove(&key),
            other => panic!("{other}: {event}"),
        };
        let is_news = before.as_ref() != Some(&status) || event["type"] == "DELETED";
        assert!(is_news, "an event without a change: {event}");
    }

    /// The listed farm pods. The response must have no warnings.
    async fn shown(&self) -> BTreeMap<String, Value> {
        let request = Request::get(FARM_PODS).body(Body::empty()).unwrap();
        let response = self.server.respond(admin(), request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap();
        list["items"].as_array().unwrap().iter().map(key_and_status).collect()
    }

    /// The owner of an object, both as `Kind/name`.
    fn owner_of(&self, owned: &str, namespace: &str) -> Option<String> {
        let (kind, name) = owned.split_once('/')?;
        let mut kinds = KINDS.iter().filter(|(_, one, ..)| *one == kind);
        let found = kinds.find_map(|(_, _, path, _)| {
            let all = self.objects.get(path)?;
            all.get(&format!("{namespace}/{name}")).or_else(|| all.get(&format!("/{name}")))
        });
        let owner = found?.pointer("/metadata/ownerReferences/0")?;
        Some(format!("{}/{}", owner["kind"].as_str()?, owner["name"].as_str()?))
    }

    /// The farm pods that are computed from scratch from all readable objects.
    fn expected(&self) -> BTreeMap<String, Value> {
        let of = |path: &str| self.objects.get(path).into_iter().flat_map(BTreeMap::values);
        let shown = UNKNOWN.filter(|place| self.serving[*place] == Serving::Shown);
        let others = shown.flat_map(|place| {
            let (api_version, kind, path, _) = KINDS[place];
            of(path).map(move |object| {
                let mut object = object.clone();
                object["apiVersion"] = api_version.into();
                object["kind"] = kind.into();
                object
            })
        });
        let others = MetadataLookup::from_objects(others.collect::<Vec<_>>()).unwrap();
        let usual = (
            lookup(of(KINDS[0].2)),
            Lookup::from_objects([]),
            lookup(of(KINDS[1].2)),
            Lookup::from_objects([]),
        );
        let budgets = (Lookup::from_objects([]), Lookup::from_objects([]));
        let related: <FarmPod as Computed>::Related = (
            (usual, others),
            Lookup::from_objects([]),
            Lookup::from_objects([]),
            Lookup::from_objects([]),
            Lookup::from_objects([]),
            (budgets, Lookup::from_objects([])),
        );
        let computed = of(PODS).map(|pod| {
            let pod = serde_json::from_value(pod.clone()).unwrap();
            let mut farm_pod = FarmPod::compute(&pod, &related).unwrap();
            farm_pod.metadata.namespace = pod.metadata.namespace.as_deref().map(str::to_owned);
            key_and_status(&serde_json::to_value(farm_pod).unwrap())
        });
        computed.collect()
    }
}

const FARM_PODS: &str = "/apis/farm.example.com/v1alpha/farmpods";

/// Watches all farm pods after a revision. An empty revision starts with the existing ones.
async fn watch(server: &InProcess, revision: &str) -> Events {
    let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={revision}");
    let request = Request::get(format!("{FARM_PODS}?{query}")).body(Body::empty()).unwrap();
    Events::of(server.respond(admin(), request).await.into_body())
}

fn lookup<'a, K: SourceType>(objects: impl Iterator<Item = &'a Value>) -> Lookup<K> {
    Lookup::from_objects(objects.map(|object| serde_json::from_value(object.clone()).unwrap()))
}

fn key_and_status(farm_pod: &Value) -> (String, Value) {
    let text = |of: &str| farm_pod["metadata"][of].as_str().unwrap().to_owned();
    let key = format!("{}/{}", text("namespace"), text("name"));
    (key, json!([farm_pod["metadata"]["labels"], farm_pod["status"]]))
}

/// Sets the discovery documents of the served kinds.
fn say_what_is_served(cluster: &FakeCluster, serving: &[Serving; KINDS.len()]) {
    let served = KINDS.iter().zip(serving).filter(|(_, serving)| **serving != Serving::Absent);
    let mut versions: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (&(api_version, kind, path, namespaced), _) in served {
        let name = path.rsplit('/').next();
        let verbs = ["get", "list", "watch"];
        let resource =
            json!({"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs});
        versions.entry(api_version).or_default().push(resource);
    }
    let groups: BTreeSet<&str> =
        versions.keys().map(|version| version.split('/').next().unwrap()).collect();
    let groups = groups.into_iter().map(|group| {
        let of_group = versions.keys().filter(|version| version.split('/').next() == Some(group));
        let of_group = of_group.map(|version| json!({"groupVersion": version}));
        json!({"name": group, "versions": of_group.collect::<Vec<_>>()})
    });
    cluster.set_document("/apis", json!({"groups": groups.collect::<Vec<_>>()}));
    for (api_version, resources) in versions {
        cluster.set_document(&format!("/apis/{api_version}"), json!({"resources": resources}));
    }
}

#[tokio::test(start_paused = true)]
async fn farm_pods_equal_a_full_recomputation_after_random_changes_of_owners() {
    let seed = std::env::var("SEED").map_or(18, |seed| seed.parse().unwrap());
    let mut world = World::start(seed).await;
    let (mut longest, mut circles, mut above_unknown) = (0, 0, 0);
    for round in 0..ROUNDS {
        for _ in 0..world.random.usize(1..12) {
            match world.random.u8(0..12) {
                0..4 => world.change_pod(),
                4..11 => world.change_owner(),
                _ => world.change_serving(),
            }
            if world.random.u8(0..4) == 0 {
                // The server reads and computes in between.
                tokio::time::sleep(Duration::from_secs(world.random.u64(0..100))).await;
            }
        }
        world.rest().await;
        let (shown, expected) = (world.shown().await, world.expected());
        assert_eq!(shown, expected, "round {round}");
        assert_eq!(world.seen, shown, "who watches sees what is listed, round {round}");
        for (key, shown) in &shown {
            let namespace = key.split('/').next().unwrap();
            let names = shown[1]["owners"].as_array().into_iter().flatten();
            let names: Vec<&str> = names.filter_map(Value::as_str).collect();
            longest = longest.max(names.len());
            let next = names.last().and_then(|top| world.owner_of(top, namespace));
            circles += usize::from(next.is_some_and(|next| names.contains(&&*next)));
            let known = ["ReplicaSet/", "Deployment/"];
            let is_unknown = |name: &&&str| !known.iter().any(|known| name.starts_with(known));
            above_unknown += usize::from(names.iter().filter(is_unknown).count() > 1);
        }
    }
    // The random histories must not be too simple.
    assert!(
        longest > 3 && circles > 50 && above_unknown > 50,
        "{longest} {circles} {above_unknown}"
    );
}
