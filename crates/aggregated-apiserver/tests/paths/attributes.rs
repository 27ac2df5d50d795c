//! The attributes of paths: those of this server, and those of a real kube-apiserver.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::auth::{Attributes, Authorizers, Decision, authorizer_fn};
use aggregated_apiserver::subresource::Subresource;
use aggregated_apiserver::{Kinds, paths::GroupVersion};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use test_cluster::{ControlPlane, Programs, unless_missing};
use test_server::{DEFINITION, api_server, unreachable_cluster, user};

const GROUP: &str = "custom.metrics.k8s.io";

/// A method, a path behind the version, and the attributes: the verb, the resource, the namespace and the name; `-` for
/// none.
const ROWS: &[&str] = &[
    "GET /namespaces/n/pods/a/http_requests = get pods/http_requests n a",
    "GET /namespaces/n/pods/*/http_requests = get pods/http_requests n *",
    "GET /namespaces/n/pods/%2A/http_requests?labelSelector=a%3Db = get pods/http_requests n *",
    "HEAD /namespaces/n/pods/a/m = get pods/m n a",
    "POST /namespaces/n/pods/a/m = create pods/m n a",
    "PUT /namespaces/n/pods/a/m = update pods/m n a",
    "PATCH /namespaces/n/pods/a/m = patch pods/m n a",
    "DELETE /namespaces/n/pods/a/m = delete pods/m n a",
    "GET /namespaces/n/pods/a/m/x/y = get pods/m n a",
    "GET /namespaces/n/pods/a/m/ = get pods/m n a",
    "GET /namespaces/n/jobs.batch/a/m = get jobs.batch/m n a",
    "GET /namespaces/n/metrics/m = get metrics n m",
    "GET /namespaces/n/pods/a = get pods n a",
    "GET /namespaces/n/m = list m n -",
    "GET /namespaces/n/m?labelSelector=a = list m n -",
    "GET /namespaces/n/m?watch=true = watch m n -",
    "GET /namespaces/n/m?watch=false = list m n -",
    "GET /namespaces/n/m?watch=0 = list m n -",
    "GET /namespaces/n/m?watch = watch m n -",
    "GET /namespaces/n/m?fieldSelector=metadata.name%3Da = list m n a",
    "GET /namespaces/n/m?fieldSelector=metadata.name%3Da&watch=1 = watch m n a",
    "GET /namespaces/n/m?fieldSelector=metadata.name!%3Da = list m n -",
    "HEAD /namespaces/n/m = list m n -",
    "POST /namespaces/n/m = create m n -",
    "DELETE /namespaces/n/m = deletecollection m n -",
    "GET /namespaces/n/status = get namespaces/status n n",
    "GET /namespaces/n/finalize = get namespaces/finalize n n",
    "GET /namespaces/n/status/a/m = get namespaces/status n n",
    "GET /namespaces/n = get namespaces n n",
    "DELETE /namespaces/n = delete namespaces n n",
    "GET /namespaces = list namespaces - -",
    "GET /nodes/*/m = get nodes/m - *",
    "GET /nodes/a/m = get nodes/m - a",
    "GET /nodes/a = get nodes - a",
    "GET /nodes = list nodes - -",
    "DELETE /nodes = deletecollection nodes - -",
    "GET /watch/nodes = watch nodes - -",
    "GET /watch/nodes?fieldSelector=metadata.name%3Da = watch nodes - -",
    "GET /nodes?fieldSelector=metadata.name%3Da = list nodes - a",
    "GET /namespaces/n?fieldSelector=metadata.name%3Da = get namespaces n n",
    "DELETE /nodes?fieldSelector=metadata.name%3Da = deletecollection nodes - -",
    "OPTIONS /nodes/a/m =  nodes/m - a",
    "GET /watch/namespaces/n/pods/a/m = watch pods/m n a",
    "POST /watch/nodes/a = watch nodes - a",
    "GET /proxy/nodes/a/m = proxy nodes - a",
    "GET /namespaces/n/pods/../m = get pods/m n ..",
    "GET /namespaces/n/pods/a%2Fb/m = get pods/b n a",
    "GET /namespaces//pods/a/m = get pods/m - a",
    "GET /namespaces/n/pods//m = list pods/m n -",
];

/// A row: the method, the path behind the version, the attributes, and the message of a denial.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str, String)> {
    ROWS.iter().map(|row| {
        let (request, attributes) = row.split_once(" = ").unwrap();
        let (method, path) = request.split_once(' ').unwrap();
        let words: Vec<&str> = attributes.split(' ').collect();
        let [verb, resource, namespace, name] = words[..] else { panic!("{row}") };
        let plural = resource.split('/').next().unwrap();
        let named = if name == "-" { String::new() } else { format!(" \"{name}\"") };
        let place = match namespace {
            "-" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let message = format!(
            "{plural}.{GROUP}{named} is forbidden: User \"nobody\" cannot {verb} resource \"{resource}\" in API group \"{GROUP}\" {place}"
        );
        (method, path, attributes, message)
    })
}

/// The attributes of a request, as in a row.
fn shown(attributes: &Attributes) -> String {
    let Attributes::Resource { verb, resource, subresource, namespace, name, .. } = attributes
    else {
        panic!("{attributes:?}");
    };
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let resource = match subresource.as_str() {
        "" => resource.clone(),
        subresource => format!("{resource}/{subresource}"),
    };
    format!("{verb} {resource} {} {}", or_dash(namespace), or_dash(name))
}

/// Sends all rows to a server whose authorizer denies and records them.
async fn check(kinds: Kinds, group_version: &str) {
    let recorded: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&recorded);
    let refuses = authorizer_fn(move |_, attributes| {
        record.lock().unwrap().push(shown(attributes));
        Decision::no_opinion("")
    });
    let server = api_server(kinds).with_authorizers(Authorizers::new().with(refuses));
    let server = server.in_process(unreachable_cluster()).await.unwrap();
    for (method, path, attributes, _) in rows() {
        let uri = format!("/apis/{group_version}{path}");
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let status = server.respond(user("nobody"), request).await.status();
        let recorded = std::mem::take(&mut *recorded.lock().unwrap());
        assert_eq!((status.as_u16(), recorded), (403, vec![attributes.to_owned()]), "{path}");
    }
}

#[tokio::test]
async fn paths_are_authorized_by_their_attributes() {
    let any = async || "never";
    let handlers = || Subresource::new("any").proxy(any);
    let group_version = GroupVersion::new(GROUP, "v1beta2")
        .path("/namespaces/{namespace}/{resource}/{name}/{metric}", handlers())
        .path("/{resource}/{name}/{metric}", handlers())
        .get("/namespaces/{namespace}/{metric}", any);
    check(Kinds::new().group_version(group_version), "custom.metrics.k8s.io/v1beta2").await;
}

#[tokio::test]
async fn kinds_are_authorized_by_the_same_attributes() {
    check(Kinds::new().crds_from_yaml(DEFINITION).unwrap(), "example.com/v1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_apiserver_reads_the_same_attributes() {
    let Some(programs) = unless_missing(Programs::find()).unwrap() else { return };
    let control_plane = ControlPlane::start_without_controllers(&programs).unwrap();
    let client = test_server::client(&control_plane.kubeconfig()).await.unwrap();
    // The response to HEAD has no message.
    for (method, path, _, message) in rows().filter(|(method, ..)| *method != "HEAD") {
        let path = format!("/apis/{GROUP}/v1beta2{path}");
        let request = Request::builder().method(method).uri(&path);
        let request = request.header("Impersonate-User", "nobody");
        let response =
            client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        assert_eq!(status["message"], message, "{method} {path}: {text}");
    }
}
