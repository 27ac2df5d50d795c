//! Kinds of which each user sees only some objects. In no response is there a trace of a hidden object.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aggregated_apiserver::serving::AdmissionPluginName;
use aggregated_apiserver::strategy::View;
use aggregated_apiserver::{ApiServer, Computed, InProcess, Kind, Kinds, Stored, User, Visibility};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use kube::api::PartialObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::{Events, FakeCluster, admin};

const NOTES: &str = "/apis/example.com/v1/namespaces/n/notes";
const BOARDS: &str = "/apis/example.com/v1/namespaces/n/boards";
const CONFIG_MAPS: &str = "/api/v1/configmaps";

/// A note, visible to its reader.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Note",
    namespaced,
    status = "NoteStatus",
    selectable = ".spec.text",
    scale(spec_replicas_path = ".spec.copies", status_replicas_path = ".status.copies")
)]
struct NoteSpec {
    reader: String,
    text: String,
    #[serde(default)]
    copies: i64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct NoteStatus {
    #[serde(default)]
    copies: i64,
}

impl Stored for Note {
    fn visibility() -> Visibility<Self> {
        Visibility::by_object(|user, note: &Self| note.spec.reader == user.name)
    }
}

/// A view of a ConfigMap, visible to its team.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Board", namespaced)]
struct BoardSpec {}

/// A view of notes.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Copied", plural = "copied", namespaced)]
struct CopiedSpec {}

impl Stored for Copied {}

impl Computed for Board {
    type Source = PartialObjectMeta<ConfigMap>;
    type Related = ();

    fn compute(source: &Self::Source, (): &()) -> Option<Self> {
        let mut board = Self::new(source.metadata.name.as_deref()?, BoardSpec {});
        board.metadata.labels.clone_from(&source.metadata.labels);
        Some(board)
    }

    fn visibility() -> Visibility<Self> {
        Visibility::by_identity(|user, object| {
            let team = object.label("team").filter(|_| object.namespace() == Some("n"));
            team.is_some_and(|team| user.groups.iter().any(|group| group == team))
        })
    }
}

fn user(name: &str, group: &str) -> User {
    User { name: name.to_owned(), groups: vec![group.to_owned()], ..User::default() }
}

fn alice() -> User {
    user("alice", "red")
}

async fn serve(cluster: &FakeCluster) -> InProcess {
    let kinds = Kinds::new().stored::<Note>().computed::<Board>();
    let server = ApiServer::new("notes", kinds)
        .without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
    let server = server.in_process(cluster.client()).await.unwrap();
    server.wait_synced().await;
    server
}

/// A request: its method and path, and the media type and value of its body.
type Asked<'a> = (Method, &'a str, Option<(&'a str, Value)>);

async fn ask(server: &InProcess, user: &User, (method, path, body): Asked<'_>) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some((media, _)) = &body {
        request = request.header("content-type", *media);
    }
    let body = body.map_or(Body::empty(), |(_, body)| Body::from(body.to_string()));
    let response = server.respond(user.clone(), request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(server: &InProcess, user: &User, path: &str) -> (u16, Value) {
    ask(server, user, (Method::GET, path, None)).await
}

async fn create(server: &InProcess, user: &User, name: &str, reader: &str) -> u16 {
    ask(server, user, (Method::POST, NOTES, Some(("application/json", note(name, reader))))).await.0
}

fn note(name: &str, reader: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Note",
        "metadata": {"name": name, "namespace": "n", "labels": {"reader": reader}},
        "spec": {"reader": reader, "text": name, "copies": 1},
    })
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn hidden_objects_are_omitted_from_lists_and_counts() {
    let server = serve(&FakeCluster::without_objects(CONFIG_MAPS)).await;
    for (name, reader) in [("a", "bob"), ("b", "alice"), ("c", "bob"), ("d", "alice"), ("e", "bob")]
    {
        assert_eq!(create(&server, &admin(), name, reader).await, 201);
    }
    for path in [NOTES.to_owned(), "/apis/example.com/v1/notes".to_owned()] {
        let (_, list) = get(&server, &alice(), &path).await;
        assert_eq!(names(&list), ["b", "d"]);
        assert_eq!(names(&get(&server, &admin(), &path).await.1).len(), 5);
    }
    let (_, selected) =
        get(&server, &alice(), &format!("{NOTES}?labelSelector=reader%3Dbob")).await;
    assert_eq!(names(&selected), [""; 0]);
    let (_, selected) =
        get(&server, &alice(), &format!("{NOTES}?fieldSelector=spec.text%3Da")).await;
    assert_eq!(names(&selected), [""; 0]);
    let named = format!("{NOTES}?fieldSelector=metadata.name%3Da");
    assert_eq!(names(&get(&server, &alice(), &named).await.1), [""; 0]);

    // Pages count only visible objects, and contain no hint of the others.
    let (_, page) = get(&server, &alice(), &format!("{NOTES}?limit=1")).await;
    assert_eq!(names(&page), ["b"]);
    assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, page) = get(&server, &alice(), &format!("{NOTES}?limit=1&continue={token}")).await;
    assert_eq!(names(&page), ["d"]);
    // Only hidden objects follow, so there is no continue token.
    assert_eq!(page["metadata"]["continue"], "");
    // The token contains only the last visible object, even if the client has made up the token.
    let engine = base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let of_token = |token: &str| -> Value {
        serde_json::from_slice(&base64::Engine::decode(&engine, token).unwrap()).unwrap()
    };
    let mut said = of_token(token);
    assert_eq!((&said["start"], &said["left"]), (&json!("/b\0"), &Value::Null));
    said["start"] = json!("/a");
    said["left"] = json!(1000);
    let forged = base64::Engine::encode(&engine, said.to_string());
    let (_, page) = get(&server, &alice(), &format!("{NOTES}?limit=1&continue={forged}")).await;
    assert_eq!(names(&page), ["b"]);
    let next = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(of_token(next)["left"], Value::Null);

    let request = Request::get(NOTES)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Body::empty());
    let response = server.respond(alice(), request.unwrap()).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 2, "{table}");
}

#[tokio::test]
async fn requests_naming_a_hidden_object_get_404_and_creates_get_409() {
    let server = serve(&FakeCluster::without_objects(CONFIG_MAPS)).await;
    assert_eq!(create(&server, &admin(), "a", "bob").await, 201);
    let path = format!("{NOTES}/a");
    let of = |part: &str| format!("{path}{part}");
    let absent = json!({"name": "a", "group": "example.com", "kind": "notes"});
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "a", "namespace": "n"}, "spec": {"replicas": 3},
    });
    for (method, path, body) in [
        (Method::GET, of(""), None),
        (Method::GET, of("/status"), None),
        (Method::GET, of("/scale"), None),
        (Method::PUT, of(""), Some((json, note("a", "alice")))),
        (Method::PUT, of("/status"), Some((json, note("a", "alice")))),
        (Method::PUT, of("/scale"), Some((json, scale))),
        (Method::PATCH, of(""), Some((merge, json!({})))),
        (Method::PATCH, of(""), Some((merge, patch.clone()))),
        (Method::PATCH, of("/status"), Some((merge, patch.clone()))),
        (Method::PATCH, of("/scale"), Some((merge, patch))),
        (Method::DELETE, of(""), None),
        (Method::DELETE, of("?dryRun=All"), None),
    ] {
        let asked = (method.clone(), path.as_str(), body.clone());
        let (status, body) = ask(&server, &alice(), asked).await;
        assert_eq!((status, &body["details"]), (404, &absent), "{method} {path}: {body}");
    }
    // A name conflict is detectable, but nothing of the hidden object.
    assert_eq!(create(&server, &alice(), "a", "alice").await, 409);
    for query in ["", "&dryRun=All", "&force=true"] {
        let path = format!("{path}?fieldManager=m{query}");
        let body = Some(("application/apply-patch+yaml", note("a", "alice")));
        let (status, body) = ask(&server, &alice(), (Method::PATCH, &path, body)).await;
        assert_eq!((status, &body["reason"]), (409, &json!("AlreadyExists")), "{body}");
    }
    // A user that gives an object away no longer sees it.
    assert_eq!(create(&server, &alice(), "b", "alice").await, 201);
    let body = Some((merge, json!({"spec": {"reader": "bob"}})));
    let gives = (Method::PATCH, format!("{NOTES}/b"), body);
    let (status, _) = ask(&server, &alice(), (gives.0, &gives.1, gives.2)).await;
    assert_eq!(status, 200);
    assert_eq!(get(&server, &alice(), &format!("{NOTES}/b")).await.0, 404);
    // The deletion of a collection deletes the visible objects.
    assert_eq!(create(&server, &admin(), "c", "alice").await, 201);
    let (_, gone) = ask(&server, &alice(), (Method::DELETE, NOTES, None)).await;
    assert_eq!(names(&gone), ["c"]);
    assert_eq!(names(&get(&server, &admin(), NOTES).await.1), ["a", "b"]);
    // The components of the cluster see all objects.
    for keeper in [
        user("system:kube-controller-manager", "system:authenticated"),
        user("system:serviceaccount:kube-system:x", "system:serviceaccounts:kube-system"),
    ] {
        assert_eq!(names(&get(&server, &keeper, NOTES).await.1), ["a", "b"]);
    }
}

#[tokio::test]
async fn a_view_of_a_kind_with_visibility_rules_is_rejected_at_startup() {
    let same = |tree| tree;
    let (group, version, plural) = ("example.com", "v1", "notes");
    let view = View { group, version, plural, to_stored: same, from_stored: same };
    let kinds = Kinds::new().stored::<Note>().kind(Kind::stored::<Copied>().view(view));
    let server = ApiServer::new("notes", kinds);
    let cluster = FakeCluster::without_objects(CONFIG_MAPS);
    let refused = server.in_process(cluster.client()).await.err().unwrap().to_string();
    assert!(refused.contains("is a view of notes.example.com"), "{refused}");
}

/// A watch, and the texts of the objects that it has reported, by name.
struct Watch {
    events: Events,
    seen: BTreeMap<String, Value>,
}

impl Watch {
    async fn begin(server: &InProcess, user: &User, path: &str) -> Self {
        let (_, list) = get(server, user, path).await;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = server.respond(user.clone(), request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let items = list["items"].as_array().unwrap().iter();
        let seen = items.map(|item| (named(item), item["spec"].clone())).collect();
        Self { events: Events::of(response.into_body()), seen }
    }

    /// Returns the next event, and records it.
    async fn next(&mut self) -> (String, Value) {
        let event = tokio::time::timeout(Duration::from_secs(30), self.events.next()).await;
        let mut event = event.expect("no event came").unwrap();
        let event_type = event["type"].as_str().unwrap().to_owned();
        let object = event["object"].take();
        let (name, spec) = (named(&object), object["spec"].clone());
        let before = match event_type.as_str() {
            "DELETED" => self.seen.remove(&name),
            "BOOKMARK" => return (event_type, object),
            _ => self.seen.insert(name, spec),
        };
        assert_eq!(before.is_none(), event_type == "ADDED", "{event_type} {object}");
        (event_type, object)
    }

    /// Reads events until this object appears.
    async fn until(&mut self, name: &str) {
        while !self.seen.contains_key(name) {
            self.next().await;
        }
    }
}

fn named(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Random creations, changes of the reader, and deletions. In the end each watch has the same objects as a list.
#[tokio::test]
async fn a_watch_reports_objects_that_become_visible_or_hidden() {
    let server = serve(&FakeCluster::without_objects(CONFIG_MAPS)).await;
    let users = [alice(), user("bob", "blue")];
    let mut watches = Vec::new();
    for user in &users {
        watches.push(Watch::begin(&server, user, NOTES).await);
    }
    let mut random = 7_u32;
    let mut random = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    for round in 0..30 {
        for _ in 0..20 {
            let name = format!("note-{}", random(6));
            let path = format!("{NOTES}/{name}");
            let reader = ["alice", "bob", "carol"][random(3) as usize];
            match random(4) {
                0 => drop(ask(&server, &admin(), (Method::DELETE, &path, None)).await),
                1 => drop(create(&server, &admin(), &name, reader).await),
                number => {
                    let spec = json!({"spec": {"reader": reader, "text": number.to_string()}});
                    let body = Some(("application/merge-patch+json", spec));
                    drop(ask(&server, &admin(), (Method::PATCH, &path, body)).await);
                }
            }
        }
        for (user, watch) in users.iter().zip(&mut watches) {
            let mark = format!("mark-{}-{round}", user.name);
            assert_eq!(create(&server, &admin(), &mark, &user.name).await, 201);
            watch.until(&mark).await;
            let (_, list) = get(&server, user, NOTES).await;
            let items = list["items"].as_array().unwrap().iter();
            let expected: BTreeMap<_, _> =
                items.map(|item| (named(item), item["spec"].clone())).collect();
            assert_eq!(watch.seen, expected, "round {round}");
            assert!(expected.values().all(|spec| spec["reader"] == *user.name));
        }
    }
}

#[tokio::test]
async fn computed_objects_are_hidden_by_their_labels() {
    let board = |name: &str, team: &str| {
        let metadata = json!({
            "namespace": "n", "name": name, "uid": name, "resourceVersion": "2",
            "labels": {"team": team},
        });
        json!({"metadata": metadata})
    };
    let cluster = FakeCluster::default();
    cluster.set(CONFIG_MAPS, vec![board("a", "red"), board("b", "blue")]);
    let server = serve(&cluster).await;
    let mut watch = Watch::begin(&server, &alice(), BOARDS).await;
    assert_eq!(watch.seen.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(get(&server, &alice(), &format!("{BOARDS}/b")).await.0, 404);
    assert_eq!(get(&server, &alice(), &format!("{BOARDS}/a")).await.0, 200);
    // The watch reports no changes of hidden objects.
    for (event_type, name, team, expected) in [
        ("MODIFIED", "b", "blue", None),
        ("MODIFIED", "b", "red", Some("ADDED")),
        ("MODIFIED", "a", "blue", Some("DELETED")),
        ("DELETED", "a", "blue", None),
        ("DELETED", "b", "red", Some("DELETED")),
        ("ADDED", "c", "red", Some("ADDED")),
    ] {
        cluster.tell(CONFIG_MAPS, event_type, &board(name, team));
        if let Some(expected) = expected {
            let (event_type, object) = watch.next().await;
            assert_eq!((event_type.as_str(), named(&object).as_str()), (expected, name));
        }
    }
}

/// The number of calls of the rule of [`Counted`].
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// An object whose rule counts its calls.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Counted", plural = "counted", namespaced)]
struct CountedSpec {}

impl Stored for Counted {
    fn visibility() -> Visibility<Self> {
        Visibility::by_identity(|_, object| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            object.name().ends_with('0')
        })
    }
}

/// A rule is called once for each object that a list examines, and twice if the list has pages. It is called twice for
/// each event and watch (before and after), and never for users that see everything.
#[tokio::test]
async fn a_visibility_rule_is_called_about_once_per_listed_object() {
    const COUNTED: &str = "/apis/example.com/v1/namespaces/n/counted";
    let server = ApiServer::new("counted", Kinds::new().stored::<Counted>())
        .without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
    let client = FakeCluster::without_objects(CONFIG_MAPS).client();
    let server = server.in_process(client).await.unwrap();
    let object = |name: &str, label: &str| {
        let metadata = json!({"name": name, "labels": {"a": label}});
        json!({"apiVersion": "example.com/v1", "kind": "Counted", "metadata": metadata, "spec": {}})
    };
    for number in 0..100 {
        let body = Some(("application/json", object(&format!("c-{number:02}"), "b")));
        assert_eq!(ask(&server, &admin(), (Method::POST, COUNTED, body)).await.0, 201);
    }
    let asked = || ASKED.swap(0, Ordering::Relaxed);
    assert_eq!((names(&get(&server, &admin(), COUNTED).await.1).len(), asked()), (100, 0));
    let mut watch = Watch::begin(&server, &alice(), COUNTED).await;
    assert_eq!(watch.seen.len(), 10);
    // Where a step of the list ends, the next one starts with the same object.
    let times = asked();
    assert!((100..=105).contains(&times), "{times}");
    let page = format!("{COUNTED}?limit=5");
    assert_eq!(names(&get(&server, &alice(), &page).await.1).len(), 5);
    // The rule is called up to the object that starts the next page, and again for the objects that are sent.
    let times = asked();
    assert!((80..=105).contains(&times), "{times}");
    assert_eq!(get(&server, &alice(), &format!("{COUNTED}/c-10")).await.0, 200);
    assert_eq!(asked(), 1);
    let merge = "application/merge-patch+json";
    for name in ["c-11", "c-10"] {
        let path = format!("{COUNTED}/{name}");
        let body = Some((merge, json!({"metadata": {"labels": {"a": "c"}}})));
        assert_eq!(ask(&server, &admin(), (Method::PATCH, &path, body)).await.0, 200);
    }
    assert_eq!(named(&watch.next().await.1), "c-10");
    assert_eq!(asked(), 4);
}
