//! Fields that are computed from lookups are visible only with permission to read the looked-up objects, in every kind
//! of response.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::{
    ApiServer, Computed, FieldPermissions, InProcess, Kinds, Lookup, PrinterColumns, User,
};
use axum::body::Body;
use base64::Engine;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Node, Secret, Service};
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::{Events, FakeCluster};

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const SERVICES: &str = "/api/v1/services";
const ENDPOINTS: &str = "/api/v1/endpoints";
const NODES: &str = "/api/v1/nodes";

/// A ConfigMap joined with other objects.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Sight",
    namespaced,
    selectable = ".spec.secret",
    selectable = ".spec.node",
    printcolumn(name = "Secret", type_ = "string", json_path = ".spec.secret"),
    printcolumn(name = "All", type_ = "string", json_path = ".spec.node")
)]
struct SightSpec {
    /// Computed from a Secret in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    /// Computed from a Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Not protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Part {
    name: String,
    /// Computed from Services in all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
}

impl Computed for Sight {
    type Source = ConfigMap;
    type Related = (
        Lookup<PartialObjectMeta<Secret>>,
        Lookup<PartialObjectMeta<Service>>,
        Lookup<PartialObjectMeta<Node>>,
        Lookup<PartialObjectMeta<Endpoints>>,
    );

    fn compute(source: &ConfigMap, related: &Self::Related) -> Option<Self> {
        let (secrets, services, nodes, endpoints) = related;
        let name = source.metadata.name.as_deref()?;
        let namespace = source.metadata.namespace.as_deref();
        let told = |metadata: &ObjectMeta| metadata.annotations.as_ref()?.get("told").cloned();
        let service = services.list(None).first().and_then(|service| told(&service.metadata));
        let mut sight = Self::new(
            name,
            SightSpec {
                secret: secrets.get(namespace, name).and_then(|one| told(&one.metadata)),
                parts: vec![Part { name: "a".to_owned(), service }],
                node: nodes.get(None, name).and_then(|one| told(&one.metadata)),
                endpoints: endpoints.get(namespace, name).and_then(|one| told(&one.metadata)),
            },
        );
        let node = sight.spec.node.clone();
        sight.metadata.labels = node.map(|node| [("node".to_owned(), node)].into());
        Some(sight)
    }

    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
            .protects_in_namespace::<PartialObjectMeta<Secret>>(["spec.secret"])
            .protects::<PartialObjectMeta<Service>>(["spec.parts[*].service"])
            .protects::<PartialObjectMeta<Node>>(["spec.node", "metadata.labels"])
            .shows::<PartialObjectMeta<Endpoints>>(["spec.endpoints"])
    }

    fn printer_columns() -> PrinterColumns<Self> {
        PrinterColumns::new()
            .cell("All", |sight: &Self, _| serde_json::to_string(&sight.spec).unwrap())
    }
}

/// The plurals of the protected types.
const PROTECTED: [&str; 3] = ["secrets", "services", "nodes"];

/// The permissions of users: user name, plural and namespace; the namespace "" means all.
type Rights = Arc<Mutex<BTreeSet<(String, &'static str, &'static str)>>>;

struct Stage {
    cluster: FakeCluster,
    server: InProcess,
    rights: Rights,
    /// The requests that the cluster received, by verb, plural and namespace.
    asked: Arc<Mutex<Vec<String>>>,
}

fn named(name: &str, told: &str) -> Value {
    let metadata = json!({
        "namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
        "annotations": {"told": told},
    });
    json!({"metadata": metadata})
}

fn cluster_scoped(name: &str, told: &str) -> Value {
    let mut object = named(name, told);
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    object
}

impl Stage {
    async fn new() -> Self {
        let cluster = FakeCluster::default();
        cluster.set(CONFIG_MAPS, vec![named("a", ""), named("b", "")]);
        cluster.set(SECRETS, vec![named("a", "s")]);
        cluster.set(SERVICES, vec![named("web", "v")]);
        cluster.set(NODES, vec![cluster_scoped("a", "m")]);
        cluster.set(ENDPOINTS, vec![named("a", "e")]);
        let rights = Rights::default();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (known, noted) = (Arc::clone(&rights), Arc::clone(&asked));
        cluster.authorize_by(move |spec| {
            let attributes = &spec["resourceAttributes"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let [verb, resource, namespace] =
                ["verb", "resource", "namespace"].map(|of| text(&attributes[of]));
            let user = text(&spec["user"]);
            noted.lock().unwrap().push(format!("{verb} {resource} {namespace}"));
            assert!(attributes["name"].is_null() || !PROTECTED.contains(&&*resource));
            if user == "unknown" && resource == "secrets" {
                return None;
            }
            if !PROTECTED.contains(&resource.as_str()) {
                return Some(user != "stranger" || resource != "configmaps");
            }
            // A permission applies to all verbs or to one verb.
            let of_verb = format!("{user}/{verb}");
            let has = |place: &str| {
                known.lock().unwrap().iter().any(|(name, plural, of)| {
                    (*plural, *of) == (&*resource, place) && [&user, &of_verb].contains(&name)
                })
            };
            Some(has("") || has(&namespace))
        });
        let kinds = Kinds::new().computed::<Sight>();
        let server = ApiServer::new("sights", kinds).in_process(cluster.client()).await.unwrap();
        server.wait_synced().await;
        Self { cluster, server, rights, asked }
    }

    fn permit(&self, user: &str, resource: &'static str, namespace: &'static str) {
        self.rights.lock().unwrap().insert((user.to_owned(), resource, namespace));
    }

    fn forbid(&self, user: &str, resource: &'static str, namespace: &'static str) {
        self.rights.lock().unwrap().remove(&(user.to_owned(), resource, namespace));
    }

    async fn ask(&self, user: &str, path: &str, accept: &str) -> (StatusCode, Vec<String>, String) {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = self.server.respond(self::user(user), request).await;
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, warnings, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, user: &str, path: &str) -> Value {
        let (status, _, body) = self.ask(user, path, "application/json").await;
        assert_eq!(status, StatusCode::OK, "{user} {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn watch(&self, user: &str, path: &str, accept: &str) -> Events {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = self.server.respond(self::user(user), request).await;
        assert_eq!(response.status(), StatusCode::OK, "{user} {path}");
        Events::of(response.into_body())
    }
}

/// A user with so much user info that its authorization results are not cached. The cache uses the clock of the
/// machine, which a test cannot advance.
fn user(name: &str) -> User {
    if name == "admin" {
        return test_server::admin();
    }
    if name == "remembered" {
        return User { name: name.to_owned(), ..User::default() };
    }
    let groups = vec!["x".repeat(10_000)];
    User { name: name.to_owned(), groups, ..User::default() }
}

const SIGHTS: &str = "/apis/example.com/v1/namespaces/n/sights";
const ALL_SIGHTS: &str = "/apis/example.com/v1/sights";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA_OF_ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The spec of `a` that is visible with these permissions.
fn expected(has: [bool; 3], told: [&str; 3]) -> Value {
    let mut spec = json!({"parts": [{"name": "a"}], "endpoints": "e"});
    for (place, path) in [(0, "/secret"), (1, "/parts/0/service"), (2, "/node")] {
        if has[place] {
            let (parent, name) = path.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[name] = told[place].into();
        }
    }
    spec
}

/// All combinations of permissions, each with a user.
fn combinations() -> impl Iterator<Item = (String, [bool; 3])> {
    (0..8)
        .map(|bits: usize| (format!("user-{bits}"), [0, 1, 2].map(|place| bits >> place & 1 == 1)))
}

fn permit(stage: &Stage, user: &str, has: [bool; 3]) {
    for (place, resource) in PROTECTED.into_iter().enumerate() {
        // Secrets are looked up in one namespace, the other types in all namespaces.
        let namespace = if resource == "secrets" { "n" } else { "" };
        if has[place] {
            stage.permit(user, resource, namespace);
        }
    }
}

const TOLD: [&str; 3] = ["s", "v", "m"];

#[tokio::test]
async fn responses_contain_only_fields_that_the_user_may_read() {
    let stage = Stage::new().await;
    for (user, has) in combinations() {
        permit(&stage, &user, has);
        let expected = expected(has, TOLD);
        let what = |at: &str| format!("{user} {has:?} {at}");
        // One object, a list, pages.
        let (_, warnings, one) = stage.ask(&user, &format!("{SIGHTS}/a"), "application/json").await;
        let one: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(one["spec"], expected, "{}", what("get"));
        let label = if has[2] { json!({"node": "m"}) } else { Value::Null };
        assert_eq!(one["metadata"]["labels"], label, "{}", what("labels"));
        assert_eq!(warnings.len(), has.iter().filter(|has| !**has).count(), "{warnings:?}");
        if !has[0] {
            let said = format!(
                "299 - \"User \\\"{user}\\\" cannot get resource \\\"secrets\\\" in API group \\\"\\\" in the namespace \\\"n\\\": what that would add is left out\""
            );
            assert_eq!(warnings[0], said);
        }
        let list = stage.get(&user, SIGHTS).await;
        assert_eq!(list["items"][0]["spec"], expected, "{}", what("list"));
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        let page = stage.get(&user, &format!("{SIGHTS}?limit=1")).await;
        assert_eq!(page["items"][0]["spec"], expected, "{}", what("page"));
        assert_eq!(page["metadata"]["remainingItemCount"], 1);
        let token = page["metadata"]["continue"].as_str().unwrap();
        let page = stage.get(&user, &format!("{SIGHTS}?limit=1&continue={token}")).await;
        assert_eq!(page["items"][0]["metadata"]["name"], "b", "{}", what("second page"));
        // A permission in one namespace is not sufficient for a list of all namespaces.
        let everywhere = stage.get(&user, ALL_SIGHTS).await;
        let in_all = self::expected([false, has[1], has[2]], TOLD);
        assert_eq!(everywhere["items"][0]["spec"], in_all, "{}", what("everywhere"));
        // Tables and metadata.
        let (_, _, table) = stage.ask(&user, SIGHTS, TABLE).await;
        let table: Value = serde_json::from_str(&table).unwrap();
        let cells = &table["rows"][0]["cells"];
        assert_eq!(cells[1], if has[0] { json!("s") } else { Value::Null }, "{}", what("cell"));
        let of_code: Value = serde_json::from_str(cells[2].as_str().unwrap()).unwrap();
        assert_eq!(of_code, expected, "{}", what("cell of code"));
        let whole = format!("{SIGHTS}?includeObject=Object");
        let (_, _, table) = stage.ask(&user, &whole, TABLE).await;
        let table: Value = serde_json::from_str(&table).unwrap();
        assert_eq!(table["rows"][0]["object"]["spec"], expected, "{}", what("object of a row"));
        assert_eq!(table["rows"][0]["object"]["metadata"]["labels"], label);
        let (_, _, metadata) = stage.ask(&user, SIGHTS, METADATA).await;
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        assert_eq!(metadata["items"][0]["metadata"]["labels"], label, "{}", what("metadata"));
        let (_, _, metadata) = stage.ask(&user, &format!("{SIGHTS}/a"), METADATA_OF_ONE).await;
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        assert_eq!(metadata["metadata"]["labels"], label, "{}", what("metadata of one"));
        let (_, _, yaml) = stage.ask(&user, SIGHTS, "application/yaml").await;
        assert_eq!(yaml.contains("secret: s"), has[0], "{}", what("YAML"));
        assert_eq!(yaml.contains("service: v"), has[1], "{}", what("YAML"));
        assert_eq!(yaml.contains("node: m"), has[2], "{}", what("YAML"));
        // Selectors are evaluated only on the fields that the user may see.
        for (selector, is_seen) in [
            ("fieldSelector=spec.secret=s", has[0]),
            ("fieldSelector=spec.node=m", has[2]),
            ("fieldSelector=spec.secret=s,spec.node=m", has[0] && has[2]),
            ("labelSelector=node%3Dm", has[2]),
            ("labelSelector=node", has[2]),
        ] {
            for accept in ["application/json", TABLE, METADATA] {
                let (_, _, found) = stage.ask(&user, &format!("{SIGHTS}?{selector}"), accept).await;
                let found: Value = serde_json::from_str(&found).unwrap();
                let rows = found["items"].as_array().or(found["rows"].as_array());
                assert_eq!(rows.unwrap().len(), usize::from(is_seen), "{}", what(selector));
            }
            let path = format!("{SIGHTS}?{selector}&limit=1");
            let page = stage.get(&user, &path).await;
            assert_eq!(page["items"].as_array().unwrap().len(), usize::from(is_seen));
            assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
        }
        // With `!=`, the objects whose hidden field is absent match too.
        let absent = stage.get(&user, &format!("{SIGHTS}?fieldSelector=spec.secret!=s")).await;
        let count = absent["items"].as_array().unwrap().len();
        assert_eq!(count, if has[0] { 1 } else { 2 }, "{}", what("!="));
    }
}

#[tokio::test]
async fn watch_events_contain_only_fields_that_the_user_may_read() {
    let stage = Stage::new().await;
    let mut watches = Vec::new();
    for (user, has) in combinations() {
        permit(&stage, &user, has);
        let list = stage.get(&user, SIGHTS).await;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        assert_eq!(
            list["items"][0]["metadata"]["resourceVersion"].as_str().unwrap().len(),
            revision.len()
        );
        let later = format!("{SIGHTS}?watch=true&resourceVersion={revision}");
        let goes_on = stage.watch(&user, &later, "application/json").await;
        let table = stage.watch(&user, &later, TABLE).await;
        let selected = format!("{later}&fieldSelector=spec.secret=t");
        let selected = stage.watch(&user, &selected, "application/json").await;
        let streams = format!(
            "{SIGHTS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        );
        let mut initial = stage.watch(&user, &streams, "application/json").await;
        let added = initial.next().await.unwrap();
        assert_eq!(
            (&added["type"], &added["object"]["spec"]),
            (&json!("ADDED"), &expected(has, TOLD))
        );
        initial.next().await.unwrap();
        let bookmark = initial.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        // The bookmark has the revision of the list.
        assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], *revision, "{user}");
        watches.push((user, has, goes_on, table, selected, initial));
    }
    // A Secret changes, then a Service, a Node, and an unprotected object. A watch receives an event only if its user
    // may see the changed field.
    let mut told = TOLD;
    stage.cluster.tell(SECRETS, "MODIFIED", &named("a", "t"));
    told[0] = "t";
    for (user, has, goes_on, table, selected, initial) in &mut watches {
        if !has[0] {
            continue;
        }
        for watch in [goes_on, initial] {
            let event = watch.next().await.unwrap();
            assert_eq!(event["type"], "MODIFIED", "{user}");
            assert_eq!(event["object"]["spec"], expected(*has, told), "{user}");
        }
        let event = table.next().await.unwrap();
        let row = &event["object"]["rows"][0]["cells"];
        let of_code: Value = serde_json::from_str(row[2].as_str().unwrap()).unwrap();
        assert_eq!((&row[1], &of_code), (&json!("t"), &expected(*has, told)), "{user}");
        let event = selected.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["spec"]["secret"]),
            (&json!("ADDED"), &json!("t"))
        );
    }
    stage.cluster.tell(NODES, "MODIFIED", &cluster_scoped("a", "o"));
    told[2] = "o";
    for (user, has, goes_on, table, selected, initial) in &mut watches {
        if !has[2] {
            continue;
        }
        for watch in [goes_on, initial] {
            let event = watch.next().await.unwrap();
            assert_eq!(event["object"]["spec"], expected(*has, told), "{user}");
            assert_eq!(event["object"]["metadata"]["labels"]["node"], "o", "{user}");
        }
        table.next().await.unwrap();
        if has[0] {
            selected.next().await.unwrap();
        }
    }
    let mut endpoints = named("a", "f");
    endpoints["metadata"]["resourceVersion"] = json!("2");
    stage.cluster.tell(ENDPOINTS, "MODIFIED", &endpoints);
    for (user, has, goes_on, table, selected, initial) in &mut watches {
        let mut expected = expected(*has, told);
        expected["endpoints"] = json!("f");
        for watch in [goes_on, initial] {
            let event = watch.next().await.unwrap();
            assert_eq!(event["object"]["spec"], expected, "{user}");
        }
        let event = table.next().await.unwrap();
        let cell = event["object"]["rows"][0]["cells"][2].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(cell).unwrap(), expected, "{user}");
        if has[0] {
            selected.next().await.unwrap();
        }
    }
    // The object is deleted. Each watch receives the fields that its user could see.
    stage.cluster.tell(CONFIG_MAPS, "DELETED", &named("a", ""));
    for (user, has, goes_on, _, selected, initial) in &mut watches {
        let mut expected = expected(*has, told);
        expected["endpoints"] = json!("f");
        for watch in [goes_on, initial] {
            let event = watch.next().await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["spec"]),
                (&json!("DELETED"), &expected),
                "{user}"
            );
        }
        if has[0] {
            assert_eq!(selected.next().await.unwrap()["type"], "DELETED");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_granted_or_revoked_field_permission_ends_a_watch_with_410() {
    let stage = Stage::new().await;
    let list = stage.get("eve", SIGHTS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{SIGHTS}?watch=true&timeoutSeconds=3600&resourceVersion={revision}");
    let mut watch = stage.watch("eve", &path, "application/json").await;
    let mut other = stage.watch("bob", &path, "application/json").await;
    stage.permit("eve", "secrets", "n");
    let began = tokio::time::Instant::now();
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{event}"
    );
    assert_eq!(watch.next().await, None);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(179) && took <= Duration::from_secs(361), "{took:?}");
    // A new list contains the field, and a watch continues from there.
    let list = stage.get("eve", SIGHTS).await;
    assert_eq!(list["items"][0]["spec"]["secret"], "s");
    let again = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert_ne!(again, revision, "nothing else has changed");
    let path = format!("{SIGHTS}?watch=true&timeoutSeconds=3600&resourceVersion={again}");
    let mut watch = stage.watch("eve", &path, "application/json").await;
    stage.cluster.tell(SECRETS, "MODIFIED", &named("a", "t"));
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["secret"], "t");
    stage.forbid("eve", "secrets", "n");
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(stage.get("eve", SIGHTS).await["items"][0]["spec"]["secret"], Value::Null);
    // Nothing has changed for the other user.
    let mut endpoints = named("a", "f");
    endpoints["metadata"]["resourceVersion"] = json!("2");
    stage.cluster.tell(ENDPOINTS, "MODIFIED", &endpoints);
    assert_eq!(other.next().await.unwrap()["object"]["spec"]["endpoints"], "f");
}

/// A watch does not show fields that its start revision was read without, because there would be no events for fields
/// that do not change. After some minutes the watch ends, so that the client lists again.
#[tokio::test(start_paused = true)]
async fn a_watch_or_page_continued_after_a_grant_omits_the_granted_fields() {
    let stage = Stage::new().await;
    let list = stage.get("eve", SIGHTS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let page = stage.get("eve", &format!("{SIGHTS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let path = format!("{SIGHTS}?watch=true&timeoutSeconds=3600&resourceVersion={revision}");
    let mut watch = stage.watch("eve", &path, "application/json").await;
    stage.permit("eve", "secrets", "n");
    assert_eq!(stage.get("eve", SIGHTS).await["items"][0]["spec"]["secret"], "s");
    stage.cluster.tell(SECRETS, "ADDED", &named("b", "t"));
    stage.cluster.tell(SECRETS, "MODIFIED", &named("a", "t"));
    stage.cluster.tell(ENDPOINTS, "ADDED", &named("b", "e"));
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "b", "{event}");
    assert_eq!(event["object"]["spec"], json!({"parts": [{"name": "a"}], "endpoints": "e"}));
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    // A user with more permissions that continues from this revision must list again at once. The same applies to a user
    // with all permissions.
    for user in ["eve", "admin"] {
        let mut watch = stage.watch(user, &path, "application/json").await;
        assert_eq!(watch.next().await.unwrap()["object"]["code"], 410, "{user}");
        assert_eq!(watch.next().await, None);
    }
    let page = stage.get("eve", &format!("{SIGHTS}?continue={token}")).await;
    assert_eq!(page["items"][0]["metadata"]["name"], "b");
    assert_eq!(page["items"][0]["spec"]["secret"], Value::Null);
    // A new read shows the fields that are visible now.
    for query in ["resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact"] {
        let list = stage.get("eve", &format!("{SIGHTS}?resourceVersion={revision}&{query}")).await;
        assert!(list["items"][0]["spec"]["secret"].is_string(), "{list}");
    }
    let one = stage.get("eve", &format!("{SIGHTS}/a?resourceVersion={revision}")).await;
    assert_eq!(one["spec"]["secret"], "t");
    // A revision that hides fewer fields than the user may see does not show more.
    let list = stage.get("admin", SIGHTS).await;
    let whole = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{SIGHTS}?watch=true&resourceVersion={whole}");
    let mut watch = stage.watch("bob", &path, "application/json").await;
    let mut endpoints = named("a", "f");
    endpoints["metadata"]["resourceVersion"] = json!("2");
    stage.cluster.tell(ENDPOINTS, "MODIFIED", &endpoints);
    let spec = watch.next().await.unwrap()["object"]["spec"].clone();
    assert_eq!(spec, json!({"parts": [{"name": "a"}], "endpoints": "f"}));
    // A revision that this kind cannot have issued is too old.
    let number: u64 = whole.parse().unwrap();
    let path = format!("{SIGHTS}?watch=true&resourceVersion={}", number | 1 << 17);
    let mut watch = stage.watch("bob", &path, "application/json").await;
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
}

/// A client that ends its own watches after some seconds and continues from the last revision that it received.
#[derive(Default)]
struct ShortWatches {
    user: &'static str,
    /// An additional query parameter, for example `&sendInitialEvents=true`; empty for a client that lists and then
    /// watches.
    streams: bool,
    revision: Option<String>,
    /// The value from the Secret in each object, as the client has received it.
    secrets: BTreeMap<String, Value>,
    /// The number of initial lists.
    beginnings: usize,
}

impl ShortWatches {
    fn of(user: &'static str, streams: bool) -> Self {
        Self { user, streams, ..Self::default() }
    }

    fn know(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.secrets.insert(name, object["spec"]["secret"].clone());
    }

    /// The revisions that a client receives never decrease.
    fn told(&mut self, metadata: &Value) {
        let told = metadata["resourceVersion"].as_str().unwrap().to_owned();
        let before = self.revision.replace(told.clone());
        let number = |text: &str| text.parse::<u64>().unwrap();
        assert!(before.is_none_or(|before| number(&told) >= number(&before)));
    }

    /// Lists if necessary, and watches for five seconds.
    async fn round(&mut self, stage: &Stage, must_begin: bool) -> bool {
        const LASTS: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=5";
        let begins = must_begin || self.revision.is_none();
        let at_least = self.revision.clone().unwrap_or_default();
        let mut query = format!("{LASTS}&resourceVersion={at_least}");
        if begins {
            self.beginnings += 1;
            self.secrets.clear();
            if self.streams {
                query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            } else {
                let path = format!("{SIGHTS}?resourceVersion={at_least}");
                let list = stage.get(self.user, &path).await;
                list["items"].as_array().unwrap().iter().for_each(|one| self.know(one));
                self.told(&list["metadata"]);
                query = format!("{LASTS}&resourceVersion={}", self.revision.as_ref().unwrap());
            }
        }
        let path = format!("{SIGHTS}?{query}");
        let mut watch = stage.watch(self.user, &path, "application/json").await;
        while let Some(event) = watch.next().await {
            let object = &event["object"];
            match event["type"].as_str().unwrap() {
                "ERROR" => {
                    assert_eq!(object["code"], 410, "{event}");
                    return true;
                }
                "BOOKMARK" => self.told(&object["metadata"]),
                _ => {
                    // The initial events of a watch are ordered by name.
                    self.know(object);
                }
            }
        }
        false
    }

    async fn rounds(&mut self, stage: &Stage, count: usize) {
        let mut must_begin = false;
        for _ in 0..count {
            must_begin = self.round(stage, must_begin).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_with_short_watches_relist_after_a_permission_is_granted() {
    let stage = Stage::new().await;
    for streams in [false, true] {
        let mut client = ShortWatches::of("eve", streams);
        client.rounds(&stage, 3).await;
        assert_eq!((client.beginnings, &client.secrets["a"]), (1, &Value::Null));
        stage.permit("eve", "secrets", "n");
        client.rounds(&stage, 3).await;
        assert_eq!((client.beginnings, &client.secrets["a"]), (2, &json!("s")), "{streams}");
        // The loss of a permission causes no new list; its return causes one.
        stage.forbid("eve", "secrets", "n");
        client.rounds(&stage, 3).await;
        assert_eq!(client.beginnings, 2);
        stage.permit("eve", "secrets", "n");
        client.rounds(&stage, 3).await;
        assert_eq!((client.beginnings, &client.secrets["a"]), (3, &json!("s")));
        // Another permission that is still missing has no effect.
        stage.permit("eve", "nodes", "");
        client.rounds(&stage, 3).await;
        assert_eq!(client.beginnings, 4);
        stage.forbid("eve", "secrets", "n");
        stage.forbid("eve", "nodes", "");
    }
}

/// If lists and watches were authorized differently, a client would list again without end.
#[tokio::test(start_paused = true)]
async fn permission_for_a_single_verb_causes_no_repeated_lists() {
    let stage = Stage::new().await;
    for streams in [false, true] {
        for verb in ["eve/list", "eve/watch", "eve/get"] {
            stage.permit(verb, "secrets", "n");
            let mut client = ShortWatches::of("eve", streams);
            client.rounds(&stage, 50).await;
            assert_eq!(client.beginnings, 1, "{verb} {streams}");
            let sees = verb == "eve/list" && !streams;
            assert_eq!(client.secrets["a"].is_string(), sees, "{verb} {streams}");
            // Long watches do not end for this reason either.
            let list = stage.get("eve", SIGHTS).await;
            let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
            let path = format!("{SIGHTS}?watch=true&timeoutSeconds=590&resourceVersion={revision}");
            let mut watch = stage.watch("eve", &path, "application/json").await;
            assert_eq!(watch.next().await, None, "{verb}");
            stage.forbid(verb, "secrets", "n");
        }
    }
    // A cached result for one verb is not combined with a new result for another verb.
    let mut client = ShortWatches::of("remembered", false);
    stage.get("remembered", SIGHTS).await;
    stage.permit("remembered", "secrets", "n");
    client.rounds(&stage, 20).await;
    assert_eq!(client.beginnings, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reflector_receives_a_field_after_its_permission_is_granted() {
    let stage = Stage::new().await;
    let server = Arc::new(stage.server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = Arc::clone(&server);
        async move {
            let request = request.map(Body::new);
            Ok::<_, Infallible>(server.respond(user("eve"), request).await)
        }
    });
    let sights: Api<Sight> = Api::namespaced(kube::Client::new(service, "n"), "n");
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (store, writer) = reflector::store();
        let config = config.timeout(10);
        let events = reflector(writer, watcher(sights.clone(), config).default_backoff());
        let mut events = events.boxed();
        let a = reflector::ObjectRef::new("a").within("n");
        let secret = || store.get(&a).map(|sight| sight.spec.secret.clone());
        let go_on = async |seconds, events: &mut BoxStream<'_, watcher::Result<_>>| {
            let all = async {
                while let Some(event) = events.next().await {
                    match event {
                        Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
                        event => drop(event.unwrap()),
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(seconds), all).await;
        };
        go_on(35, &mut events).await;
        assert_eq!(secret(), Some(None));
        stage.rights.lock().unwrap().insert(("eve".to_owned(), "secrets", "n"));
        stage.asked.lock().unwrap().clear();
        go_on(600, &mut events).await;
        assert_eq!(secret(), Some(Some("s".to_owned())));
        let asked = std::mem::take(&mut *stage.asked.lock().unwrap());
        let count = |what: &str| asked.iter().filter(|one| *one == what).count();
        // At most one initial list, and otherwise one watch every ten seconds.
        assert!(count("list sights n") <= 1 && count("watch sights n") <= 65, "{asked:?}");
        stage.rights.lock().unwrap().clear();
    }
}

/// All pages of a list show the same fields, so that a watch from any page is consistent with the fields that were
/// hidden.
#[tokio::test]
async fn a_continue_token_expires_when_a_field_permission_is_revoked() {
    let stage = Stage::new().await;
    stage.permit("eve", "secrets", "n");
    let page = stage.get("eve", &format!("{SIGHTS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = format!("{SIGHTS}?limit=1&continue={token}");
    stage.forbid("eve", "secrets", "n");
    let (status, _, body) = stage.ask("eve", &next, "application/json").await;
    assert_eq!(status, StatusCode::GONE, "{body}");
    stage.permit("eve", "secrets", "n");
    stage.get("eve", &next).await;
}

/// A list that continues after its snapshot has expired contains current objects, but no more fields than the first
/// pages. A watch from there would report no changes of the fields that the first pages lacked.
#[tokio::test(start_paused = true)]
async fn a_list_continued_with_a_replaced_token_still_omits_hidden_fields() {
    let stage = Stage::new().await;
    let page = stage.get("eve", &format!("{SIGHTS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut said: Value = serde_json::from_slice(&engine.decode(token).unwrap()).unwrap();
    // The token looks like one of an earlier process.
    said["rv"] = json!(said["rv"].as_u64().unwrap() - (1 << 40));
    let token = engine.encode(said.to_string());
    let path = format!("{SIGHTS}?continue={token}");
    let (status, _, body) = stage.ask("eve", &path, "application/json").await;
    assert_eq!(status, StatusCode::GONE, "{body}");
    let status: Value = serde_json::from_str(&body).unwrap();
    let token = status["metadata"]["continue"].as_str().unwrap();
    stage.permit("eve", "secrets", "n");
    let rest = stage.get("eve", &format!("{SIGHTS}?continue={token}")).await;
    assert_eq!(rest["items"][0]["spec"]["secret"], Value::Null, "{rest}");
    let revision = rest["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{SIGHTS}?watch=true&resourceVersion={revision}");
    let mut watch = stage.watch("eve", &path, "application/json").await;
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
}

/// If a user loses a permission, an object that was selected by a protected field no longer matches. A continued watch
/// could not report that, so the client must list again.
#[tokio::test(start_paused = true)]
async fn a_watch_must_relist_if_its_selector_uses_a_revoked_field() {
    let stage = Stage::new().await;
    for selector in ["fieldSelector=spec.node%3Dm", "labelSelector=node%3Dm"] {
        stage.permit("eve", "nodes", "");
        let list = stage.get("eve", &format!("{SIGHTS}?{selector}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        stage.forbid("eve", "nodes", "");
        let watch = async |selector: &str| {
            let path = format!("{SIGHTS}?watch=true&timeoutSeconds=5&resourceVersion={revision}");
            stage.watch("eve", &format!("{path}&{selector}"), "application/json").await
        };
        assert_eq!(watch(selector).await.next().await.unwrap()["object"]["code"], 410);
        // A client that selects by another field misses nothing.
        assert_eq!(watch("fieldSelector=metadata.name%3Da").await.next().await, None);
        // With permission to list only, the selector matches nothing, because no watch could follow. The list has a
        // warning with the reason.
        stage.permit("eve/list", "nodes", "");
        let path = format!("{SIGHTS}?{selector}");
        let (_, warnings, list) = stage.ask("eve", &path, "application/json").await;
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["items"], json!([]), "{selector}");
        assert!(
            warnings.iter().any(|one| one.contains("cannot watch resource \\\"nodes\\\"")),
            "{warnings:?}"
        );
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path =
            format!("{SIGHTS}?watch=true&timeoutSeconds=5&resourceVersion={revision}&{selector}");
        assert_eq!(stage.watch("eve", &path, "application/json").await.next().await, None);
        let path = format!("{SIGHTS}?fieldSelector=metadata.name%3Da");
        assert_eq!(stage.get("eve", &path).await["items"][0]["spec"]["node"], "m");
        stage.forbid("eve/list", "nodes", "");
    }
}

/// A client that waits for one object to change.
#[tokio::test(start_paused = true)]
async fn get_with_list_and_watch_permission_shows_fields_and_allows_a_watch() {
    let stage = Stage::new().await;
    for verb in ["eve/list", "eve/watch"] {
        stage.permit(verb, "secrets", "n");
    }
    // The object has changed since the server started, so the earlier revision is too old.
    let list = stage.get("eve", SIGHTS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{SIGHTS}?watch=true&resourceVersion={revision}");
    let mut watch = stage.watch("eve", &path, "application/json").await;
    let mut endpoints = named("a", "f");
    endpoints["metadata"]["resourceVersion"] = json!("2");
    stage.cluster.tell(ENDPOINTS, "MODIFIED", &endpoints);
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "a");
    let one = stage.get("eve", &format!("{SIGHTS}/a")).await;
    assert_eq!(one["spec"]["secret"], "s");
    let revision = one["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!(
        "{SIGHTS}?watch=true&timeoutSeconds=5&fieldSelector=metadata.name%3Da&resourceVersion={revision}"
    );
    assert_eq!(stage.watch("eve", &path, "application/json").await.next().await, None);
    // With permission to watch only, neither request shows the field.
    stage.forbid("eve/list", "secrets", "n");
    assert_eq!(stage.get("eve", &format!("{SIGHTS}/a")).await["spec"]["secret"], Value::Null);
}

/// Two watches of the same change, in both orders. The encoded event that is shared by many watches must not reach a
/// user with permission for fewer fields.
#[tokio::test]
async fn simultaneous_watches_receive_only_fields_that_each_user_may_read() {
    let stage = Stage::new().await;
    permit(&stage, "all", [true; 3]);
    permit(&stage, "some", [false, true, true]);
    for (round, accept) in ["application/json", TABLE, METADATA_OF_ONE].into_iter().enumerate() {
        let list = stage.get("all", SIGHTS).await;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{SIGHTS}?watch=true&resourceVersion={revision}");
        let mut watches = Vec::new();
        for user in ["all", "some", "none", "admin", "none", "some", "all"] {
            watches.push((user, stage.watch(user, &path, accept).await));
        }
        stage.cluster.tell(SECRETS, "MODIFIED", &named("a", &format!("s-{round}")));
        stage.cluster.tell(ENDPOINTS, "MODIFIED", &named("a", &format!("e-{round}")));
        let mut last = BTreeMap::new();
        for (user, watch) in &mut watches {
            let event = watch.next().await.unwrap();
            let text = event.to_string();
            // In a cell of a Table the object is JSON inside a string.
            let shows = |field: &str| text.contains(field) && accept != METADATA_OF_ONE;
            let sees = ["all", "admin"].contains(user) && accept != METADATA_OF_ONE;
            assert_eq!(shows("secret\":") || shows("secret\\\":"), sees, "{user} {text}");
            assert_eq!(text.contains("\"node\":\"m\""), *user != "none", "{user} {text}");
            if let Some(earlier) = last.insert(*user, event["object"].clone()) {
                assert_eq!(earlier, event["object"], "{user}");
            }
        }
    }
}

#[tokio::test]
async fn each_permission_is_checked_once_and_unauthorized_users_are_rejected() {
    let stage = Stage::new().await;
    PROTECTED.iter().for_each(|plural| stage.permit("ann", plural, ""));
    stage.get("ann", &format!("{SIGHTS}/a")).await;
    let asked = std::mem::take(&mut *stage.asked.lock().unwrap());
    assert_eq!(asked.len(), 5, "{asked:?}");
    let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    let expected =
        ["get configmaps n", "get nodes ", "get secrets n", "get services ", "get sights n"];
    assert_eq!(asked, expected.into());
    // A user with permission to list but not to get sees the field too.
    stage.get("bob", &format!("{SIGHTS}/a")).await;
    let asked = std::mem::take(&mut *stage.asked.lock().unwrap());
    assert_eq!(asked.len(), 8, "{asked:?}");
    stage.get("bob", ALL_SIGHTS).await;
    let asked = std::mem::take(&mut *stage.asked.lock().unwrap());
    assert!(asked.contains(&"list secrets ".to_owned()), "{asked:?}");
    stage.get("admin", SIGHTS).await;
    assert_eq!(*stage.asked.lock().unwrap(), [""; 0]);
    let (status, _, body) = stage.ask("stranger", SIGHTS, "application/json").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    // If the permissions cannot be determined, nothing is shown.
    let (status, _, body) = stage.ask("unknown", SIGHTS, "application/json").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{body}");
    assert!(
        body.contains("cannot list resource \\\\\\\"secrets\\\\\\\"") || body.contains("secrets"),
        "{body}"
    );
}

/// A kind that does not declare its lookup.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Unsaid", plural = "unsaid", namespaced)]
struct UnsaidSpec {
    has_secret: bool,
}

impl Computed for Unsaid {
    type Source = ConfigMap;
    type Related = Lookup<PartialObjectMeta<Secret>>;

    fn compute(source: &ConfigMap, secrets: &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let has_secret = secrets.get(source.metadata.namespace.as_deref(), name).is_some();
        Some(Self::new(name, UnsaidSpec { has_secret }))
    }
}

/// A kind that declares a lookup in the namespace of its source, but looks elsewhere.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Stray", namespaced)]
struct StraySpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    secrets: Option<usize>,
}

impl Computed for Stray {
    type Source = ConfigMap;
    type Related = Lookup<PartialObjectMeta<Secret>>;

    fn compute(source: &ConfigMap, secrets: &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let namespace = source.metadata.namespace.as_deref().filter(|_| name != "a");
        Some(Self::new(name, StraySpec { secrets: Some(secrets.list(namespace).len()) }))
    }

    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new().protects_in_namespace::<PartialObjectMeta<Secret>>(["spec.secrets"])
    }
}

/// Counts the Services that have a Secret of their name. In one case it wrongly counts those of all namespaces.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Joined", namespaced)]
struct JoinedSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<usize>,
}

impl Computed for Joined {
    type Source = ConfigMap;
    type Related = (Lookup<PartialObjectMeta<Service>>, Lookup<PartialObjectMeta<Secret>>);

    fn compute(source: &ConfigMap, (services, secrets): &Self::Related) -> Option<Self> {
        let name = source.metadata.name.as_deref()?;
        let namespace = source.metadata.namespace.as_deref().filter(|_| name != "a");
        let all = |_: &PartialObjectMeta<Service>| Some("all");
        let one = |_: &PartialObjectMeta<Service>, _: &PartialObjectMeta<Secret>| 1;
        let pairs = services.sum_joined(all, secrets, one, namespace, "all");
        Some(Self::new(name, JoinedSpec { pairs: Some(pairs) }))
    }

    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
            .shows::<PartialObjectMeta<Service>>(["spec.pairs"])
            .protects_in_namespace::<PartialObjectMeta<Secret>>(["spec.pairs"])
    }
}

#[tokio::test]
async fn lookups_without_field_permissions_require_cluster_wide_permission() {
    let stage = Stage::new().await;
    let kinds = Kinds::new().computed::<Unsaid>().computed::<Stray>().computed::<Joined>();
    let server = ApiServer::new("unsaid", kinds).in_process(stage.cluster.client()).await.unwrap();
    server.wait_synced().await;
    let stage = Stage { server, ..stage };
    const UNSAID: &str = "/apis/example.com/v1/namespaces/n/unsaid";
    let refused = "unsaid.example.com is forbidden: User \\\"bob\\\" cannot list resource \\\"secrets\\\" in API group \\\"\\\" at the cluster scope";
    stage.permit("bob", "secrets", "n");
    let (status, _, body) = stage.ask("bob", UNSAID, "application/json").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(body.contains(refused), "{body}");
    let watch = format!("{UNSAID}?watch=true");
    assert_eq!(stage.ask("bob", &watch, "application/json").await.0, StatusCode::FORBIDDEN);
    stage.permit("eve", "secrets", "");
    let list = stage.get("eve", UNSAID).await;
    assert_eq!(list["items"][0]["spec"]["has_secret"], true);
    // A result of a lookup outside of the declared namespace is not shown.
    for kind in ["strays", "joineds"] {
        let list = stage.get("eve", &format!("/apis/example.com/v1/namespaces/n/{kind}")).await;
        let names: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
        assert_eq!(names, ["b"], "{kind}");
    }
}

/// A kind with a wrong declaration.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Wrong", namespaced)]
struct WrongSpec {
    needed: bool,
    free: Option<bool>,
}

impl Computed for Wrong {
    type Source = ConfigMap;
    type Related = (Lookup<PartialObjectMeta<Secret>>, Lookup<PartialObjectMeta<Service>>);

    fn compute(_: &ConfigMap, _: &Self::Related) -> Option<Self> {
        None
    }

    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
            .protects::<PartialObjectMeta<Secret>>(["spec.needed", "spec.free"])
            .shows::<PartialObjectMeta<Secret>>(["spec.freed"])
            .shows::<PartialObjectMeta<Service>>(["spec.needed"])
            .shows::<Node>(["spec.free"])
    }
}

#[tokio::test]
async fn invalid_field_permission_declarations_prevent_the_start() {
    let server = ApiServer::new("wrong", Kinds::new().computed::<Wrong>());
    let refused = server.in_process(FakeCluster::default().client()).await.err().unwrap();
    let refused = refused.to_string();
    for fault in [
        "field_permissions: secrets are declared twice",
        "field_permissions: nodes are not looked up as the type that is declared",
        "field_permissions: spec.needed: is required, so it cannot be left out",
        "field_permissions: spec.freed: there is no such field",
    ] {
        assert!(refused.contains(fault), "{refused}");
    }
}
