//! A server whose PodSecurity plugin has a configuration.

use aggregated_apiserver::{ApiServer, ClusterClient, User};
use http::{HeaderMap, Request, StatusCode};
use kube::Client;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::Configuration;
use crate::built_in;
use crate::service_account_tokens::ServiceAccountTokens;
use crate::test_server::admin;

const NAMESPACES: &str = "/api/v1/namespaces?dryRun=All";

#[tokio::test]
async fn exempt_namespaces_users_and_runtime_classes_meet_no_level() {
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
    let kinds = built_in::kinds(&tokens, configuration.unwrap()).unwrap();
    let kinds = kinds.merge(built_in::events().unwrap());
    let server = ApiServer::new("test", kinds).in_process(ClusterClient::Loopback).await.unwrap();
    let as_admin = server.client(admin());
    let jane = User { name: "jane".to_owned(), ..admin() };
    let as_jane = server.client(jane);
    for name in ["free", "held"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        assert_eq!(send(&as_admin, "/api/v1/namespaces", &namespace).await.0, StatusCode::CREATED);
    }
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
}

#[tokio::test]
async fn labels_of_an_exempt_namespace_are_reported_as_ignored() {
    let configuration = Configuration::parse(json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "exemptions": {"namespaces": ["free"]},
    }));
    let tokens = ServiceAccountTokens::new(&KeyPair::generate().unwrap()).unwrap();
    let kinds = built_in::kinds(&tokens, configuration.unwrap()).unwrap();
    let kinds = kinds.merge(built_in::events().unwrap());
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

async fn send(client: &Client, path: &str, object: &Value) -> (StatusCode, HeaderMap) {
    let request = Request::post(path).header("content-type", "application/json");
    let body = kube::client::Body::from(object.to_string().into_bytes());
    let response = client.send(request.body(body).unwrap()).await.unwrap();
    (response.status(), response.headers().clone())
}
