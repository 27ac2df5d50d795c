//! Metrics of requests, with the names and labels of kube-apiserver.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aggregated_apiserver::{InProcess, User};
use axum::body::Body;
use futures::FutureExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use test_server::admin;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

async fn ask(server: &InProcess, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let response =
        server.respond(admin(), request.body(Body::from(body.to_owned())).unwrap()).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The value of a time series. Its labels may be in any order.
fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |line: &str| {
        labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    };
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let line = lines.find(|line| has(line))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A server may have thousands of kinds, most of which are not used.
#[tokio::test]
async fn an_unused_kind_has_two_metrics() {
    let server = test_server::server(DEFINITION).await;
    let watch = format!("{FOOS}?watch=true&timeoutSeconds=1");
    let lines = async || {
        let (_, text) = ask(&server, "GET", "/metrics", "").await;
        let of_kind = text.lines().filter(|line| line.contains("resource=\"foos\""));
        let mut names: Vec<String> = of_kind
            .filter(|line| !line.starts_with("apiserver_request_"))
            .map(|line| line.split('{').next().unwrap_or_default().to_owned())
            .collect();
        names.dedup();
        names
    };
    let unused = ["apiserver_resource_objects", "apiserver_watch_cache_synced"];
    assert_eq!(lines().await, unused);
    ask(&server, "GET", &watch, "").await;
    let watched = lines().await;
    assert!(!watched.iter().any(|name| name.starts_with("apiserver_watch_events")), "{watched:?}");
    let foo = r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"}}"#;
    ask(&server, "POST", FOOS, foo).await;
    ask(&server, "GET", &watch, "").await;
    let used = lines().await;
    for name in ["apiserver_watch_cache_window_events", "apiserver_watch_events_total"] {
        assert!(used.iter().any(|one| one == name), "{name}: {used:?}");
    }
}

#[tokio::test]
async fn requests_are_counted_with_labels_of_served_resources_only() {
    let server = test_server::server(DEFINITION).await;
    let foo = r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"}}"#;
    let (status, _) = ask(&server, "POST", FOOS, foo).await;
    assert_eq!(status, StatusCode::CREATED);
    for _ in 0..2 {
        ask(&server, "POST", FOOS, foo).await;
        ask(&server, "GET", &format!("{FOOS}/a"), "").await;
    }
    ask(&server, "GET", FOOS, "").await;
    ask(&server, "GET", "/apis/example.com/v1/foos", "").await;
    ask(&server, "DELETE", &format!("{FOOS}/a?dryRun=All"), "").await;
    ask(&server, "GET", &format!("{FOOS}?watch=true&timeoutSeconds=1"), "").await;
    ask(&server, "GET", "/apis//", "").await;
    // Values that clients make up do not become labels.
    for number in 0..100 {
        ask(&server, "GET", &format!("/apis/example.com/v1/foos{number}"), "").await;
        ask(&server, "GET", &format!("/apis/group-{number}"), "").await;
        ask(&server, "GET", &format!("/nothing-{number}"), "").await;
        ask(&server, &format!("METHOD{number}"), FOOS, "").await;
    }
    // This request is abandoned, because its body never arrives.
    let body = Body::from_stream(futures::stream::pending::<Result<String, Infallible>>());
    let asked = server.respond(admin(), Request::post(FOOS).body(body).unwrap());
    assert!(asked.now_or_never().is_none());
    let (status, text) = ask(&server, "GET", "/metrics", "").await;
    assert_eq!(status, StatusCode::OK);
    let total = "apiserver_request_total";
    let of = |verb, scope, code| {
        vec![
            ("verb", verb),
            ("scope", scope),
            ("code", code),
            ("group", "example.com"),
            ("version", "v1"),
            ("resource", "foos"),
            ("subresource", ""),
            ("component", "apiserver"),
        ]
    };
    assert_eq!(value(&text, total, &of("POST", "resource", "201")), Some(1.0), "{text}");
    assert_eq!(value(&text, total, &of("POST", "resource", "409")), Some(2.0));
    assert_eq!(value(&text, total, &of("POST", "resource", "499")), Some(1.0));
    assert_eq!(value(&text, total, &of("GET", "resource", "200")), Some(2.0));
    assert_eq!(value(&text, total, &of("LIST", "namespace", "200")), Some(1.0));
    assert_eq!(value(&text, total, &of("LIST", "cluster", "200")), Some(1.0));
    assert_eq!(value(&text, total, &of("WATCH", "namespace", "200")), Some(1.0));
    let dry_run = [("verb", "DELETE"), ("dry_run", "All"), ("code", "200")];
    assert_eq!(value(&text, total, &dry_run), Some(1.0));
    assert_eq!(value(&text, total, &[("subresource", "/apis"), ("code", "200")]), Some(1.0));
    let unknown = [("verb", "GET"), ("code", "404"), ("resource", ""), ("subresource", "")];
    assert_eq!(value(&text, total, &unknown), Some(300.0));
    let buckets = "apiserver_request_duration_seconds_bucket";
    let all = [("verb", "GET"), ("resource", "foos"), ("le", "+Inf")];
    assert_eq!(value(&text, buckets, &all), Some(2.0));
    let sizes = "apiserver_response_sizes_count";
    assert_eq!(value(&text, sizes, &[("verb", "LIST"), ("scope", "cluster")]), Some(1.0));
    let events = "apiserver_watch_events_total";
    assert_eq!(value(&text, events, &[("resource", "foos")]), Some(1.0));
    let watches = "apiserver_longrunning_requests";
    assert_eq!(value(&text, watches, &[("verb", "WATCH")]), Some(0.0));
    let inflight = "apiserver_current_inflight_requests";
    assert_eq!(value(&text, inflight, &[("request_kind", "readOnly")]), Some(0.0));
    assert!(text.lines().count() < 1_000, "{}", text.lines().count());
    assert!(text.contains("# TYPE apiserver_request_total counter\n"), "{text}");
    assert!(text.contains("# HELP apiserver_request_duration_seconds "), "{text}");
}

/// New names, users, paths and methods add no time series.
#[tokio::test]
async fn values_made_up_by_clients_add_no_metric_series() {
    let server = test_server::server(DEFINITION).await;
    let send = async |user: &str, method: &str, path: &str| {
        let user = User { name: user.to_owned(), ..admin() };
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        server.respond(user, request).await.into_body().collect().await.unwrap();
    };
    let round = async |number: usize| {
        let user = format!("user-{number}");
        send(&user, "GET", &format!("{FOOS}/name-{number}")).await;
        send(&user, "GET", &format!("/path-{number}/{number}")).await;
        send(&user, &format!("VERB{number}"), FOOS).await;
        let group = format!("/apis/group-{number}/v{number}/namespaces/n-{number}/plural-{number}");
        send(&user, "GET", &format!("{group}/name/sub-{number}")).await;
    };
    let series = async || {
        let (_, text) = ask(&server, "GET", "/metrics", "").await;
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    round(0).await;
    series().await;
    let before = series().await;
    for number in 1..=25_000 {
        round(number).await;
    }
    assert_eq!(series().await, before);
    let (_, text) = ask(&server, "GET", "/metrics", "").await;
    let of = [("verb", "GET"), ("resource", "foos"), ("code", "404")];
    assert_eq!(value(&text, "apiserver_request_total", &of), Some(25_001.0));
}

/// During concurrent writes and reads, the counters never decrease and never exceed the number of sent requests. In the
/// end they are equal to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_totals_are_exact_under_concurrent_requests() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 100;
    let server = Arc::new(test_server::server(DEFINITION).await);
    let begun = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (server, begun) = (Arc::clone(&server), Arc::clone(&begun));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let name = format!("foo-{client}-{round}");
                    let foo = format!(
                        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}}}}"#
                    );
                    let path = format!("{FOOS}/{name}");
                    assert_eq!(ask(&server, "POST", FOOS, &foo).await.0, StatusCode::CREATED);
                    assert_eq!(ask(&server, "POST", FOOS, &foo).await.0, StatusCode::CONFLICT);
                    assert_eq!(ask(&server, "GET", &path, "").await.0, StatusCode::OK);
                    assert_eq!(ask(&server, "DELETE", &path, "").await.0, StatusCode::OK);
                    assert_eq!(ask(&server, "GET", &path, "").await.0, StatusCode::NOT_FOUND);
                }
            })
        })
        .collect();
    let sent =
        [("POST", "201"), ("POST", "409"), ("GET", "200"), ("DELETE", "200"), ("GET", "404")];
    let totals = |text: &str| {
        sent.map(|(verb, code)| {
            let labels = [("verb", verb), ("code", code), ("resource", "foos")];
            value(text, "apiserver_request_total", &labels).unwrap_or(0.0)
        })
    };
    let mut before = [0.0; 5];
    let mut scrapes = 0;
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        let (_, text) = ask(&server, "GET", "/metrics", "").await;
        let most = f64::from(u32::try_from(begun.load(Ordering::SeqCst)).unwrap());
        let now = totals(&text);
        for (now, before) in now.iter().zip(before) {
            assert!((before..=most).contains(now), "{before} {now} {most}");
        }
        before = now;
        scrapes += 1;
    }
    assert!(scrapes > 0);
    for client in clients {
        client.await.unwrap();
    }
    let (_, text) = ask(&server, "GET", "/metrics", "").await;
    let all = f64::from(u32::try_from(CLIENTS * ROUNDS).unwrap());
    assert_eq!(totals(&text), [all; 5]);
    let count = |name: &str, labels: &[(&str, &str)]| value(&text, name, labels).unwrap();
    let of = [("verb", "GET"), ("resource", "foos")];
    assert_eq!(count("apiserver_request_duration_seconds_count", &of), 2.0 * all);
    assert_eq!(count("apiserver_response_sizes_count", &of), 2.0 * all);
}

#[tokio::test]
async fn metrics_report_storage_watch_cache_and_authorization() {
    let server = test_server::server(DEFINITION).await;
    let foo = r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"}}"#;
    ask(&server, "POST", FOOS, foo).await;
    ask(&server, "GET", &format!("{FOOS}?watch=true&timeoutSeconds=1"), "").await;
    let (_, text) = ask(&server, "GET", "/metrics", "").await;
    let of = [("group", "example.com"), ("resource", "foos")];
    assert_eq!(value(&text, "apiserver_resource_objects", &of), Some(1.0), "{text}");
    let bytes = value(&text, "apiserver_resource_size_estimate_bytes", &of).unwrap();
    assert!((100.0..5_000.0).contains(&bytes), "{bytes}");
    assert_eq!(value(&text, "apiserver_watch_cache_synced", &of), Some(1.0));
    assert_eq!(value(&text, "apiserver_watch_cache_window_events", &of), Some(1.0));
    let size = value(&text, "apiserver_storage_size_bytes", &[]).unwrap();
    assert!(size >= bytes, "{size}");
    assert_eq!(value(&text, "apiserver_watch_events_sizes_count", &of), Some(1.0));
    let authenticated = value(&text, "authentication_attempts", &[("result", "success")]);
    assert_eq!(authenticated, Some(3.0));
    let allowed = [("result", "allowed")];
    assert_eq!(value(&text, "authorization_attempts_total", &allowed), Some(3.0));
    let admission = "apiserver_admission_step_admission_duration_seconds_count";
    let of = [("operation", "CREATE"), ("rejected", "false"), ("type", "validate")];
    assert_eq!(value(&text, admission, &of), Some(1.0));
    assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
}

#[tokio::test]
async fn metrics_count_cache_hits_and_misses_of_access_reviews() {
    let server = test_server::server_of_all(DEFINITION).await;
    let jane = || User { name: "jane".to_owned(), ..User::default() };
    for _ in 0..3 {
        let request = Request::get(FOOS).body(Body::empty()).unwrap();
        let response = server.respond(jane(), request).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    let (_, text) = ask(&server, "GET", "/metrics", "").await;
    let cache = "apiserver_delegated_authz_cache_request_total";
    assert_eq!(value(&text, cache, &[("status", "hit")]), Some(2.0), "{text}");
    assert_eq!(value(&text, cache, &[("status", "miss")]), Some(1.0));
    let asked = "apiserver_delegated_authz_request_total";
    assert_eq!(value(&text, asked, &[("code", "201")]), Some(1.0));
    let took = "apiserver_delegated_authz_request_duration_seconds_bucket";
    assert_eq!(value(&text, took, &[("code", "201"), ("le", "10.0")]), Some(1.0));
}

#[tokio::test]
async fn metrics_require_permission_to_get_them() {
    // The authorization of jane cannot be decided, because the cluster is unreachable.
    let server = test_server::server(DEFINITION).await;
    let jane = User { name: "jane".to_owned(), ..User::default() };
    let request = || Request::get("/metrics").body(Body::empty()).unwrap();
    let response = server.respond(jane.clone(), request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("apiserver_"), "{body:?}");
    let server = test_server::server_of_all(DEFINITION).await;
    assert_eq!(server.respond(jane, request()).await.status(), StatusCode::OK);
}
