//! Group versions whose paths code of the user handles: discovery, permissions, limits, errors and documents.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

#[path = "paths/attributes.rs"]
mod attributes;
#[path = "paths/metrics_apis.rs"]
mod metrics_apis;
#[path = "paths/permissions.rs"]
mod permissions;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aggregated_apiserver::paths::{GroupVersion, PathParameters};
use aggregated_apiserver::subresource::{Ended, Parameters, SubPath, Subresource};
use aggregated_apiserver::{InProcess, Kinds};
use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::{DEFINITION, admin, api_server, server_of, unreachable_cluster};
use tokio::sync::watch;

const ROOT: &str = "/apis/weather.example.com/v1";

#[derive(Deserialize)]
struct City {
    namespace: String,
    city: String,
}

#[derive(Deserialize, JsonSchema)]
struct Options {
    days: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct Forecast {
    text: String,
}

fn weather() -> GroupVersion {
    let forecast = async |PathParameters(path): PathParameters<City>,
                          Parameters(options): Parameters<Options>| {
        format!("{} {} {}", path.namespace, path.city, options.days.unwrap_or(1))
    };
    let all =
        async |PathParameters(path): PathParameters<BTreeMap<String, String>>| format!("{path:?}");
    let address = async |PathParameters(path): PathParameters<BTreeMap<String, IpAddr>>| {
        path["address"].to_string()
    };
    let below = async |SubPath(path): SubPath| path;
    let follow = async |ended: Ended| {
        let _ = ended;
        let first = stream::once(async { Ok::<_, std::io::Error>("first") });
        Body::from_stream(first.chain(stream::pending()))
    };
    let hang = async || {
        std::future::pending::<()>().await;
        ""
    };
    let described = Subresource::new("forecast").get(forecast).parameters::<Options>();
    GroupVersion::new("weather.example.com", "v1")
        .path("/namespaces/{namespace}/forecasts/{city}", described.returns::<Forecast>())
        .get("/namespaces/{namespace}/{resource}/{name}/{part}", all)
        .post("/echo", async |body: String| body)
        .put("/echo", async |body: String| body)
        .get("/addresses/{address}", address)
        .get("/panic", async || -> &'static str { panic!("a panic of a handler") })
        .get("/hang", hang)
        .path("/files/{name}/content", Subresource::new("files").proxy(below))
        .path(
            "/follow",
            Subresource::new("follow")
                .get(follow)
                .long_running(Duration::from_secs(9))
                .open_ended(),
        )
        .schema::<Forecast>("com.example.weather.v1.Forecast")
}

/// The definition of `foos` in a group, in version `v1`.
fn definition(group: &str) -> CustomResourceDefinition {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": format!("foos.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

async fn serving() -> InProcess {
    server_of(Kinds::new().group_version(weather())).await
}

async fn send(server: &InProcess, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let response = server.respond(admin(), request.body(Body::from(body.to_owned())).unwrap());
    let (head, body) = response.await.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn get(server: &InProcess, path: &str) -> Value {
    let (status, text) = send(server, "GET", path, "").await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn handlers_get_the_parameters_the_query_and_the_body() {
    let server = serving().await;
    for (method, path, sent, code, expected) in [
        ("GET", "/namespaces/n/forecasts/oslo?days=3", "", 200, "n oslo 3"),
        ("HEAD", "/namespaces/n/forecasts/oslo", "", 200, ""),
        ("GET", "/namespaces/n/forecasts/%C3%A5s", "", 200, "n ås 1"),
        ("GET", "/namespaces/n/pods/*/m", "", 200, "\"name\": \"*\""),
        ("POST", "/echo", "hello", 200, "hello"),
        ("PUT", "/echo/", "hello", 200, "hello"),
        ("DELETE", "/files/a/content/b/c%20d", "", 200, "b/c%20d"),
        ("OPTIONS", "/files/a/content/b", "", 200, "b"),
        ("GET", "/files/a/content", "", 200, ""),
        ("GET", "/echo", "", 405, "does not allow this method"),
        ("OPTIONS", "/echo", "", 405, "does not allow this method"),
        ("BREW", "/echo", "", 405, "does not allow this method"),
        ("POST", "/echo?dryRun=All", "", 400, "the path has no dry run"),
        ("GET", "/namespaces/n/forecasts/oslo?days=x", "", 400, "not an integer"),
        ("GET", "/addresses/192.0.2.1", "", 200, "192.0.2.1"),
        ("GET", "/addresses/x", "", 400, "the path is invalid: invalid IP address syntax"),
        ("GET", "/panic", "", 500, "caused the server to panic"),
        ("GET", "/hang", "", 504, "Timeout"),
        ("GET", "/unknown", "", 404, "could not find the requested resource"),
    ] {
        let (status, text) = send(&server, method, &format!("{ROOT}{path}"), sent).await;
        assert_eq!(status, code, "{method} {path}: {text}");
        assert!(text.contains(expected), "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn hostile_paths_reach_no_handler() {
    let server = serving().await;
    for (path, code) in [
        ("/namespaces/n/pods/../m", 404),
        ("/namespaces/n/pods/%2E%2E/m", 404),
        ("/namespaces/../pods/a/m", 404),
        ("/namespaces/n/pods//m", 404),
        ("//namespaces/n/pods/a/m", 404),
        ("/namespaces/n/pods/a%2Fm", 400),
        ("/namespaces/n/forecasts%2Foslo", 400),
        ("/namespaces/n/status/a/m", 404),
        ("/watch/namespaces/n/pods/a/m", 404),
        ("/proxy/namespaces/n/pods/a/m", 404),
        ("/files/a/content/../b", 400),
        ("/files/a/content/%2E%2E/b", 400),
        ("/files/a/content%2Fb", 400),
        ("/files/a/content/%FF", 400),
    ] {
        let (status, text) = send(&server, "GET", &format!("{ROOT}{path}"), "").await;
        assert_eq!(status, code, "{path}: {text}");
    }
    let long = "x".repeat(4 << 20);
    assert_eq!(send(&server, "POST", &format!("{ROOT}/echo"), &long).await.0, 413);
}

#[tokio::test]
async fn discovery_follows_the_resources() {
    let metric = |name: &str| APIResource {
        name: name.to_owned(),
        namespaced: true,
        kind: "MetricValueList".to_owned(),
        verbs: vec!["get".to_owned()],
        ..APIResource::default()
    };
    let (sender, receiver) = watch::channel(vec![metric("pods/http_requests")]);
    let listing = weather().resources(move || receiver.borrow().clone());
    let older = GroupVersion::new("weather.example.com", "v1beta1").get("/a", async || "");
    let server = server_of(Kinds::new().group_version(older).group_version(listing)).await;
    let names = async || {
        let list = get(&server, ROOT).await;
        let resources = list["resources"].as_array().unwrap().iter();
        resources.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let aggregated = async || {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let request = Request::get("/apis").header("accept", accept).body(Body::empty()).unwrap();
        let (head, body) = server.respond(admin(), request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap();
        (head.headers["etag"].clone(), list["items"][0]["versions"].clone())
    };
    assert_eq!(names().await, ["pods/http_requests"]);
    let (before, versions) = aggregated().await;
    let expected = json!([
        {"version": "v1", "freshness": "Current", "resources": [{
            "resource": "pods", "scope": "Namespaced", "singularResource": "", "verbs": [],
            "responseKind": {"group": "", "version": "", "kind": ""},
            "subresources": [{
                "subresource": "http_requests", "verbs": ["get"],
                "responseKind": {"group": "weather.example.com", "version": "v1", "kind": "MetricValueList"},
            }],
        }]},
        {"version": "v1beta1", "freshness": "Current", "resources": []},
    ]);
    assert_eq!(versions, expected);
    assert_eq!(aggregated().await.0, before);
    sender.send_replace(vec![metric("pods/a"), metric("pods/b"), metric("nodes")]);
    assert_eq!(names().await, ["nodes", "pods/a", "pods/b"]);
    let (after, _) = aggregated().await;
    // The order of the resources does not matter.
    sender.send_replace(vec![metric("nodes"), metric("pods/b"), metric("pods/a")]);
    let (reordered, versions) = aggregated().await;
    assert_ne!(after, before);
    assert_eq!(after, reordered);
    assert_eq!(versions[0]["resources"][0]["resource"], "nodes");
    assert_eq!(versions[0]["resources"][1]["subresources"].as_array().unwrap().len(), 2);
    let group = get(&server, "/apis/weather.example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    assert_eq!(get(&server, "/apis").await["groups"][0]["name"], "weather.example.com");
}

#[tokio::test]
async fn a_panic_of_the_function_keeps_the_known_resources() {
    let (sender, receiver) = watch::channel(true);
    let listing = weather().resources(move || match *receiver.borrow() {
        true => vec![APIResource { name: "pods/a".to_owned(), ..APIResource::default() }],
        false => panic!("a panic of the function"),
    });
    let server = server_of(Kinds::new().group_version(listing)).await;
    sender.send_replace(false);
    assert_eq!(get(&server, ROOT).await["resources"][0]["name"], "pods/a");
    server.runtime_kinds().serve(&definition("other.example.com")).await.unwrap();
    assert_eq!(get(&server, ROOT).await["resources"][0]["name"], "pods/a");
}

#[tokio::test]
async fn a_kind_of_run_time_has_no_path_of_a_group_version() {
    let any = async || "";
    let paths = GroupVersion::new("weather.example.com", "v1");
    for (paths, expected) in [
        (paths.get("/namespaces/{n}/foos/{a}/x", any), Some("/namespaces/{n}/foos/{a}/x")),
        (weather(), Some("/namespaces/{namespace}/{resource}/{name}/{part}")),
        (GroupVersion::new("weather.example.com", "v1").get("/search/{text}", any), None),
    ] {
        let server = server_of(Kinds::new().group_version(paths)).await;
        let served = server.runtime_kinds().serve(&definition("weather.example.com")).await;
        let error = served.err().map(|error| error.to_string());
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        if let (Some(error), Some(path)) = (error, expected) {
            let why = format!("path {path:?} has paths of the kind foos.weather.example.com");
            assert!(error.contains(&why), "{error}");
        }
    }
}

#[tokio::test]
async fn the_resources_are_listed_only_for_discovery() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let listing = weather().resources(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let server = server_of(Kinds::new().group_version(listing)).await;
    for (path, expected) in [
        ("/version", 0),
        ("/metrics", 0),
        ("/openapi/v2", 0),
        ("/openapi/v3", 0),
        ("/openapi/v3/apis/weather.example.com/v1", 0),
        ("/apis", 1),
        (ROOT, 1),
    ] {
        calls.store(0, Ordering::Relaxed);
        assert_eq!(send(&server, "GET", path, "").await.0, 200, "{path}");
        assert_eq!(calls.load(Ordering::Relaxed), expected, "{path}");
    }
}

#[tokio::test]
async fn metrics_have_the_segments_of_the_pattern() {
    let server = serving().await;
    for number in 0..50 {
        let path = format!("{ROOT}/namespaces/n/r{number}/*/metric{number}");
        assert_eq!(send(&server, "GET", &path, "").await.0, 200);
        assert_eq!(send(&server, "GET", &format!("{ROOT}/unknown{number}"), "").await.0, 404);
    }
    let (_, metrics) = send(&server, "GET", "/metrics", "").await;
    let counted = "resource=\"{resource}\",subresource=\"{part}\"";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(!metrics.contains("metric7") && !metrics.contains("unknown7"));
}

#[tokio::test]
async fn long_requests_end_when_the_server_ends() {
    let server = serving().await;
    let request = Request::get(format!("{ROOT}/follow")).body(Body::empty()).unwrap();
    let response = server.respond(admin(), request).await;
    drop(server);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "first");
}

#[tokio::test]
async fn openapi_has_the_paths_and_the_schemas() {
    let server = serving().await;
    let v3 = get(&server, "/openapi/v3/apis/weather.example.com/v1").await;
    let path = format!("{ROOT}/namespaces/{{namespace}}/forecasts/{{city}}");
    let operation = &v3["paths"][&path]["get"];
    assert_eq!(
        operation["operationId"],
        "getWeatherExampleComV1NamespacesByNamespaceForecastsByCity"
    );
    assert_eq!(operation["parameters"][0]["name"], "days");
    assert_eq!(v3["paths"][&path]["parameters"].as_array().unwrap().len(), 2);
    let schema = &v3["components"]["schemas"]["com.example.weather.v1.Forecast"];
    assert_eq!(schema["properties"]["text"]["type"], "string");
    let v2 = get(&server, "/openapi/v2").await;
    assert_eq!(v2["paths"][&path]["get"]["parameters"][0]["in"], "query");
    assert!(v2["definitions"].get("com.example.weather.v1.Forecast").is_some());
    assert!(v3["paths"].get(format!("{ROOT}/files/{{name}}/content/{{path}}")).is_some());
}

#[tokio::test]
async fn conflicts_and_invalid_paths_prevent_the_start() {
    let any = async || "";
    let foos = || Kinds::new().crds_from_yaml(DEFINITION).unwrap();
    let other = || GroupVersion::new("weather.example.com", "v1");
    let of_foos = || GroupVersion::new("example.com", "v1");
    let proxy = || Subresource::new("proxy").proxy(any);
    for (kinds, expected) in [
        (
            Kinds::new()
                .group_version(other().get("/a", any))
                .group_version(other().get("/b", any)),
            "group version weather.example.com/v1: weather.example.com/v1 was already added as a group version with paths",
        ),
        (
            Kinds::new().group_version(other().get("/a/{b}", any).get("/a/{c}", any)),
            "group version weather.example.com/v1: path \"/a/{c}\": path \"/a/{b}\" matches the same paths",
        ),
        (
            Kinds::new().group_version(other().path("/a", Subresource::new("a"))),
            "group version weather.example.com/v1: path \"/a\": no method has a handler",
        ),
        (
            Kinds::new().group_version(other().path("/namespaces/{n}/a/{b}", proxy())),
            "group version weather.example.com/v1: path \"/namespaces/{n}/a/{b}\": a proxy needs a subresource",
        ),
        (
            Kinds::new().group_version(other().path("/a", proxy())),
            "group version weather.example.com/v1: path \"/a\": a proxy needs a subresource",
        ),
        (
            Kinds::new().group_version(other().path("/a/{path}/proxy", proxy())),
            "group version weather.example.com/v1: path \"/a/{path}/proxy\": the parameter {path} is the path below the proxy",
        ),
        (
            Kinds::new().group_version(GroupVersion::new("", "v1").get("a", any)),
            "group version /v1: the group is invalid",
        ),
        (
            foos().group_version(of_foos().get("/namespaces/{n}/foos/{a}/x", any)),
            "group version example.com/v1: path \"/namespaces/{n}/foos/{a}/x\" has paths of the kind foos.example.com; remove one of them",
        ),
        (
            foos().group_version(of_foos().get("/{a}/{b}", any)),
            "group version example.com/v1: path \"/{a}/{b}\" has paths of the kind foos.example.com; remove one of them",
        ),
    ] {
        let error = api_server(kinds).in_process(unreachable_cluster()).await.err().unwrap();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    // A group version may have kinds, and paths beside them.
    let both = foos().group_version(of_foos().get("/search/{text}", any));
    let server = server_of(both).await;
    assert_eq!(send(&server, "GET", "/apis/example.com/v1/search/a", "").await.0, 200);
    assert_eq!(send(&server, "GET", "/apis/example.com/v1/foos", "").await.0, 200);
}
