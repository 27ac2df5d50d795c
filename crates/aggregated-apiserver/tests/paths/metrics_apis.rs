//! `custom.metrics.k8s.io` and `external.metrics.k8s.io` behind a real kube-apiserver: RBAC, HorizontalPodAutoscalers that
//! a real kube-controller-manager scales, and the deletion of a namespace.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::paths::{GroupVersion, PathParameters};
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use serde::Deserialize;
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Programs, Token, free_port, unless_missing};

/// The log of the controllers.
const LOG: &str = "kube-controller-manager.log";
const SERVICES: [&str; 3] = [
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
];

#[derive(Deserialize)]
struct OfObject {
    namespace: String,
    resource: String,
    name: String,
    metric: String,
}

#[derive(Deserialize)]
struct OfNamespace {
    metric: String,
}

fn list(api_version: &str, kind: &str, items: &[Value]) -> impl IntoResponse + use<> {
    let list = json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "items": items});
    ([(CONTENT_TYPE, "application/json")], list.to_string())
}

/// The names of the Pods that have metrics.
type Pods = Arc<Mutex<Vec<String>>>;

fn custom(version: &'static str, pods: &Pods) -> GroupVersion {
    let pods = Arc::clone(pods);
    let metric = async move |PathParameters(path): PathParameters<OfObject>| {
        let names = match path.name.as_str() {
            "*" => pods.lock().unwrap().clone(),
            name => vec![name.to_owned()],
        };
        let item = |name: &String| {
            let mut item = json!({
                "describedObject": {
                    "kind": path.resource, "namespace": path.namespace, "name": name, "apiVersion": "v1",
                },
                "timestamp": "2026-01-01T00:00:00Z", "value": "20",
            });
            match version {
                "v1beta1" => item["metricName"] = path.metric.clone().into(),
                _ => item["metric"] = json!({"name": path.metric}),
            }
            item
        };
        let items: Vec<Value> = names.iter().map(item).collect();
        list(&format!("custom.metrics.k8s.io/{version}"), "MetricValueList", &items)
    };
    let listed = || vec![resource("services/requests", "MetricValueList")];
    GroupVersion::new("custom.metrics.k8s.io", version)
        .get("/namespaces/{namespace}/{resource}/{name}/{metric}", metric)
        .resources(listed)
}

fn external() -> GroupVersion {
    let metric = async |PathParameters(path): PathParameters<OfNamespace>| {
        let item = json!({
            "metricName": path.metric, "metricLabels": {},
            "timestamp": "2026-01-01T00:00:00Z", "value": "30",
        });
        list("external.metrics.k8s.io/v1beta1", "ExternalMetricValueList", &[item])
    };
    let listed = || vec![resource("queue_length", "ExternalMetricValueList")];
    GroupVersion::new("external.metrics.k8s.io", "v1beta1")
        .get("/namespaces/{namespace}/{metric}", metric)
        .resources(listed)
}

fn resource(name: &str, kind: &str) -> APIResource {
    APIResource {
        name: name.to_owned(),
        namespaced: true,
        kind: kind.to_owned(),
        verbs: vec!["get".to_owned()],
        ..APIResource::default()
    }
}

fn server(pods: &Pods) -> ApiServer {
    let kinds = Kinds::new().group_version(custom("v1beta1", pods));
    let kinds = kinds.group_version(custom("v1beta2", pods));
    ApiServer::new("adapter", kinds.group_version(external()))
}

/// A role with a rule, and its binding to a user.
fn role(name: &str, group: &str, resource: &str, verb: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {name}, namespace: default}}
rules: [{{apiGroups: [{group}], resources: ["{resource}"], verbs: [{verb}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {name}, namespace: default}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {name}}}]
---
"#
    )
}

/// A Deployment with one replica, and its HorizontalPodAutoscaler with this metric.
fn scaled(name: &str, metric: &Value) -> String {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        }},
    });
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 9, "metrics": [metric],
        },
    });
    format!("{deployment}\n---\n{scaler}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_scale_deployments_behind_kube_apiserver() {
    let Some(programs) = unless_missing(Programs::find()).unwrap() else { return };
    let tokens = ["all", "one", "none"].map(Token::of);
    let control_plane = ControlPlane::start(&programs, &tokens).unwrap();
    let kubectl = |arguments: &[&str], input: &str| {
        control_plane.kubectl(arguments).input(input).run().unwrap()
    };
    let pods = Pods::default();
    let manifests = server(&pods).manifests(&ManifestOptions::default()).unwrap();
    kubectl(&["apply", "-f", "-"], &manifests);
    let port = free_port().unwrap();
    control_plane.lead_to_localhost(&SERVICES, ("adapter", "adapter"), port).unwrap();
    let token = kubectl(&["create", "token", "adapter", "-n", "adapter"], "");
    let mut args = ServeArgs::default();
    args.bind_address = [127, 0, 0, 1].into();
    args.secure_port = port;
    args.namespace = Some("adapter".to_owned());
    args.kubeconfig = Some(control_plane.kubeconfig_of_token("adapter", token.trim()).unwrap());
    let _running = server(&pods).bind(&args).await.unwrap().start().await.unwrap();
    let mut wait = vec!["wait", "--for=condition=Available", "--timeout=60s", "apiservice"];
    wait.extend(SERVICES);
    kubectl(&wait, "");

    // Controllers log errors while the APIServices have no server.
    let before = std::fs::read(control_plane.folder().join(LOG)).unwrap().len();
    let (custom, external) = ("custom.metrics.k8s.io", "external.metrics.k8s.io");
    let roles = role("all", custom, "*", "get") + &role("one", custom, "services/requests", "get");
    kubectl(&["apply", "-f", "-"], &roles);
    let root = format!("/apis/{custom}/v1beta2/namespaces/default");
    let of_external = format!("/apis/{external}/v1beta1/namespaces/default/queue_length");
    for (name, path, is_allowed) in [
        ("all", format!("{root}/services/web/requests"), true),
        ("all", format!("{root}/pods/*/errors?labelSelector=a%3Db"), true),
        ("all", format!("/apis/{custom}/v1beta1/namespaces/default/services/web/requests"), true),
        ("all", format!("/apis/{custom}/v1beta2/namespaces/other/services/web/requests"), false),
        ("all", of_external.clone(), false),
        ("one", format!("{root}/services/*/requests"), true),
        ("one", format!("{root}/services/web/errors"), false),
        ("none", format!("{root}/services/web/requests"), false),
    ] {
        let kubeconfig = control_plane.kubeconfig_of_token(name, &format!("{name}-token")).unwrap();
        let printed =
            control_plane.kubectl_as(&kubeconfig, ["get", "--raw", &path]).output().unwrap();
        assert_eq!(printed.succeeded, is_allowed, "{name} {path}: {}", printed.errors);
        assert!(is_allowed || printed.errors.contains("Forbidden"), "{}", printed.errors);
    }

    let average = json!({"type": "AverageValue", "averageValue": "10"});
    let object = json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "metric": {"name": "requests"}, "target": average,
    }});
    let queue = json!({"type": "External", "external": {
        "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": "a"}}},
        "target": average,
    }});
    kubectl(&["apply", "-f", "-"], &scaled("by-object", &object));
    kubectl(&["apply", "-f", "-"], &scaled("by-queue", &queue));
    let of_pods = json!({"type": "Pods", "pods": {"metric": {"name": "work"}, "target": average}});
    kubectl(&["apply", "-f", "-"], &scaled("by-pods", &of_pods));
    let selector = "--selector=app=by-pods";
    kubectl(&["wait", "--for=create", "--timeout=60s", "pod", selector], "");
    let pod = kubectl(&["get", "pods", selector, "-o", "jsonpath={.items[0].metadata.name}"], "");
    let running = json!({"status": {
        "phase": "Running", "startTime": "2020-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let patch = ["patch", "pod", &pod, "--subresource=status", "-p", &running.to_string()];
    kubectl(&patch, "");
    pods.lock().unwrap().push(pod.clone());
    for (name, replicas) in [("by-object", 2), ("by-queue", 3), ("by-pods", 2)] {
        let condition = format!("--for=jsonpath={{.status.desiredReplicas}}={replicas}");
        kubectl(&["wait", &condition, "--timeout=120s", "hpa", name], "");
        let condition = format!("--for=jsonpath={{.status.replicas}}={replicas}");
        kubectl(&["wait", &condition, "--timeout=60s", "deployment", name], "");
    }

    kubectl(&["create", "namespace", "short"], "");
    kubectl(&["create", "configmap", "a", "-n", "short"], "");
    let began = Instant::now();
    kubectl(&["delete", "namespace", "short", "--timeout=60s"], "");
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    let discovered = kubectl(&["get", "--raw", &format!("/apis/{custom}/v1beta2")], "");
    assert!(discovered.contains("\"services/requests\""), "{discovered}");
    let log = std::fs::read_to_string(control_plane.folder().join(LOG)).unwrap();
    let errors = log.get(before..).unwrap_or_default().lines().filter(|line| line.starts_with('E'));
    let errors: Vec<&str> = errors.filter(|line| line.contains("metrics.k8s.io")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let openapi = kubectl(&["get", "--raw", "/openapi/v3"], "");
    assert!(openapi.contains("apis/custom.metrics.k8s.io/v1beta2"), "{openapi}");
}
