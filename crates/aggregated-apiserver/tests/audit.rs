//! Audit events of requests, as selected by a policy.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::path::Path;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::serving::AuditArgs;
use aggregated_apiserver::{InProcess, Kinds, User};
use axum::body::Body;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use test_server::{DEFINITION, admin};

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

async fn server(folder: &Path, rules: &str) -> InProcess {
    test_server::audited_server(DEFINITION, &arguments(folder, rules)).await
}

fn arguments(folder: &Path, rules: &str) -> AuditArgs {
    let policy = folder.join("policy.yaml");
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap();
    let mut args = AuditArgs::default();
    args.audit_policy_file = Some(policy);
    args.audit_log_path = Some(folder.join("audit.log"));
    args
}

async fn ask(server: &InProcess, method: &str, path: &str, body: &str) -> StatusCode {
    ask_as(server, admin(), method, path, body).await
}

async fn ask_as(
    server: &InProcess,
    user: User,
    method: &str,
    path: &str,
    body: &str,
) -> StatusCode {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type).header("audit-id", "my-id");
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = server.respond(user, request).await;
    let status = response.status();
    response.into_body().collect().await.unwrap();
    status
}

/// Reads the audit events. The server must have stopped, so that all events are in the file.
fn events(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn audit_levels_determine_the_content_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules:\n- {level: None, verbs: [list]}\n- {level: RequestResponse, verbs: [create], omitManagedFields: true}\n- {level: Request, verbs: [patch]}\n- {level: Metadata}";
    let server = server(folder.path(), rules).await;
    let foo =
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "x": 1});
    assert_eq!(ask(&server, "POST", FOOS, &foo.to_string()).await, StatusCode::CREATED);
    ask(&server, "GET", FOOS, "").await;
    ask(&server, "PATCH", &format!("{FOOS}/a"), r#"{"x": 2}"#).await;
    ask(&server, "GET", &format!("{FOOS}/a"), "").await;
    ask(&server, "DELETE", &format!("{FOOS}/a"), "").await;
    ask(&server, "GET", &format!("{FOOS}/a"), "").await;
    let metrics = server.respond(admin(), Request::get("/metrics").body(Body::empty()).unwrap());
    let metrics = metrics.await.into_body().collect().await.unwrap().to_bytes();
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    for line in [
        "apiserver_audit_level_total{level=\"None\"} 1",
        "apiserver_audit_level_total{level=\"RequestResponse\"} 1",
        "apiserver_audit_error_total{plugin=\"buffered\"} 0",
        "apiserver_audit_event_total 5",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    drop(server);
    let events = events(folder.path());
    let [create, patch, get, delete, none, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!(create["level"], "RequestResponse");
    assert_eq!(create["auditID"], "my-id");
    assert_eq!(create["requestObject"], foo);
    assert_eq!(create["responseObject"]["metadata"]["name"], "a");
    assert_eq!(create["responseObject"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(create["objectRef"]["name"], "a");
    assert_eq!(create["responseStatus"], json!({"metadata": {}, "code": 201}));
    let allow =
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""});
    assert_eq!(create["annotations"], allow);
    assert_eq!(patch["requestObject"], json!({"x": 2}));
    assert_eq!(patch["responseObject"], Value::Null);
    assert_eq!(get["requestObject"], Value::Null);
    assert_eq!(delete["responseStatus"]["status"], "Success");
    assert_eq!(none["responseStatus"]["reason"], "NotFound");
    assert_eq!(last["requestURI"], "/metrics");
    assert!(events.iter().all(|event| event["stage"] == "ResponseComplete"));
}

#[tokio::test]
async fn a_watch_has_three_audit_stages_and_large_bodies_are_omitted() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), "rules:\n- {level: RequestResponse}").await;
    ask(&server, "GET", &format!("{FOOS}?watch=true&timeoutSeconds=1"), "").await;
    let large = "x".repeat(1_100_000);
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "x": large});
    assert_eq!(ask(&server, "POST", FOOS, &foo.to_string()).await, StatusCode::CREATED);
    drop(server);
    let events = events(folder.path());
    let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
    let [received, started, complete] = ["RequestReceived", "ResponseStarted", "ResponseComplete"];
    assert_eq!(stages, [received, started, complete, received, complete]);
    let create = &events[4];
    assert_eq!((&create["requestObject"], &create["responseObject"]), (&Value::Null, &Value::Null));
    assert_eq!(create["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(create["responseStatus"]["code"], 201);
}

#[tokio::test]
async fn a_refused_watch_shows_why_at_both_stages() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), "rules:\n- {level: RequestResponse}").await;
    let jane = User { name: "jane".to_owned(), ..User::default() };
    let path = format!("{FOOS}?watch=true");
    let status = ask_as(&server, jane, "GET", &path, "").await;
    // The authorization cannot be decided, because the cluster is unreachable.
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    drop(server);
    let events = events(folder.path());
    let [_, started, complete] = &events[..] else { panic!("{events:?}") };
    for event in [started, complete] {
        assert_eq!(event["responseObject"]["code"], 500);
        assert_eq!(event["responseStatus"]["reason"], "InternalError");
        assert_eq!(event["annotations"], json!({"authorization.k8s.io/reason": "internal error"}));
    }
}

#[tokio::test]
async fn a_wrong_policy_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]")
        .unwrap();
    let mut args = AuditArgs::default();
    args.audit_policy_file = Some(policy);
    args.audit_log_path = Some(folder.path().join("audit.log"));
    let server = aggregated_apiserver::ApiServer::new("foos", Kinds::new());
    let error = server.with_audit(&args).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.starts_with("--audit-policy-file ") && error.contains("rules[0].level"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
}

#[tokio::test]
async fn a_client_disconnect_is_audited_with_status_499() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), "rules:\n- {level: Metadata}").await;
    let never = futures::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>();
    let proxies = vec!["10.0.0.1"; 1_000].join(",");
    let request = Request::post(FOOS).header("content-type", "application/json");
    let request = request.header("x-forwarded-for", proxies).body(Body::from_stream(never));
    assert!(server.respond(admin(), request.unwrap()).now_or_never().is_none());
    drop(server);
    let events = events(folder.path());
    let [_, complete] = &events[..] else { panic!("{events:?}") };
    assert_eq!(complete["stage"], "ResponseComplete");
    assert_eq!(complete["responseStatus"]["code"], 499);
    assert_eq!(complete["sourceIPs"].as_array().unwrap().len(), 64);
}

/// A plugin that annotates the audit event of each write.
struct Annotates;

impl AdmissionPlugin for Annotates {
    fn handles(&self, _: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        _: Option<&'a Map<String, Value>>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        request.annotate("example.com/first", "a \"b\"");
        request.annotate("example.com/first", "second");
        request.annotate("not valid", "omitted");
        request.annotate("authorization.k8s.io/decision", "omitted");
        request.annotate_with_body("example.com/body", || Some("body".to_owned()));
        let count = match (request.operation, request.name) {
            (AdmissionOperation::Create, "fits") => 45,
            (AdmissionOperation::Create, "exceeds") => 100,
            _ => 0,
        };
        for number in 0..count {
            request.annotate(&format!("example.com/n{number}"), &"x".repeat(20_000));
        }
        let refused = AdmissionError::forbidden("refused");
        Box::pin(ready(if request.name == "refused" { Err(refused) } else { Ok(()) }))
    }
}

async fn annotated_server(folder: &Path, rules: &str) -> InProcess {
    let kinds = Kinds::new().crds_from_yaml(DEFINITION).unwrap();
    let kinds = kinds.with_admission_plugin(Annotates);
    test_server::audited_server_of(kinds, &arguments(folder, rules)).await
}

fn foo(name: &str) -> String {
    let metadata = json!({"name": name});
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata}).to_string()
}

#[tokio::test]
async fn admission_annotates_events() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules:\n- {level: Request, verbs: [delete]}\n- {level: Metadata}";
    let server = annotated_server(folder.path(), rules).await;
    assert_eq!(ask(&server, "POST", FOOS, &foo("a")).await, StatusCode::CREATED);
    assert_eq!(ask(&server, "POST", FOOS, &foo("refused")).await, StatusCode::FORBIDDEN);
    assert_eq!(ask(&server, "DELETE", &format!("{FOOS}/a"), "").await, StatusCode::OK);
    assert_eq!(ask(&server, "GET", &format!("{FOOS}/a"), "").await, StatusCode::NOT_FOUND);
    drop(server);
    let expected = |rest: Value| {
        let mut expected = json!({
            "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "",
        });
        expected.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        expected
    };
    let events = events(folder.path());
    let found: Vec<&Value> = events.iter().map(|event| &event["annotations"]).collect();
    let written = expected(json!({"example.com/first": "a \"b\""}));
    let deleted = expected(json!({"example.com/first": "a \"b\"", "example.com/body": "body"}));
    assert_eq!(found, [&written, &written, &deleted, &expected(json!({}))]);
}

#[tokio::test]
async fn annotations_of_admission_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "omitStages: [RequestReceived]\nrules:\n- {level: Metadata}";
    let server = annotated_server(folder.path(), rules).await;
    // The per-user memory limit allows one such request at a time.
    assert_eq!(ask(&server, "POST", FOOS, &foo("fits")).await, StatusCode::CREATED);
    assert_eq!(ask(&server, "POST", FOOS, &foo("fits")).await, StatusCode::CONFLICT);
    assert_eq!(ask(&server, "POST", FOOS, &foo("exceeds")).await, StatusCode::CREATED);
    drop(server);
    let events = events(folder.path());
    let found = events.iter().map(|event| {
        let annotations = event["annotations"].as_object().unwrap();
        let bytes: usize = annotations.values().map(|value| value.as_str().unwrap().len()).sum();
        (bytes / 100_000, annotations.get("audit.k8s.io/truncated").is_some())
    });
    assert_eq!(found.collect::<Vec<_>>(), [(9, false), (9, false), (10, true)]);
}
