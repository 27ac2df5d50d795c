//! Tests of the PodSecurity plugin with a configuration.

use std::path::Path;
use std::time::Duration;

use aggregated_apiserver::serving::{AuditArgs, ClusterClient};
use aggregated_apiserver::{ApiServer, User};
use http::{HeaderMap, Request, StatusCode};
use kube::Client;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::Configuration;
use crate::built_in;
use crate::pods::PodHandlers;
use crate::service_account_tokens::ServiceAccountTokens;
use crate::test_server::{TestServer, admin};

const NAMESPACES: &str = "/api/v1/namespaces?dryRun=All";
/// The largest time until an event is in the file.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn exempt_namespaces_users_and_runtime_classes_meet_no_level() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = Configuration::parse(json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline"},
        "exemptions": {
            "namespaces": ["free"],
            "usernames": ["jane"],
            "runtimeClasses": ["vm"],
        },
    }));
    let tokens = ServiceAccountTokens::new(&KeyPair::generate().unwrap()).unwrap();
    let kinds = built_in::kinds(&tokens, configuration.unwrap(), PodHandlers::default()).unwrap();
    let kinds = kinds.merge(built_in::views().unwrap());
    let server = ApiServer::new("test", kinds).with_audit(&audit_of_pods(folder.path())).unwrap();
    let server = server.in_process(ClusterClient::Loopback).await.unwrap();
    let as_admin = server.client(admin());
    let jane = User { name: "jane".to_owned(), ..admin() };
    let as_jane = server.client(jane);
    for name in ["free", "held"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        assert_eq!(send(&as_admin, "/api/v1/namespaces", &namespace).await.0, StatusCode::CREATED);
    }
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"},
        "handler": "vm",
    });
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    assert_eq!(send(&as_admin, classes, &class).await.0, StatusCode::CREATED);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
    });
    let in_namespace = |name: &str| format!("/api/v1/namespaces/{name}/pods?dryRun=All");
    let (free, held) = (in_namespace("free"), in_namespace("held"));
    assert_eq!(send(&as_admin, &held, &pod).await.0, StatusCode::FORBIDDEN);
    assert_eq!(send(&as_admin, &free, &pod).await.0, StatusCode::CREATED);
    assert_eq!(send(&as_jane, &held, &pod).await.0, StatusCode::CREATED);
    pod["spec"]["runtimeClassName"] = "vm".into();
    assert_eq!(send(&as_admin, &held, &pod).await.0, StatusCode::CREATED);
    let expected = [
        json!({"enforce-policy": "baseline:latest"}),
        json!({"exempt": "namespace"}),
        json!({"exempt": "user"}),
        json!({"exempt": "runtimeClass"}),
    ];
    assert_eq!(annotations(folder.path(), expected.len()).await, expected);
}

#[tokio::test]
async fn invalid_pod_security_labels_are_recorded_in_audit_events() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        })
    };
    // These namespaces were stored when the validation was less strict.
    let one = namespace("one", json!({"pod-security.kubernetes.io/audit": "loose"}));
    let three = namespace(
        "three",
        json!({
            "pod-security.kubernetes.io/enforce": "x",
            "pod-security.kubernetes.io/enforce-version": "1",
            "pod-security.kubernetes.io/warn": "y",
        }),
    );
    let server = TestServer::builder().objects([one, three]);
    let server = server.audit(audit_of_pods(folder.path())).start().await.unwrap();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
    });
    for (name, code) in [("one", StatusCode::CREATED), ("three", StatusCode::FORBIDDEN)] {
        let path = format!("/api/v1/namespaces/{name}/pods?dryRun=All");
        assert_eq!(send(&server.client(), &path, &pod).await.0, code, "{name}");
    }
    let invalid = |label: &str, value: &str, why: &str| {
        format!(
            "metadata.labels[pod-security.kubernetes.io/{label}]: Invalid value: {value:?}: must be {why}"
        )
    };
    let levels = "one of privileged, baseline, restricted";
    let of_three = [
        invalid("enforce", "x", levels),
        invalid("enforce-version", "1", "\"latest\" or \"v1.x\""),
        invalid("warn", "y", levels),
    ];
    let expected = [
        json!({
            "enforce-policy": "privileged:latest",
            "error": format!("Failed to parse policy: {}", invalid("audit", "loose", levels)),
        }),
        json!({
            "enforce-policy": "restricted:latest",
            "error": format!("Failed to parse policy: [{}]", of_three.join(", ")),
        }),
    ];
    assert_eq!(annotations(folder.path(), expected.len()).await, expected);
}

#[tokio::test]
async fn labels_of_an_exempt_namespace_are_reported_as_ignored() {
    let configuration = Configuration::parse(json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "exemptions": {"namespaces": ["free"]},
    }));
    let tokens = ServiceAccountTokens::new(&KeyPair::generate().unwrap()).unwrap();
    let kinds = built_in::kinds(&tokens, configuration.unwrap(), PodHandlers::default()).unwrap();
    let kinds = kinds.merge(built_in::views().unwrap());
    let server = ApiServer::new("test", kinds).in_process(ClusterClient::Loopback).await.unwrap();
    let client = server.client(admin());
    let namespace = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {
                    "pod-security.kubernetes.io/enforce": "restricted",
                    "pod-security.kubernetes.io/warn": "baseline",
                    "pod-security.kubernetes.io/warn-version": "v1.9",
                },
            },
        })
    };
    let (_, headers) = send(&client, NAMESPACES, &namespace("free")).await;
    let expected = r#"299 - "namespace \"free\" is exempt from Pod Security, and the policy (enforce=restricted:latest, warn=baseline:v1.9) will be ignored""#;
    assert_eq!(headers["warning"], expected);
    let (_, headers) = send(&client, NAMESPACES, &namespace("held")).await;
    assert!(!headers.contains_key("warning"));
}

/// The flags for an audit log in a directory, with requests for Pods.
fn audit_of_pods(folder: &Path) -> AuditArgs {
    let policy = "
        apiVersion: audit.k8s.io/v1
        kind: Policy
        omitStages: [RequestReceived]
        rules:
        - {level: Metadata, verbs: [create], resources: [{group: '', resources: [pods]}]}
    ";
    let file = folder.join("policy.yaml");
    std::fs::write(&file, policy).unwrap();
    let mut args = AuditArgs::default();
    args.audit_policy_file = Some(file);
    args.audit_log_path = Some(folder.join("audit.log"));
    args
}

/// The annotations of PodSecurity in the audit log, by the last part of their keys, once there are this many events.
async fn annotations(folder: &Path, events: usize) -> Vec<Value> {
    let written = async {
        loop {
            let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
            if text.matches('\n').count() >= events {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let text = tokio::time::timeout(PATIENCE, written).await.unwrap();
    let annotations = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let all = event["annotations"].as_object().unwrap().iter();
        let found = all.filter_map(|(key, value)| {
            let key = key.strip_prefix("pod-security.kubernetes.io/")?;
            Some((key.to_owned(), value.clone()))
        });
        Value::Object(found.collect())
    });
    annotations.collect()
}

async fn send(client: &Client, path: &str, object: &Value) -> (StatusCode, HeaderMap) {
    let request = Request::post(path).header("content-type", "application/json");
    let body = kube::client::Body::from(object.to_string().into_bytes());
    let response = client.send(request.body(body).unwrap()).await.unwrap();
    (response.status(), response.headers().clone())
}
