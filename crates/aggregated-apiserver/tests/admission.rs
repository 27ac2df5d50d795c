//! Admission plugins: their effect on clients, and the requests that the plugins receive.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::sync::{Arc, Mutex};

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::{FieldError, InProcess, Kinds};
use futures::future::BoxFuture;
use http::{Method, Response, StatusCode};
use serde_json::{Map, Value, json};
use test_server::{admin, request, send};

const DEFINITIONS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Foo, plural: foos}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              mode: {type: string, default: plain}
          status:
            type: object
            properties: {size: {type: integer}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: limits.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Limit, plural: limits}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {most: {type: integer}}
"#;

const FOOS: &str = "/apis/example.com/v1/namespaces/n/foos";
const LIMITS: &str = "/apis/example.com/v1/limits";

/// The requests that a plugin received, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// A plugin that records every request, and follows the instructions in annotations.
struct Obedient(Log);

impl Obedient {
    fn note(
        &self,
        stage: &str,
        request: &AdmissionRequest<'_>,
        object: Option<&Map<String, Value>>,
    ) {
        let AdmissionRequest { operation, resource, subresource, namespace, name, .. } = request;
        let size = |tree: &Map<String, Value>| tree["spec"]["size"].clone();
        let (old, new) = (request.old_object().map(size), object.map(size));
        let shown = |size: Option<Value>| size.map_or("-".to_owned(), |size| size.to_string());
        let line = format!(
            "{stage} {operation:?} {resource}/{subresource} {}/{name} {} -> {} by {} with {}",
            namespace.unwrap_or_default(),
            shown(old),
            shown(new),
            request.user.name,
            request.field_manager,
        );
        self.0.lock().unwrap().push(line);
    }
}

fn order(object: &Map<String, Value>) -> String {
    let order = object["metadata"].get("annotations").map(|annotations| &annotations["order"]);
    order.and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl AdmissionPlugin for Obedient {
    fn name(&self) -> &str {
        "obedient"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        // The request has an object to inspect, even for a deletion.
        let is_new = request.operation == AdmissionOperation::Create;
        assert_eq!(request.old_object().is_none(), is_new);
        request.resource == "foos"
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async move {
            // Lets other tasks run.
            tokio::task::yield_now().await;
            self.note("mutate", request, Some(object));
            match order(object).as_str() {
                "grow" => object["spec"]["size"] = 7.into(),
                "forget" => object["spec"] = json!({}),
                "unknown" => object["spec"]["odd"] = json!({"deep": [1]}),
                "break" => object["metadata"]["labels"] = json!(5),
                "rename" => object["metadata"]["name"] = "other".into(),
                "move" => object["metadata"]["namespace"] = "other".into(),
                "gut" => object.clear(),
                "retype" => drop(object.insert("kind".to_owned(), "Bar".into())),
                "uid" => object["metadata"]["uid"] = "mine".into(),
                "manage" => object["metadata"]["managedFields"] = json!([{"manager": "me"}]),
                "name" => {
                    object["metadata"] = json!({"generateName": "made-", "namespace": "n"});
                }
                "own" => {
                    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
                    object["metadata"]["ownerReferences"] = json!([owner, owner]);
                }
                "status" => drop(object.insert("status".to_owned(), json!({"size": 99}))),
                "huge" => {
                    let nested = (0..200_000).map(|_| json!([{}])).collect::<Vec<_>>();
                    object["spec"]["mode"] = nested.into();
                }
                "again" => {
                    let calls = request.take_state::<u64>().unwrap_or_default() + 1;
                    assert_eq!(request.is_reinvocation(), calls == 2);
                    object["spec"]["size"] = (10 * calls).into();
                    request.keep_state(calls);
                    request.reinvoke();
                }
                "panic" => panic!("a plugin that panics"),
                _ => {}
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Map<String, Value>>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async move {
            self.note("validate", request, object);
            let Some(object) = object else {
                let old: Value = request.old().unwrap();
                return match old["metadata"]["labels"]["protected"].as_str() {
                    Some(_) => Err(AdmissionError::forbidden("it is protected")),
                    None => Ok(()),
                };
            };
            request.warn(format!("{} is looked at", request.kind));
            let limit: Option<Value> = request.find("example.com/v1", "limits", None, "foos")?;
            let size = object["spec"]["size"].as_i64();
            let most = limit.and_then(|limit| limit["most"].as_i64());
            if let (Some(size), Some(most)) = (size, most)
                && size > most
            {
                let error = FieldError::invalid("spec.size", size, "is beyond the limit");
                return Err(AdmissionError::invalid(vec![error]));
            }
            match order(object).as_str() {
                "wait" => Err(AdmissionError::unavailable("come back later")),
                "nothing" => request.find::<Value>("example.com/v9", "limits", None, "a").map(drop),
                _ => Ok(()),
            }
        })
    }
}

async fn server() -> (InProcess, Log) {
    let log = Log::default();
    let kinds = Kinds::new().with_admission_plugin(Obedient(Arc::clone(&log)));
    let kinds = kinds.merge(Kinds::new().crds_from_yaml(DEFINITIONS).unwrap());
    (test_server::server_of(kinds).await, log)
}

async fn ask(server: &InProcess, method: Method, path: &str, body: &Value) -> Response<Value> {
    let language = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = request(method, path, language, body);
    request.headers_mut().insert("user-agent", "test/1.0 (linux)".parse().unwrap());
    send(server, admin(), request).await
}

fn foo(name: &str, order: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": name, "annotations": {"order": order}}, "spec": {"size": 1},
    })
}

#[tokio::test]
async fn mutating_plugins_are_reinvoked_once_if_one_requests_it() {
    let (server, log) = server().await;
    for (order, calls, size) in [("again", 2, 20), ("plain", 1, 1)] {
        log.lock().unwrap().clear();
        let made = ask(&server, Method::POST, FOOS, &foo(order, order)).await;
        assert_eq!(
            (made.status(), &made.body()["spec"]["size"]),
            (StatusCode::CREATED, &json!(size))
        );
        let log = log.lock().unwrap();
        let stages = |stage: &str| log.iter().filter(|line| line.starts_with(stage)).count();
        assert_eq!((stages("mutate"), stages("validate")), (calls, 1), "{log:?}");
    }
}

#[tokio::test]
async fn admission_plugins_are_called_for_every_write() {
    let (server, log) = server().await;
    let take = || std::mem::take(&mut *log.lock().unwrap());
    let path = format!("{FOOS}/a");
    let created = ask(&server, Method::POST, FOOS, &foo("a", "")).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(created.headers()["warning"], "299 - \"Foo is looked at\"");
    assert_eq!(
        take(),
        [
            "mutate Create foos/ n/a - -> 1 by admin with test",
            "validate Create foos/ n/a - -> 1 by admin with test",
        ]
    );
    let patch = json!({"spec": {"size": 2}});
    let managed = format!("{path}?fieldManager=mine");
    let patched = ask(&server, Method::PATCH, &managed, &patch).await;
    assert_eq!(patched.status(), StatusCode::OK);
    assert_eq!(
        take(),
        [
            "mutate Update foos/ n/a 1 -> 2 by admin with mine",
            "validate Update foos/ n/a 1 -> 2 by admin with mine",
        ]
    );
    // The request for a subresource has the object of the subresource, not the whole object.
    let status = json!({"spec": {"size": 5}, "status": {"size": 3}});
    ask(&server, Method::PATCH, &format!("{path}/status"), &status).await;
    assert_eq!(take()[1], "validate Update foos/status n/a 2 -> 2 by admin with test");
    let scale = json!({"spec": {"replicas": 4}});
    ask(&server, Method::PATCH, &format!("{path}/scale"), &scale).await;
    assert_eq!(take()[1], "validate Update foos/scale n/a 2 -> 4 by admin with test");
    // An object with a generated name has no name at first.
    let mut generated = foo("", "");
    generated["metadata"] = json!({"generateName": "g-"});
    let generated = ask(&server, Method::POST, FOOS, &generated).await;
    let name = generated.body()["metadata"]["name"].as_str().unwrap().to_owned();
    let lines = take();
    assert_eq!(lines[0], "mutate Create foos/ n/ - -> 1 by admin with test");
    assert_eq!(lines[1], format!("validate Create foos/ n/{name} - -> 1 by admin with test"));
    ask(&server, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(take(), ["validate Delete foos/ n/a 4 -> - by admin with "]);
    let rehearsed = format!("{FOOS}/{name}?dryRun=All");
    ask(&server, Method::DELETE, &rehearsed, &Value::Null).await;
    assert_eq!(take().len(), 1);
    ask(&server, Method::DELETE, FOOS, &Value::Null).await;
    assert_eq!(take(), [format!("validate Delete foos/ n/{name} 1 -> - by admin with ")]);
    // The plugin does not handle any other kind.
    let limit = json!({"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "a"}});
    let created = ask(&server, Method::POST, LIMITS, &limit).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert!(take().is_empty());
}

#[tokio::test]
async fn objects_mutated_by_plugins_are_defaulted_pruned_and_validated() {
    let (server, _) = server().await;
    let create = async |order: &str| ask(&server, Method::POST, FOOS, &foo(order, order)).await;
    let spec = async |order: &str| create(order).await.body()["spec"].clone();
    assert_eq!(spec("grow").await, json!({"size": 7, "mode": "plain"}));
    // Defaults are filled in again, and unknown fields are pruned again.
    assert_eq!(spec("forget").await, json!({"mode": "plain"}));
    assert_eq!(spec("unknown").await, json!({"size": 1, "mode": "plain"}));
    let stamped = create("uid").await;
    assert_ne!(stamped.body()["metadata"]["uid"], "mine");
    let managed = create("manage").await;
    // Invalid managed fields from a plugin are replaced by the previous ones.
    let managers = &managed.body()["metadata"]["managedFields"];
    assert_eq!(managers[0]["manager"], "test", "{}", managed.body());
    let owned = create("own").await;
    assert_eq!(owned.body()["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    let named = create("name").await;
    assert!(named.body()["metadata"]["name"].as_str().unwrap().starts_with("made-"));
    // The status of a new object is dropped after admission, same as in kube-apiserver.
    let made = create("status").await;
    assert_eq!(made.body()["status"], Value::Null);
    for (order, expected) in [
        ("break", StatusCode::INTERNAL_SERVER_ERROR),
        ("panic", StatusCode::INTERNAL_SERVER_ERROR),
        ("gut", StatusCode::INTERNAL_SERVER_ERROR),
        ("retype", StatusCode::INTERNAL_SERVER_ERROR),
        ("move", StatusCode::INTERNAL_SERVER_ERROR),
        ("huge", StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let refused = create(order).await;
        assert_eq!(refused.status(), expected, "{order}: {}", refused.body());
    }
    // A plugin cannot change the name of an existing object, and cannot change anything but the status when the status
    // is written.
    let path = format!("{FOOS}/grow");
    for order in ["rename", "move"] {
        let patch = json!({"metadata": {"annotations": {"order": order}}});
        let refused = ask(&server, Method::PATCH, &path, &patch).await;
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.body());
        assert!(refused.body()["message"].as_str().unwrap().contains("\"obedient\""));
    }
    let shrunk = ask(&server, Method::PATCH, &path, &json!({"spec": {"size": 1}})).await;
    assert_eq!(shrunk.body()["spec"]["size"], 7);
    let patch = json!({"metadata": {"annotations": {"order": ""}}, "spec": {"size": 1}});
    ask(&server, Method::PATCH, &path, &patch).await;
    let patch = json!({"metadata": {"annotations": {"order": "grow"}}, "status": {"size": 2}});
    let status = ask(&server, Method::PATCH, &format!("{path}/status"), &patch).await;
    assert_eq!(status.body()["status"], json!({"size": 2}));
    assert_eq!(status.body()["spec"]["size"], 1);
}

#[tokio::test]
async fn plugins_reject_creates_and_protected_deletions() {
    let (server, _) = server().await;
    let limit = json!({"metadata": {"name": "foos"}, "most": 3});
    let limit = {
        let mut limit = limit;
        limit["apiVersion"] = "example.com/v1".into();
        limit["kind"] = "Limit".into();
        limit
    };
    let created = ask(&server, Method::POST, LIMITS, &limit).await;
    assert_eq!(created.status(), StatusCode::CREATED, "{}", created.body());
    let refused = ask(&server, Method::POST, FOOS, &foo("a", "grow")).await;
    assert_eq!(
        refused.body()["message"],
        "Foo.example.com \"a\" is invalid: spec.size: Invalid value: 7: is beyond the limit"
    );
    // The warning about the object is sent although the request was rejected.
    assert_eq!(refused.headers()["warning"], "299 - \"Foo is looked at\"");
    for order in ["wait", "nothing"] {
        let refused = ask(&server, Method::POST, FOOS, &foo("a", order)).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{}", refused.body());
    }
    let mut protected = foo("a", "");
    protected["metadata"]["labels"] = json!({"protected": "yes"});
    ask(&server, Method::POST, FOOS, &protected).await;
    ask(&server, Method::POST, FOOS, &foo("b", "")).await;
    let refused = ask(&server, Method::DELETE, &format!("{FOOS}/a"), &Value::Null).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(refused.body()["message"], "foos.example.com \"a\" is forbidden: it is protected");
    // The other objects of the collection are deleted.
    let refused = ask(&server, Method::DELETE, FOOS, &Value::Null).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let left = ask(&server, Method::GET, FOOS, &Value::Null).await;
    let names: Vec<&Value> = left.body()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["metadata"]["name"])
        .collect();
    assert_eq!(names, ["a"]);
}
