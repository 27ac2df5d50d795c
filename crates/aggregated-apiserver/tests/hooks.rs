//! The additions of a program around its kinds: hooks after the start, checks of its health, metrics, changes of the OpenAPI
//! documents, and layers of tower.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aggregated_apiserver::serving::PostStart;
use aggregated_apiserver::serving::prometheus_client::metrics::counter::Counter;
use aggregated_apiserver::serving::prometheus_client::metrics::gauge::Gauge;
use aggregated_apiserver::{ApiServer, StartError};
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::header::HeaderName;
use http_body_util::BodyExt;
use hyper::client::conn::http2::SendRequest;
use kube::api::{Api, DynamicObject, ObjectMeta, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use test_server::{ListeningServer, foo_server};
use tokio::sync::oneshot;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

async fn start(server: ApiServer) -> ListeningServer {
    Box::pin(ListeningServer::serving(server)).await
}

async fn get(connection: &mut SendRequest<Body>, path: &str) -> (u16, String) {
    let request = Request::get(format!("https://localhost{path}"));
    let request =
        request.header("x-remote-user", "admin").header("x-remote-group", "system:masters");
    let response = connection.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn foo(name: &str) -> (ApiResource, DynamicObject) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut object = DynamicObject::new(name, &resource);
    object.metadata = metadata;
    object.data = json!({"spec": {"size": 1}});
    (resource, object)
}

async fn create_foo(server: PostStart) -> Result<(), kube::Error> {
    let (resource, object) = foo("first");
    let foos: Api<DynamicObject> = Api::namespaced_with(server.client(), "default", &resource);
    foos.create(&PostParams::default(), &object).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_creates_objects_and_the_server_is_ready_afterwards() {
    let (go, may_go) = oneshot::channel::<()>();
    let (tell, created) = oneshot::channel();
    let hook = async move |server: PostStart| {
        let _ = may_go.await;
        let result = create_foo(server).await;
        let _ = tell.send(());
        result
    };
    let server = start(foo_server().with_post_start_hook("foos", hook)).await;
    let mut proxy = server.proxy().await;
    let (status, unready) = get(&mut proxy, "/readyz").await;
    assert_eq!(status, 500);
    let expected = "[-]poststarthook/foos failed: reason withheld";
    assert!(unready.contains(expected), "{unready}");
    let one = get(&mut proxy, "/readyz/poststarthook/foos").await;
    assert_eq!(one, (500, "internal server error: not finished".to_owned()));
    assert_eq!(get(&mut proxy, "/livez").await.0, 200, "a restart does not help");
    go.send(()).unwrap();
    timeout(PATIENCE, created).await.unwrap().unwrap();
    let (status, found) =
        get(&mut proxy, "/apis/example.com/v1/namespaces/default/foos/first").await;
    assert_eq!(status, 200, "{found}");
    // The result of the hook is set just after it has ended.
    let ready = async {
        while get(&mut proxy, "/readyz/poststarthook/foos").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ready).await.unwrap();
    assert_eq!(get(&mut proxy, "/readyz").await, (200, "ok".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_or_panics_ends_the_server() {
    let failing = async |_: PostStart| Err("no database");
    let panicking = async |_: PostStart| -> Result<(), String> { panic!("no database") };
    // A panic before the first await is caught, too.
    let at_once =
        |_: PostStart| -> std::future::Ready<Result<(), String>> { panic!("no database") };
    for (server, why) in [
        (foo_server().with_post_start_hook("open", failing), "has failed: no database"),
        (
            foo_server().with_post_start_hook("open", panicking),
            "has failed: it panicked: no database",
        ),
        (
            foo_server().with_post_start_hook("open", at_once),
            "has failed: it panicked: no database",
        ),
    ] {
        let ListeningServer { running, files: _files } = start(server).await;
        let ended = timeout(PATIENCE, running.run(Duration::ZERO)).await.unwrap();
        let error = ended.unwrap_err().to_string();
        assert_eq!(error, format!("serving ended: poststarthook/open {why}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_ends_with_the_server() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (dropped, is_dropped) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let guard = Dropped(Arc::clone(&dropped));
    let (tell, told) = oneshot::channel();
    let hook = async move |server: PostStart| -> Result<(), String> {
        let _guard = guard;
        server.ended().await;
        tokio::task::yield_now().await;
        let _ = tell.send(());
        Ok(())
    };
    // A hook that does not end is dropped.
    let guard = Dropped(Arc::clone(&is_dropped));
    let endless = async move |_: PostStart| -> Result<(), String> {
        let _guard = guard;
        pending().await
    };
    let server = foo_server().with_post_start_hook("controller", hook);
    let server = start(server.with_post_start_hook("endless", endless)).await;
    timeout(PATIENCE, server.running.drain(Duration::ZERO)).await.unwrap();
    timeout(PATIENCE, told).await.unwrap().unwrap();
    let ended = async {
        while ![&dropped, &is_dropped].iter().all(|state| state.load(Ordering::Relaxed)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn hooks_run_in_a_server_without_a_socket() {
    let (tell, told) = oneshot::channel();
    let hook = async move |server: PostStart| -> Result<(), kube::Error> {
        let _ = tell.send(server.client().list_api_groups().await?.groups.len());
        Ok(())
    };
    let server = foo_server().with_post_start_hook("count", hook);
    let _server = server.in_process(test_server::unreachable_cluster()).await.unwrap();
    assert_eq!(timeout(PATIENCE, told).await.unwrap().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_change_readiness_and_liveness() {
    let (ready, live) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let check = |state: &Arc<AtomicBool>| {
        let state = Arc::clone(state);
        move || state.load(Ordering::Relaxed).then_some(()).ok_or_else(|| "lost".to_owned())
    };
    let server = foo_server().with_readiness_check("database", check(&ready));
    let server = start(server.with_liveness_check("worker", check(&live))).await;
    let mut proxy = server.proxy().await;
    let states = async |connection: &mut SendRequest<Body>| {
        let mut states = Vec::new();
        for endpoint in ["/livez", "/healthz", "/readyz"] {
            states.push(get(connection, endpoint).await.0);
        }
        states
    };
    assert_eq!(states(&mut proxy).await, [200, 200, 200]);
    ready.store(false, Ordering::Relaxed);
    assert_eq!(states(&mut proxy).await, [200, 200, 500]);
    let one = get(&mut proxy, "/readyz/database").await;
    assert_eq!(one, (500, "internal server error: lost".to_owned()));
    assert_eq!(get(&mut proxy, "/livez/database").await.0, 404);
    assert_eq!(get(&mut proxy, "/readyz?exclude=database").await.0, 200);
    ready.store(true, Ordering::Relaxed);
    live.store(false, Ordering::Relaxed);
    assert_eq!(states(&mut proxy).await, [500, 500, 500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_panics_fails() {
    let server = foo_server().with_readiness_check("database", || panic!("no database"));
    let server = start(server).await;
    let mut proxy = server.proxy().await;
    assert_eq!(get(&mut proxy, "/readyz").await.0, 500);
    let expected = "internal server error: the check panicked: no database";
    assert_eq!(get(&mut proxy, "/readyz/database").await, (500, expected.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requested_checks_are_called() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let slow = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let server = foo_server().with_readiness_check("slow", slow);
    let server = start(server.with_readiness_check("other", || Ok(()))).await;
    let mut proxy = server.proxy().await;
    for (path, expected) in [
        ("/readyz", 1),
        ("/readyz/slow", 1),
        ("/readyz/other", 0),
        ("/readyz?exclude=slow&verbose", 0),
        ("/livez", 0),
    ] {
        calls.store(0, Ordering::Relaxed);
        let (status, text) = get(&mut proxy, path).await;
        assert_eq!((status, calls.load(Ordering::Relaxed)), (200, expected), "{path}: {text}");
        assert_eq!(text.contains("[+]slow excluded: ok"), path.contains("exclude"), "{text}");
    }
}

#[tokio::test]
async fn names_of_checks_are_unique_and_parts_of_a_path() {
    let check = || Ok(());
    let hook = async |_: PostStart| Ok::<(), String>(());
    for (server, expected) in [
        (foo_server().with_readiness_check("store", check), "another check has this name"),
        (foo_server().with_readiness_check("source-pods", check), "another check has this name"),
        (
            foo_server().with_readiness_check("one", check).with_liveness_check("one", check),
            "another check has this name",
        ),
        (
            foo_server().with_post_start_hook("one", hook).with_post_start_hook("one", hook),
            "another check has this name",
        ),
        (foo_server().with_readiness_check("", check), "the name must consist of"),
        (foo_server().with_readiness_check("a//b", check), "the name must consist of"),
        (foo_server().with_readiness_check("a b", check), "the name must consist of"),
        (foo_server().with_readiness_check("a\n[+]b ok", check), "the name must consist of"),
    ] {
        let started = server.in_process(test_server::unreachable_cluster()).await;
        let Err(error @ StartError::Check { .. }) = started else { panic!("{expected}") };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_the_program_follow_those_of_the_server() {
    let (books, clash) = (Counter::<u64>::default(), Gauge::<i64>::default());
    clash.set(77);
    let (of_registry, of_clash) = (books.clone(), clash.clone());
    let server = foo_server()
        .with_metrics(|registry| registry.register("library_books", "Books", of_registry))
        .with_metrics(|registry| {
            registry.register("process_start_time_seconds", "A clash", of_clash);
            registry.register("library_shelves", "Shelves", Gauge::<i64>::default());
        });
    let server = start(server).await;
    let mut proxy = server.proxy().await;
    books.inc_by(3);
    let (_, text) = get(&mut proxy, "/metrics").await;
    for line in ["# TYPE library_books_total counter", "library_books_total 3", "library_shelves 0"]
    {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let starts = text.lines().filter(|line| line.starts_with("process_start_time_seconds "));
    let starts: Vec<&str> = starts.collect();
    assert!(starts.len() == 1 && !starts[0].ends_with(" 77"), "{starts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_in_all_openapi_documents_and_their_hashes() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let changed = foo_server()
        .with_openapi(|document| document["info"]["title"] = json!("Foos"))
        .with_openapi(move |document| {
            counted.fetch_add(1, Ordering::Relaxed);
            let title = document["info"]["title"].as_str().unwrap_or_default();
            document["info"]["title"] = json!(format!("{title} and more"));
        });
    let (changed, unchanged) = (start(changed).await, start(foo_server()).await);
    let panicking = foo_server().with_openapi(|document| {
        document.clear();
        panic!("no document");
    });
    let panicking = start(panicking).await;
    let read = async |server: &ListeningServer| {
        let mut proxy = server.proxy().await;
        let mut documents = Vec::new();
        for path in ["/openapi/v2", "/openapi/v3/apis/example.com/v1", "/openapi/v3"] {
            let (status, body) = get(&mut proxy, path).await;
            assert_eq!(status, 200, "{path}");
            documents.push(serde_json::from_str::<Value>(&body).unwrap());
        }
        documents
    };
    let [v2, v3, index] = read(&changed).await.try_into().unwrap();
    assert_eq!(v2["info"]["title"], "Foos and more");
    assert_eq!(v3["info"]["title"], "Foos and more");
    let plain = read(&unchanged).await;
    assert_ne!(index, plain[2], "the hash is of the changed document");
    assert_eq!(read(&panicking).await, plain);
    read(&changed).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "each document is changed once");
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_see_all_requests_of_connections_in_their_order() {
    const SEEN: HeaderName = HeaderName::from_static("x-layers");
    let layer = |name: &'static str| {
        from_fn(async move |request: Request, next: Next| {
            let mut response = next.run(request).await;
            response.headers_mut().append(SEEN, name.parse().unwrap());
            response
        })
    };
    let panicking = from_fn(async |request: Request, next: Next| {
        if request.uri().path() == "/panic" {
            panic!("a layer");
        }
        next.run(request).await
    });
    let server = foo_server().with_layer(layer("inner")).with_layer(panicking);
    let server = start(server.with_layer(layer("outer"))).await;
    let mut proxy = server.proxy().await;
    for (path, status) in [("/livez", 200), ("/apis/example.com/v1/foos", 200), ("/none", 404)] {
        let request = Request::get(format!("https://localhost{path}"));
        let request =
            request.header("x-remote-user", "admin").header("x-remote-group", "system:masters");
        let response = proxy.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let seen: Vec<_> = response.headers().get_all(SEEN).iter().collect();
        assert_eq!(seen, ["inner", "outer"], "{path}");
    }
    assert_eq!(get(&mut proxy, "/panic").await.0, 500);
    assert_eq!(get(&mut proxy, "/livez").await.0, 200);
}
