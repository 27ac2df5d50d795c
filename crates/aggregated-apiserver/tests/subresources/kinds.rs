//! Subresources of computed, virtual and direct kinds, and of kinds that hide objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::auth::{Authorizers, Decision, authorizer_fn};
use aggregated_apiserver::backend::{
    Backend, BackendError, DirectKind, Item, Listing, Poll, Read, ReadContext, VirtualKind,
};
use aggregated_apiserver::subresource::{Parent, ParentKey, Subresource};
use aggregated_apiserver::{Computed, InProcess, Kind, Kinds, Visibility};
use axum::body::Body;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use test_server::{FakeCluster, admin, api_server, server_of, user};

use super::machine::{Machine, MachineSpec};
use super::{request, send, text, with_machine};

/// The image of the object, and nothing else until the request ends.
fn follow() -> Subresource {
    let follow = async |Parent(machine): Parent<Machine>| {
        let first = stream::once(async move { Ok::<_, std::io::Error>(machine.spec.image) });
        Body::from_stream(first.chain(stream::pending()))
    };
    Subresource::new("follow").get(follow).long_running(Duration::from_secs(3600)).open_ended()
}

fn image() -> Subresource {
    let image = async |Parent(machine): Parent<Machine>| machine.spec.image;
    Subresource::new("image").get(image).post(image)
}

/// A backend with the machine `a`, until it is removed.
struct Rack(AtomicBool);

impl Rack {
    fn machines(&self) -> Vec<Item<Machine>> {
        let mut machine = Machine::new("a", MachineSpec { image: "bsd".to_owned() });
        machine.metadata.namespace = Some("n".to_owned());
        self.0.load(Ordering::Relaxed).then(|| Item::new(machine)).into_iter().collect()
    }
}

impl Backend for Rack {
    type Object = Machine;
}

impl Poll for Rack {
    async fn list(&self) -> Result<Listing<Machine>, BackendError> {
        Ok(Listing::complete(self.machines()))
    }
}

impl Read for Rack {
    async fn get(
        &self,
        _: &ReadContext,
        _: Option<&str>,
        _: &str,
    ) -> Result<Option<Machine>, BackendError> {
        Ok(self.machines().pop().map(|item| item.object))
    }

    async fn list(&self, _: &ReadContext, _: Option<&str>) -> Result<Vec<Machine>, BackendError> {
        Ok(self.machines().into_iter().map(|item| item.object).collect())
    }
}

async fn serving(kind: Kind) -> InProcess {
    let kind = kind.subresource(image()).subresource(follow());
    let server = server_of(Kinds::new().kind(kind)).await;
    server.wait_synced().await;
    server
}

#[tokio::test]
async fn virtual_objects_have_subresources() {
    let rack = Arc::new(Rack(true.into()));
    let interval = Duration::from_millis(100);
    let kind = VirtualKind::polled(Machine::crd(), Arc::clone(&rack), interval);
    let server = serving(kind.into()).await;
    assert_eq!(send(&server, "GET", "a/image", "").await.1, "bsd");
    assert_eq!(send(&server, "GET", "b/image", "").await.0, 404);
    let followed = server.respond(admin(), request("GET", "a/follow", "")).await;
    // Another program removes the object.
    rack.0.store(false, Ordering::Relaxed);
    assert_eq!(text(followed).await.1, "bsd");
}

#[tokio::test]
async fn direct_objects_have_subresources() {
    let rack = Arc::new(Rack(true.into()));
    let server = serving(DirectKind::new(Machine::crd(), Arc::clone(&rack)).into()).await;
    assert_eq!(send(&server, "GET", "a/image", "").await.1, "bsd");
    assert_eq!(send(&server, "POST", "a/image", "").await.1, "bsd");
    rack.0.store(false, Ordering::Relaxed);
    assert_eq!(send(&server, "GET", "a/image", "").await.0, 404);
}

#[tokio::test]
async fn hidden_objects_have_no_subresources() {
    let shown = |user: &aggregated_apiserver::User, machine: &Machine| {
        machine.labels().get("owner").is_none_or(|owner| *owner == user.name)
    };
    let kind = Kind::stored::<Machine>().visibility(Visibility::by_object(shown));
    let kind = kind.subresource(image()).subresource(follow());
    let allowing = Authorizers::new().with(authorizer_fn(|_, _| Decision::allow("")));
    let server = api_server(Kinds::new().kind(kind)).with_authorizers(allowing);
    let server = server.in_process(test_server::unreachable_cluster()).await.unwrap();
    let server = with_machine(server).await;
    let followed = server.respond(user("jane"), request("GET", "a/follow", "")).await;
    assert_eq!(followed.status(), 200);
    let path = format!("{}/a", super::MACHINES);
    let owned = json!({"metadata": {"labels": {"owner": "joe"}}});
    assert_eq!(test_server::ask(&server, "PATCH", &path, &owned).await.0, 200);
    // The object is hidden now, as if it had been deleted.
    assert_eq!(text(followed).await.1, "debian");
    let refused = server.respond(user("jane"), request("GET", "a/image", "")).await;
    assert_eq!(refused.status(), 404);
    let answered = server.respond(user("joe"), request("GET", "a/image", "")).await;
    assert_eq!(answered.status(), 200);
}

/// A view of a ConfigMap.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Board", namespaced)]
struct BoardSpec {
    text: String,
}

impl Computed for Board {
    type Source = ConfigMap;
    type Related = ();

    fn compute(config: &ConfigMap, (): &()) -> Option<Self> {
        let text = config.data.as_ref()?.get("text")?.clone();
        Some(Self::new(&config.name_any(), BoardSpec { text }))
    }
}

#[tokio::test]
async fn computed_objects_have_subresources_for_readers_of_their_sources() {
    const CONFIG_MAPS: &str = "/api/v1/configmaps";
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "hello"},
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
    });
    let cluster = FakeCluster::without_objects(CONFIG_MAPS);
    cluster.set(CONFIG_MAPS, vec![config]);
    // jane may use the boards, and joe may also read ConfigMaps.
    cluster.authorize_by(|spec| {
        let resource = &spec["resourceAttributes"];
        let reads = resource["resource"] == "configmaps" && resource["verb"] == "get";
        Some(resource["resource"] == "boards" || (reads && spec["user"] == "joe"))
    });
    let show = async |Parent(board): Parent<Board>| board.spec.text;
    let subresource = Subresource::new("show").get(show).post(show);
    let kind = Kind::computed::<Board>().subresource(subresource);
    let server = api_server(Kinds::new().kind(kind)).in_process(cluster.client()).await.unwrap();
    server.wait_synced().await;
    for method in ["GET", "POST"] {
        let path = "/apis/example.com/v1/namespaces/n/boards/a/show";
        let ask = |name| {
            let request = http::Request::builder().method(method).uri(path);
            server.respond(user(name), request.body(Body::empty()).unwrap())
        };
        let (status, error) = text(ask("jane").await).await;
        assert_eq!(status, 403, "{error}");
        assert!(error.contains("cannot get resource \\\"configmaps\\\""), "{error}");
        assert_eq!(text(ask("joe").await).await.1, "hello");
    }
}

#[tokio::test]
async fn objects_of_another_server_have_subresources_here() {
    let show = async |ParentKey(key): ParentKey| key.to_string();
    let wrong = async |Parent(machine): Parent<Machine>| machine.spec.image;
    let kind = Kind::elsewhere(Machine::crd())
        .subresource(Subresource::new("show").get(show).put(show))
        .subresource(Subresource::new("wrong").get(wrong));
    let server = server_of(Kinds::new().kind(kind)).await;
    assert_eq!(
        send(&server, "GET", "any/show", "").await,
        (200.try_into().unwrap(), "n/any".into())
    );
    assert_eq!(send(&server, "PUT", "any/show", "").await.0, 200);
    let (status, error) = send(&server, "GET", "any/wrong", "").await;
    assert_eq!(status, 500);
    assert!(error.contains("another server has it"), "{error}");
    for (method, path) in [("GET", "any"), ("DELETE", "any"), ("GET", "any/status")] {
        assert_eq!(send(&server, method, path, "").await.0, 404, "{method} {path}");
    }
    let path = "/apis/example.com/v1";
    let (_, list) = test_server::ask(&server, "GET", path, &json!(null)).await;
    let names: Vec<_> =
        list["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["machines/show", "machines/wrong"]);
    let document = "/openapi/v3/apis/example.com/v1";
    let (_, document) = test_server::ask(&server, "GET", document, &json!(null)).await;
    assert_eq!(document["paths"].as_object().unwrap().len(), 2);
    let none = api_server(Kinds::new().kind(Kind::elsewhere(Machine::crd())));
    let error = none.in_process(test_server::unreachable_cluster()).await.err().unwrap();
    let expected = "kind machines.example.com: spec.names: has neither objects nor subresources";
    assert_eq!(error.to_string(), expected);
}
