//! Random inputs for built-in kinds: objects, quantities, times and strategic merge patches. They are valid inputs with
//! small changes, as JSON and as protobuf. Nothing may panic, and no response may be a 500. `FUZZ_INPUTS` and
//! `FUZZ_SEED` are those of the library's tests.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "../../aggregated-apiserver/tests/fuzz/chance.rs"]
#[allow(dead_code)] // other tests use the rest
mod chance;

use chance::{Chance, Outcomes, assert_no_panic, seeds, watch_panics};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

/// Paths of collections, and valid objects of them.
fn objects() -> Vec<(&'static str, Value)> {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "i:1", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "100m", "memory": "1.5Gi"}, "requests": {"cpu": "1e-2"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            }],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        },
    });
    let job_template = {
        let mut template = template.clone();
        template["spec"]["restartPolicy"] = "Never".into();
        template
    };
    vec![
        ("/api/v1/namespaces/default/pods", {
            let mut pod = template.clone();
            pod["metadata"]["name"] = "a".into();
            pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            pod
        }),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
                "metadata": {"name": "a"},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template,
                    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                },
            }),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({
                "metadata": {"name": "a"},
                "spec": {"schedule": "*/5 1-3 * * 1,2", "timeZone": "Europe/Berlin", "jobTemplate": {"spec": {"template": job_template}}},
                "status": {"lastScheduleTime": "2026-01-01T00:00:00+01:00"},
            }),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"name": "p", "port": 80, "targetPort": "http"}], "selector": {"a": "b"}}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "a"}, "data": {"a": "YQ=="}, "stringData": {"b": "c"}, "type": "Opaque"}),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({
                "metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "default"},
                "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1,
            }),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.123456Z", "leaseDurationSeconds": 1}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({
                "metadata": {"name": "foos.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                            "type": "object", "properties": {"a": {"type": "string", "pattern": "^a$", "default": "a"}},
                        }}}},
                    }],
                },
            }),
        ),
    ]
}

/// Returns a strategic merge patch of an object: the object with changes and directives.
fn patch(chance: &mut Chance, mut object: Value) -> Value {
    let directives = [
        json!({"$patch": "delete"}),
        json!({"$patch": "replace", "name": "c"}),
        json!({"$setElementOrder/containers": [{"name": "c"}]}),
        json!({"$retainKeys": ["name"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
    ];
    let directive = directives[chance.rng.usize(..directives.len())].clone();
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    if let (Some(spec), Value::Object(directive), true) = (spec, directive, chance.rng.bool()) {
        spec.extend(directive);
    }
    object
}

async fn ask(server: &TestServer, request: Request<Body>, said: &str) -> u16 {
    let answer = server.client().send(request).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.into_body().collect_bytes().await.unwrap();
    let text = String::from_utf8_lossy(&text);
    assert_no_panic(|| said.to_owned());
    // For a patch result that is not an object, kube-apiserver returns the same error.
    let may_be = status < 500 || text.contains("is missing in");
    assert!(may_be, "{said}: {status} {text}");
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_built_in_kinds() {
    watch_panics();
    let server = TestServer::builder().start().await.unwrap();
    let objects = objects();
    for (path, object) in &objects {
        let request = Request::post(*path).header("content-type", "application/json");
        let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
        assert_eq!(ask(&server, request, path).await, 201, "{path}");
    }
    let mut outcomes = Outcomes::default();
    for seed in seeds(20) {
        let mut chance = Chance::new(seed);
        let (path, object) = &objects[chance.rng.usize(..objects.len())];
        let mut object = object.clone();
        chance.change(&mut object);
        let is_definition = path.ends_with("customresourcedefinitions");
        let one = format!("{path}/{}", if is_definition { "foos.example.com" } else { "a" });
        let (method, path, content_type) = match chance.rng.u32(..4) {
            0 => ("PUT", one, "application/json"),
            1 => ("PATCH", one, "application/strategic-merge-patch+json"),
            2 => ("PATCH", one, "application/merge-patch+json"),
            _ => ("POST", (*path).to_owned(), "application/json"),
        };
        if content_type.starts_with("application/strategic") {
            object = patch(&mut chance, object);
        }
        let body = object.to_string().into_bytes();
        let body = if chance.once_in(8) { chance.damaged(&body) } else { body };
        let said = format!(
            "seed {seed}: {method} {path} {content_type} {}",
            String::from_utf8_lossy(&body)
        );
        let accepts = [
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
        ];
        let request = Request::builder().method(method).uri(format!("{path}?dryRun=All"));
        let request =
            request.header("content-type", content_type).header("accept", chance.pick(&accepts));
        let status = ask(&server, request.body(Body::from(body)).unwrap(), &said).await;
        outcomes.count(status < 300);
    }
    outcomes.assert_both_are_frequent();
}
