//! The attributes of paths: those of this server, and those of a real kube-apiserver.

use aggregated_apiserver::auth::{Authorizers, Decision, authorizer_fn};
use aggregated_apiserver::subresource::Subresource;
use aggregated_apiserver::{Kinds, paths::GroupVersion};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use test_cluster::{ControlPlane, Programs, unless_missing};
use test_server::{api_server, unreachable_cluster, user};

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
    "GET /watch/namespaces/n/pods/a/m = watch pods/m n a",
    "POST /watch/nodes/a = watch nodes - a",
    "GET /proxy/nodes/a/m = proxy nodes - a",
    "GET /namespaces/n/pods/../m = get pods/m n ..",
    "GET /namespaces/n/pods/a%2Fb/m = get pods/b n a",
    "GET /namespaces//pods/a/m = get pods/m - a",
    "GET /namespaces/n/pods//m = list pods/m n -",
];

/// A row: the method, the path, and the message of a denial.
fn rows() -> impl Iterator<Item = (&'static str, String, String)> {
    ROWS.iter().map(|row| {
        let words: Vec<&str> = row.split(' ').collect();
        let [method, path, _, verb, resource, namespace, name] = words[..] else { panic!("{row}") };
        let plural = resource.split('/').next().unwrap();
        let named = if name == "-" { String::new() } else { format!(" \"{name}\"") };
        let place = match namespace {
            "-" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let message = format!(
            "{plural}.{GROUP}{named} is forbidden: User \"nobody\" cannot {verb} resource \"{resource}\" in API group \"{GROUP}\" {place}"
        );
        (method, format!("/apis/{GROUP}/v1beta2{path}"), message)
    })
}

#[tokio::test]
async fn paths_are_authorized_by_their_attributes() {
    let any = async || "never";
    let handlers = || Subresource::new("any").proxy(any);
    let group_version = GroupVersion::new(GROUP, "v1beta2")
        .path("/namespaces/{namespace}/{resource}/{name}/{metric}", handlers())
        .path("/{resource}/{name}/{metric}", handlers())
        .get("/namespaces/{namespace}/{metric}", any);
    let refuses = authorizer_fn(|_, _| Decision::no_opinion(""));
    let server = api_server(Kinds::new().group_version(group_version))
        .with_authorizers(Authorizers::new().with(refuses));
    let server = server.in_process(unreachable_cluster()).await.unwrap();
    for (method, path, message) in rows().filter(|(method, ..)| *method != "HEAD") {
        let request = Request::builder().method(method).uri(&path).body(Body::empty()).unwrap();
        let body = server.respond(user("nobody"), request).await.into_body();
        let status: Value =
            serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!((&status["code"], &status["message"]), (&403.into(), &message.into()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_apiserver_reads_the_same_attributes() {
    let Some(programs) = unless_missing(Programs::find()).unwrap() else { return };
    let control_plane = ControlPlane::start_without_controllers(&programs).unwrap();
    let client = test_server::client(&control_plane.kubeconfig()).await.unwrap();
    for (method, path, message) in rows().filter(|(method, ..)| *method != "HEAD") {
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
