//! A create request that admission delays for long reads its namespace again at the commit.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use axum::body::Body;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use test_server::DEFINITION;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
const PATIENCE: Duration = Duration::from_secs(60);

/// A plugin that blocks create requests until the test releases them, like a slow webhook.
struct Slow {
    arrived: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl AdmissionPlugin for Slow {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.name == "slow"
    }

    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'_>,
        _: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async {
            self.arrived.add_permits(1);
            self.go_on.acquire().await.unwrap().forget();
            Ok(())
        })
    }
}

/// A namespace `n` with this uid and phase.
fn namespace(uid: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "n", "uid": uid, "resourceVersion": "2"}, "status": {"phase": phase},
    })
}

/// The response to GET of the namespace: the namespace, or a status code.
type Live = Arc<std::sync::Mutex<Result<Value, u16>>>;

/// A cluster that lists these namespaces, sends these watch events, and responds to GET of a namespace.
fn cluster(listed: Value, events: mpsc::UnboundedReceiver<Value>, live: Live) -> Client {
    let events = Arc::new(tokio::sync::Mutex::new(events));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (events, listed) = (Arc::clone(&events), listed.clone());
        let live = live.lock().unwrap().clone();
        async move {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let body = match request.uri().path() {
                "/api/v1/namespaces" if is_watch => {
                    let lines = futures::stream::unfold(events, |events| async move {
                        let event = events.lock().await.recv().await?;
                        Some((Ok::<_, Infallible>(format!("{event}\n")), events))
                    });
                    Body::from_stream(lines.boxed())
                }
                "/api/v1/namespaces" => {
                    let list = json!({
                        "apiVersion": "v1", "kind": "NamespaceList",
                        "metadata": {"resourceVersion": "1"}, "items": listed,
                    });
                    Body::from(list.to_string())
                }
                "/api/v1/namespaces/n" if live.is_ok() => {
                    Body::from(live.unwrap_or_default().to_string())
                }
                _ => {
                    let code = live.err().unwrap_or(404);
                    let reason = if code == 404 { "NotFound" } else { "Unknown" };
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "reason": reason, "message": "not answered",
                    });
                    let mut response = Response::new(Body::from(status.to_string()));
                    *response.status_mut() = StatusCode::from_u16(code).unwrap();
                    return Ok::<_, Infallible>(response);
                }
            };
            Ok(Response::new(body))
        }
    });
    Client::new(service, "default")
}

async fn create(server: &InProcess, name: &str) -> (u16, String) {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}});
    let (status, body) = test_server::ask(server, "POST", FOOS, &object).await;
    (status.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

/// Returns the response to a create request that is blocked while these events arrive. A second, unblocked create
/// request must get the status `then`.
async fn create_meanwhile(happens: &[(&str, Value)], then: u16) -> (u16, String) {
    let live: Live = Arc::new(std::sync::Mutex::new(Err(404)));
    let listed = json!([namespace("1", "Active")]);
    create_held_up(listed, live, happens, || (), then).await
}

/// Same as `create_meanwhile`, for a namespace that the informer does not know. The cluster responds to GET with the
/// active namespace at first, and with `after` once these events have arrived.
async fn create_out_of_view(
    happens: &[(&str, Value)],
    then: u16,
    after: Result<Value, u16>,
) -> (u16, String) {
    let live: Live = Arc::new(std::sync::Mutex::new(Ok(namespace("1", "Active"))));
    let changed = Arc::clone(&live);
    let change = move || *changed.lock().unwrap() = after;
    create_held_up(json!([]), live, happens, change, then).await
}

async fn create_held_up(
    listed: Value,
    live: Live,
    happens: &[(&str, Value)],
    change: impl FnOnce(),
    then: u16,
) -> (u16, String) {
    let (arrived, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let slow = Slow { arrived: Arc::clone(&arrived), go_on: Arc::clone(&go_on) };
    let kinds = Kinds::new().with_admission_plugin(slow);
    let kinds = kinds.merge(Kinds::new().crds_from_yaml(DEFINITION).unwrap());
    let (sender, events) = mpsc::unbounded_channel();
    let server = test_server::without_webhooks(ApiServer::new("foos", kinds));
    let server = server.in_process(cluster(listed, events, live)).await.unwrap();
    let meanwhile = async {
        timeout(PATIENCE, arrived.acquire()).await.unwrap().unwrap().forget();
        for (kind, object) in happens {
            sender.send(json!({"type": kind, "object": object})).unwrap();
        }
        // The informer has received the events once a create request is judged by them.
        let mut number = 0;
        let seen = async {
            while create(&server, &format!("f{number}")).await.0 != then {
                number += 1;
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
        change();
        go_on.add_permits(1);
    };
    let (answer, ()) = tokio::join!(create(&server, "slow"), meanwhile);
    answer
}

#[tokio::test]
async fn a_create_is_rejected_if_its_namespace_is_terminating_at_commit() {
    let happens = [("MODIFIED", namespace("1", "Terminating"))];
    let (code, why) = create_meanwhile(&happens, 403).await;
    let expected = "foos.example.com \"slow\" is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!((code, &*why), (403, expected));
}

#[tokio::test]
async fn a_create_is_rejected_if_its_namespace_is_deleted_at_commit() {
    let happens = [("DELETED", namespace("1", "Terminating"))];
    let (code, why) = create_meanwhile(&happens, 404).await;
    assert_eq!((code, &*why), (404, "namespaces \"n\" not found"));
}

#[tokio::test]
async fn a_create_succeeds_if_its_namespace_is_only_relabelled_at_commit() {
    let mut labelled = namespace("1", "Active");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let (code, why) = create_meanwhile(&[("MODIFIED", labelled)], 201).await;
    assert_eq!((code, &*why), (201, ""));
}

#[tokio::test]
async fn a_namespace_unknown_to_the_informer_is_read_from_the_cluster() {
    let terminating = "foos.example.com \"slow\" is forbidden: unable to create new content in namespace n because it is being terminated";
    let missing = "namespaces \"n\" not found";
    let unread = "Internal error occurred: the cluster did not respond to a GET of a namespace";
    for (after, expected) in [
        (Ok(namespace("1", "Active")), (201, "")),
        (Ok(namespace("1", "Terminating")), (403, terminating)),
        (Ok(namespace("2", "Active")), (404, missing)),
        (Err(404), (404, missing)),
        (Err(500), (500, unread)),
        (Err(403), (500, unread)),
    ] {
        let (code, why) = create_out_of_view(&[], 201, after.clone()).await;
        assert_eq!((code, &*why), expected, "{after:?}");
    }
}

#[tokio::test]
async fn a_namespace_of_an_outdated_informer_is_read_from_the_cluster() {
    // The informer receives an earlier namespace of the same name.
    let happens = [("ADDED", namespace("0", "Terminating"))];
    for (after, expected) in [(Ok(namespace("1", "Active")), 201), (Err(404), 404)] {
        let (code, why) = create_out_of_view(&happens, 403, after).await;
        assert_eq!(code, expected, "{why}");
    }
}
