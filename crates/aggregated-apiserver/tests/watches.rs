//! Cases in which the server ends a watch that its client would continue.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use aggregated_apiserver::{InProcess, Kinds, User};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use test_server::{Events, FakeCluster, admin, api_server, ask};
use tokio::time::timeout;

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
const MINUTE: Duration = Duration::from_secs(60);

/// The responses of the cluster to an access review.
const YES: u8 = 0;
const NO: u8 = 1;
const NOTHING: u8 = 2;

async fn server() -> (InProcess, Arc<AtomicU8>) {
    let says = Arc::new(AtomicU8::new(YES));
    let said = Arc::clone(&says);
    let cluster = FakeCluster::default();
    cluster.authorize_by(move |_| match said.load(Ordering::Relaxed) {
        NOTHING => None,
        says => Some(says == YES),
    });
    let server = api_server(Kinds::new().crds_from_yaml(DEFINITION).unwrap());
    (server.in_process(cluster.client()).await.unwrap(), says)
}

/// A user with so much user info that its authorization results are not cached. The cache uses the clock of the
/// machine, which a test cannot advance.
fn jane() -> User {
    let groups = vec!["x".repeat(10_000)];
    User { name: "jane".to_owned(), groups, ..User::default() }
}

async fn watch(server: &InProcess, user: User, query: &str) -> Body {
    let request = Request::get(format!("{FOOS}?watch=1&{query}")).body(Body::empty()).unwrap();
    let response = server.respond(user, request).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Whether the watch ends within this time, without an event.
async fn ends(body: &mut Body, within: Duration) -> bool {
    let ended = timeout(within, body.frame()).await;
    assert!(matches!(ended, Err(_) | Ok(None)), "{ended:?}");
    ended.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_permission_is_revoked() {
    let (server, says) = server().await;
    let mut allowed = watch(&server, jane(), "timeoutSeconds=80000").await;
    let mut of_admin = watch(&server, admin(), "timeoutSeconds=80000").await;
    assert!(!ends(&mut allowed, 60 * MINUTE).await);
    says.store(NO, Ordering::Relaxed);
    assert!(ends(&mut allowed, 7 * MINUTE).await);
    assert!(!ends(&mut of_admin, MINUTE).await, "an administrator's has no end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_an_hour_after_the_last_successful_authorization() {
    let (server, says) = server().await;
    let mut body = watch(&server, jane(), "timeoutSeconds=80000").await;
    says.store(NOTHING, Ordering::Relaxed);
    assert!(!ends(&mut body, 55 * MINUTE).await);
    says.store(YES, Ordering::Relaxed);
    assert!(!ends(&mut body, 55 * MINUTE).await);
    says.store(NOTHING, Ordering::Relaxed);
    assert!(ends(&mut body, 70 * MINUTE).await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_revision_ends_with_an_error_event() {
    let (server, _) = server().await;
    let (_, list) = ask(&server, "GET", FOOS, &Value::Null).await;
    let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    // The revision belongs to this process, not to another one.
    let later = now + (1 << 40);
    let body = watch(&server, jane(), &format!("resourceVersion={later}")).await;
    let mut events = Events::of(body);
    let event = timeout(MINUTE, events.next()).await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &504.into()));
    let cause = &event["object"]["details"]["causes"][0]["reason"];
    assert_eq!(cause, "ResourceVersionTooLarge");
    assert_eq!(events.next().await, None);
}
