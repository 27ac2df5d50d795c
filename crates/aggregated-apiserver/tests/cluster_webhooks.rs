//! The admission webhooks of a cluster: when their configurations are read, and when they cannot be read.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use aggregated_apiserver::serving::{AdmissionPluginName, WebhookReadFailurePolicy};
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use http::StatusCode;
use serde_json::{Value, json};
use test_server::{FakeCluster, ListeningServer, ask, without_webhooks};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const NAMESPACES: &str = "/api/v1/namespaces";
const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
/// A port on which no program listens.
const AWAY: &str = "https://127.0.0.1:1/deny";
/// The timeout for a change to arrive, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> ApiServer {
    let server =
        ApiServer::new("foos", Kinds::new().crds_from_yaml(test_server::DEFINITION).unwrap());
    server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle)
}

/// A cluster with these validating webhooks, and with the namespaces `n` and `m`, of which `m` has the label `team`.
fn cluster(webhooks: &[Value]) -> FakeCluster {
    let cluster = FakeCluster::default();
    let namespace =
        |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let namespaces = vec![namespace("n", json!({})), namespace("m", json!({"team": "a"}))];
    cluster.set(NAMESPACES, namespaces);
    cluster.set(MUTATING, Vec::new());
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": webhooks});
    cluster.set(VALIDATING, vec![configuration]);
    cluster
}

/// A webhook for all writes that cannot be reached, changed by `with`.
fn unreachable(with: Value) -> Value {
    let mut webhook = json!({
        "name": "w.example.com", "clientConfig": {"url": AWAY}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": [{
            "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"],
        }],
    });
    webhook.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    webhook
}

async fn create(server: &InProcess, path: &str, name: &str) -> (u16, String) {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}});
    let (status, body) = ask(server, "POST", path, &object).await;
    (status.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn webhooks_of_the_cluster_are_called_about_selected_writes() {
    let selector = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let condition =
        |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let failed = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: ";
    let (m, dry) = (FOOS.replace("/n/", "/m/"), format!("{FOOS}?dryRun=All"));
    for (webhook, path, expected, message) in [
        (json!({}), FOOS, 500, failed),
        (
            json!({"sideEffects": "Some"}),
            &dry,
            400,
            "admission webhook \"w.example.com\" does not support dry run",
        ),
        (json!({"failurePolicy": "Ignore"}), FOOS, 201, ""),
        (selector.clone(), FOOS, 201, ""),
        (selector, &m, 500, failed),
        (condition("object.metadata.name == 'b'"), FOOS, 201, ""),
        (condition("request.operation == 'CREATE'"), FOOS, 500, failed),
        (
            condition("object.spec.text == ''"),
            FOOS,
            403,
            "foos.example.com \"a\" is forbidden: expression 'object.spec.text == ''' resulted in error: no such key: spec",
        ),
    ] {
        let cluster = cluster(&[unreachable(webhook.clone())]);
        let server = server().in_process(cluster.client()).await.unwrap();
        let (status, said) = create(&server, path, "a").await;
        assert_eq!(status, expected, "{webhook} {said}");
        assert!(said.starts_with(message), "{webhook} {said}");
    }
}

#[tokio::test]
async fn writes_are_refused_while_the_configurations_cannot_be_read() {
    let cluster = cluster(&[]);
    cluster.refuse(VALIDATING, StatusCode::FORBIDDEN);
    let server = server().in_process(cluster.client()).await.unwrap();
    let (status, said) = create(&server, FOOS, "a").await;
    let expected = "ValidatingAdmissionWebhook: the webhooks of the cluster are unknown: validatingwebhookconfigurations.admissionregistration.k8s.io cannot be listed: ";
    assert_eq!(status, 503, "{said}");
    assert!(said.starts_with(expected), "{said}");
    let (status, _) = ask(&server, "GET", FOOS, &Value::Null).await;
    assert_eq!(status, 200, "reads need no webhook");
    cluster.allow(VALIDATING);
    let until = tokio::time::Instant::now() + PATIENCE;
    while create(&server, FOOS, "a").await.0 != 201 {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn changed_configurations_are_followed_and_the_last_ones_stay_in_force() {
    let cluster = cluster(&[unreachable(json!({}))]);
    let server = server().in_process(cluster.client()).await.unwrap();
    assert_eq!(create(&server, FOOS, "a").await.0, 500);
    let changed = json!({"metadata": {"name": "c", "resourceVersion": "2"}, "webhooks": []});
    let until = tokio::time::Instant::now() + PATIENCE;
    while create(&server, FOOS, "a").await.0 != 201 {
        cluster.tell(VALIDATING, "MODIFIED", &changed);
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.refuse(VALIDATING, StatusCode::FORBIDDEN);
    assert_eq!(create(&server, FOOS, "b").await.0, 201);
}

#[tokio::test]
async fn a_server_without_the_plugins_reads_no_configurations() {
    let cluster = cluster(&[unreachable(json!({}))]);
    let server = without_webhooks(server()).in_process(cluster.client()).await.unwrap();
    assert_eq!(create(&server, FOOS, "a").await.0, 201);
    let requests = cluster.requests();
    assert!(!requests.iter().any(|request| request.contains("webhook")), "{requests:?}");
}

#[tokio::test]
async fn a_flag_admits_writes_while_the_configurations_cannot_be_read() {
    for (policy, expected) in
        [(WebhookReadFailurePolicy::Fail, 503), (WebhookReadFailurePolicy::Ignore, 201)]
    {
        let server = ListeningServer::of(server(), "https://127.0.0.1:1", |args| {
            args.disable_admission_plugins = vec![AdmissionPluginName::NamespaceLifecycle];
            args.webhook_configurations_failure_policy = policy;
        });
        let server = Box::pin(server).await;
        let client = server.running.client(test_server::admin());
        let object =
            json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}});
        let request = http::Request::post(FOOS).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes().into()).unwrap();
        let status = client.send(request).await.unwrap().status();
        assert_eq!(status.as_u16(), expected, "{policy:?}");
        let path = "https://localhost/readyz/source-mutatingwebhookconfigurations.admissionregistration.k8s.io";
        let ready = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let ready = server.h2(None).await.send_request(ready).await.unwrap();
        assert_eq!(ready.status(), 500);
    }
}
