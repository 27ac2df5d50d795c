//! The ValidatingAdmissionPolicies of a cluster: when they are read, and when they cannot be read.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use aggregated_apiserver::serving::AdmissionPluginName;
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use http::StatusCode;
use serde_json::{Value, json};
use test_server::{FakeCluster, ask};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const NAMESPACES: &str = "/api/v1/namespaces";
const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
/// The timeout for a change to arrive, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> ApiServer {
    let server =
        ApiServer::new("foos", Kinds::new().crds_from_yaml(test_server::DEFINITION).unwrap());
    server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle)
}

/// A policy for all writes, changed by `with`.
fn policy(with: Value) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "resourceRules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"],
            }],
        },
        "validations": [{"expression": "object.metadata.name != 'a'", "message": "not a"}],
    });
    spec.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn binding(with: Value) -> Value {
    let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    spec.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    json!({"metadata": {"name": "b"}, "spec": spec})
}

/// A cluster with a policy and a binding, and with the namespaces `n` and `m`, of which `m` has the label `team`.
fn cluster(policy: Value, binding: Value) -> FakeCluster {
    let cluster = FakeCluster::default();
    let namespace =
        |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let namespaces = vec![namespace("n", json!({})), namespace("m", json!({"team": "a"}))];
    cluster.set(NAMESPACES, namespaces);
    cluster.set(POLICIES, vec![policy]);
    cluster.set(BINDINGS, vec![binding]);
    cluster
}

/// Waits until a condition holds.
async fn until(mut is_met: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_met().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

async fn create(server: &InProcess, path: &str, name: &str) -> (u16, String) {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}});
    let (status, body) = ask(server, "POST", path, &object).await;
    (status.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn policies_of_the_cluster_apply_to_selected_writes() {
    let denied = |why: &str| {
        let by = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request";
        format!("foos.example.com \"a\" is forbidden: {by}: {why}")
    };
    let validation = |expression: &str| json!({"validations": [{"expression": expression, "reason": "Forbidden"}]});
    let team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "objectSelector": {}});
    let m = FOOS.replace("/n/", "/m/");
    for (policy_spec, binding_spec, path, expected, message) in [
        (json!({}), json!({}), FOOS, 422, denied("not a")),
        (json!({}), json!({"validationActions": ["Audit"]}), FOOS, 201, String::new()),
        (json!({}), json!({"policyName": "other"}), FOOS, 201, String::new()),
        (json!({}), json!({"matchResources": team}), FOOS, 201, String::new()),
        (json!({}), json!({"matchResources": team}), &m, 422, denied("not a")),
        (
            validation("namespaceObject.metadata.name == 'm'"),
            json!({}),
            FOOS,
            403,
            denied("failed expression: namespaceObject.metadata.name == 'm'"),
        ),
        (
            validation("namespaceObject.metadata.labels.team == 'a'"),
            json!({}),
            &m,
            201,
            String::new(),
        ),
        (
            validation("authorizer.group('').resource('pods').check('get').allowed()"),
            json!({}),
            FOOS,
            422,
            denied("compilation error: compilation failed: ERROR: "),
        ),
    ] {
        let cluster = cluster(policy(policy_spec.clone()), binding(binding_spec.clone()));
        let server = server().in_process(cluster.client()).await.unwrap();
        let (status, said) = create(&server, path, "a").await;
        assert_eq!(status, expected, "{policy_spec} {binding_spec} {said}");
        assert!(said.starts_with(&message), "{policy_spec} {binding_spec} {said}");
    }
}

#[tokio::test]
async fn parameters_are_read_from_the_cluster_and_from_this_server() {
    let param_kind = |api_version: &str, kind: &str| {
        json!({
            "paramKind": {"apiVersion": api_version, "kind": kind},
            "validations": [{"expression": "object.metadata.name != params.metadata.name"}],
        })
    };
    let named = json!({"paramRef": {"name": "a", "parameterNotFoundAction": "Deny"}});
    let denied = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
        "resources": [{
            "name": "configmaps", "singularName": "configmap", "namespaced": true,
            "kind": "ConfigMap", "verbs": ["get", "list"],
        }],
    });
    // Parameters of the cluster.
    let cluster = cluster(policy(param_kind("v1", "ConfigMap")), binding(named.clone()));
    cluster.set_document("/api/v1", resources);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    cluster.set_document("/api/v1/namespaces/n/configmaps/a", map);
    cluster.refuse("/api/v1/namespaces/m/configmaps/a", StatusCode::NOT_FOUND);
    let server = server().in_process(cluster.client()).await.unwrap();
    let (status, said) = create(&server, FOOS, "a").await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains(denied) && said.contains("failed expression"), "{said}");
    assert_eq!(create(&server, FOOS, "b").await.0, 201);
    let (status, said) = create(&server, &FOOS.replace("/n/", "/m/"), "a").await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("no params found for policy binding"), "{said}");
    // Parameters of this server.
    let cluster = self::cluster(policy(param_kind("example.com/v1", "Foo")), binding(named));
    let server = self::server().in_process(cluster.client()).await.unwrap();
    let (status, said) = create(&server, FOOS, "b").await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("no params found for policy binding"), "{said}");
}

#[tokio::test]
async fn the_resource_of_parameters_is_read_again_if_they_are_missing() {
    const PARAMS: &str = "/apis/params.example.com/v1";
    let resources = |plural: &str| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "params.example.com/v1",
            "resources": [{
                "name": plural, "singularName": "param", "namespaced": true, "kind": "Param",
                "verbs": ["get", "list"],
            }],
        })
    };
    let spec = json!({
        "paramKind": {"apiVersion": "params.example.com/v1", "kind": "Param"},
        "validations": [{"expression": "object.metadata.name != params.metadata.name"}],
    });
    let named = json!({"paramRef": {"name": "a", "parameterNotFoundAction": "Deny"}});
    let param = json!({
        "apiVersion": "params.example.com/v1", "kind": "Param", "metadata": {"name": "a"},
    });
    let cluster = cluster(policy(spec), binding(named));
    cluster.set_document(PARAMS, resources("olds"));
    cluster.set_document(&format!("{PARAMS}/namespaces/n/olds/a"), param.clone());
    let server = server().in_process(cluster.client()).await.unwrap();
    assert_eq!(create(&server, FOOS, "b").await.0, 201);
    cluster.refuse(&format!("{PARAMS}/namespaces/n/olds/a"), StatusCode::NOT_FOUND);
    let (status, said) = create(&server, FOOS, "c").await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("no params found for policy binding"), "{said}");
    cluster.set_document(PARAMS, resources("news"));
    cluster.set_document(&format!("{PARAMS}/namespaces/n/news/a"), param);
    assert_eq!(create(&server, FOOS, "c").await.0, 201);
    let (status, said) = create(&server, FOOS, "a").await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("failed expression"), "{said}");
}

#[tokio::test]
async fn writes_are_refused_while_the_policies_cannot_be_read() {
    let cluster = cluster(policy(json!({})), binding(json!({"policyName": "other"})));
    cluster.refuse(POLICIES, StatusCode::FORBIDDEN);
    let server = server().in_process(cluster.client()).await.unwrap();
    let (status, said) = create(&server, FOOS, "a").await;
    let expected = "ValidatingAdmissionPolicy: the policies of the cluster are unknown: validatingadmissionpolicies.admissionregistration.k8s.io cannot be listed: ";
    assert_eq!(status, 503, "{said}");
    assert!(said.starts_with(expected), "{said}");
    let (status, _) = ask(&server, "GET", FOOS, &Value::Null).await;
    assert_eq!(status, 200, "reads need no policy");
    cluster.allow(POLICIES);
    until(async || cluster.watches(POLICIES) > 0).await;
    until(async || create(&server, FOOS, "a").await.0 == 201).await;
}

#[tokio::test]
async fn changed_policies_are_followed_and_the_last_ones_stay_in_force() {
    let allows = policy(json!({"validations": [{"expression": "true"}]}));
    let cluster = cluster(allows, binding(json!({})));
    let server = server().in_process(cluster.client()).await.unwrap();
    let dry_run = format!("{FOOS}?dryRun=All");
    assert_eq!(create(&server, &dry_run, "a").await.0, 201);
    until(async || cluster.watches(POLICIES) > 0).await;
    let mut denies = policy(json!({}));
    denies["metadata"]["resourceVersion"] = "2".into();
    cluster.tell(POLICIES, "MODIFIED", &denies);
    until(async || create(&server, &dry_run, "a").await.0 == 422).await;
    // The second request follows the response to the first, which is refused.
    let requests = || cluster.requests().iter().filter(|one| one.contains(POLICIES)).count();
    let before = requests();
    cluster.refuse(POLICIES, StatusCode::FORBIDDEN);
    until(async || requests() >= before + 2).await;
    assert_eq!(create(&server, &dry_run, "a").await.0, 422);
    assert_eq!(create(&server, FOOS, "b").await.0, 201);
}

#[tokio::test]
async fn a_server_without_the_plugin_reads_no_policies() {
    let cluster = cluster(policy(json!({})), binding(json!({})));
    let server = server().without_admission_plugin(AdmissionPluginName::ValidatingAdmissionPolicy);
    let server = server.in_process(cluster.client()).await.unwrap();
    assert_eq!(create(&server, FOOS, "a").await.0, 201);
    let requests = cluster.requests();
    assert!(!requests.iter().any(|request| request.contains("polic")), "{requests:?}");
}
