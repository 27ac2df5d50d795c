//! Admission webhooks that both servers call. The request path selects the behavior of a webhook, so that rows can
//! choose it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The prefix of the paths of admission webhooks.
pub const ROOT: &str = "/admission/";

/// The time that the webhook `slow` takes.
pub const SLOW: Duration = Duration::from_secs(3);

/// A patch with white space, characters that Go escapes in JSON, and fields in arbitrary order.
const ESCAPES: &str = r#"[ { "value" : "<&>\/ \u2028 é" , "path":"/metadata/annotations/escaped",
    "op": "add" }, {"path": "/metadata/labels", "op":"add", "value": {"b" : "c", "a": "d"}} ]"#;

/// Answers an AdmissionReview that was sent to `path`; the path excludes [`ROOT`].
pub fn answer(path: &str, review: &Value) -> Response<Body> {
    let (behaviour, argument) = path.split_once('/').unwrap_or((path, ""));
    let answered = |status: StatusCode, body: String| {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response
    };
    match behaviour {
        "status" => {
            let code = argument.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            return answered(code.unwrap_or_default(), "it is as it is".to_owned());
        }
        "text" => return answered(StatusCode::OK, "it is as it is".to_owned()),
        "redirect" => {
            let mut response = answered(StatusCode::FOUND, String::new());
            let elsewhere = HeaderValue::from_static("/admission/allow");
            response.headers_mut().insert("location", elsewhere);
            return response;
        }
        _ => {}
    }
    let request = &review["request"];
    let mut response = match behaviour {
        "deny" => json!({"allowed": false}),
        "teapot" => json!({"allowed": false, "status": {
            "code": 418, "message": "it is a <teapot>", "reason": "Teapot",
            "details": {"name": "n", "kind": "k", "causes": [{"field": "spec", "message": "m"}]},
        }}),
        "reason" => json!({"allowed": false, "status": {"code": 200, "reason": "Because"}}),
        "warn" => {
            json!({"allowed": true, "warnings": ["first", "second", "first", "w".repeat(300)]})
        }
        "warn-and-deny" => json!({"allowed": false, "warnings": ["first"]}),
        "judge" => {
            json!({"allowed": true, "warnings": ["judged"], "auditAnnotations": {"judge": "yes"}})
        }
        "annotate" => json!({"allowed": true, "auditAnnotations": {
            "reason": "<because>", "empty": "", "not valid": "omitted", "a/b": "omitted",
        }}),
        "annotate-and-deny" => json!({"allowed": false, "auditAnnotations": {"why": "refused"}}),
        "escape" => {
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(ESCAPES)})
        }
        "echo" => json!({"allowed": false, "status": {
            "code": 409, "message": "see details", "details": {"causes": told(request)},
        }}),
        "note" => json!({
            "allowed": true, "patchType": "JSONPatch", "patch": patch(&noting(request, argument)),
        }),
        "note-once" | "fail-again" if notes(request).contains(&format!("{argument}.")) => {
            if behaviour == "fail-again" {
                return answered(StatusCode::INTERNAL_SERVER_ERROR, "it fails".to_owned());
            }
            json!({"allowed": false, "status": {"message": "once is enough"}})
        }
        "note-once" | "fail-again" => json!({
            "allowed": true, "patchType": "JSONPatch", "patch": patch(&noting(request, argument)),
        }),
        "patch" => json!({
            "allowed": true, "patchType": "JSONPatch", "patch": patch(&json!([operation(argument)])),
        }),
        "restart" => {
            let replaced =
                json!([{"op": "replace", "path": "/spec/restartPolicy", "value": "Never"}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&replaced)})
        }
        "container" => {
            let added = json!({"name": "side", "image": "side"});
            let added = json!([{"op": "add", "path": "/spec/containers/-", "value": added}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&added)})
        }
        "class" => {
            let added =
                json!([{"op": "add", "path": "/spec/priorityClassName", "value": argument}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&added)})
        }
        "replicas" => {
            let replaced = json!([{"op": "add", "path": "/spec/replicas", "value": 7}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&replaced)})
        }
        "empty-patch" => {
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&json!([]))})
        }
        "no-type" => json!({"allowed": true, "patch": patch(&json!([]))}),
        "other-type" => json!({
            "allowed": true, "patchType": "Other", "patch": patch(&noting(request, "x")),
        }),
        "no-patch" => json!({"allowed": true, "patchType": "JSONPatch"}),
        "unfit" => {
            let unfit = json!([{"op": "remove", "path": "/spec/nothing"}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&unfit)})
        }
        "no-list" => {
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(&json!({}))})
        }
        "absent" => Value::Null,
        _ => json!({"allowed": true}),
    };
    if response.is_object() {
        let uid = if behaviour == "stranger" { json!("another") } else { request["uid"].clone() };
        response["uid"] = uid;
    }
    let kind = if behaviour == "kind" { "Review" } else { "AdmissionReview" };
    let api_version = match behaviour {
        "version" => "example.com/v1".into(),
        "older" => "admission.k8s.io/v1beta1".into(),
        _ => review["apiVersion"].clone(),
    };
    let mut answer = json!({"apiVersion": api_version, "kind": kind, "response": response});
    if behaviour == "bare" {
        answer = json!({"response": response});
    }
    answered(StatusCode::OK, answer.to_string())
}

fn patch(operations: &Value) -> String {
    STANDARD.encode(operations.to_string())
}

/// Returns a JSON Patch operation. Some change the object, others only its JSON form, which Go's types do not preserve.
fn operation(name: &str) -> Value {
    const CONTAINER: &str = "/spec/containers/0";
    match name {
        "labels" => json!({"op": "add", "path": "/metadata/labels", "value": {}}),
        "false" => json!({"op": "add", "path": "/spec/hostNetwork", "value": false}),
        "unknown" => json!({"op": "add", "path": "/spec/unknown", "value": 1}),
        "quantity" => {
            let path = format!("{CONTAINER}/resources/limits/cpu");
            json!({"op": "replace", "path": path, "value": "1000m"})
        }
        "list" => json!({"op": "add", "path": "/spec/initContainers", "value": []}),
        "null" => json!({"op": "add", "path": "/spec/nodeSelector", "value": null}),
        "pointer" => {
            json!({"op": "add", "path": "/spec/automountServiceAccountToken", "value": false})
        }
        "default" => json!({"op": "remove", "path": "/spec/dnsPolicy"}),
        "template" => {
            let path = "/spec/template/spec/containers/0/ports";
            json!({"op": "add", "path": path, "value": []})
        }
        "no-tolerations" => json!({"op": "remove", "path": "/spec/tolerations"}),
        "no-taints" => json!({"op": "remove", "path": "/spec/taints"}),
        "relabel" => json!({"op": "replace", "path": "/metadata/labels/x", "value": "2"}),
        _ => json!({"op": "test", "path": "", "value": name}),
    }
}

/// Returns a patch that adds a word to an annotation. The annotation then shows which webhooks were called, and in
/// which order.
fn noting(request: &Value, word: &str) -> Value {
    let notes = format!("{}{word}.", notes(request));
    match &request["object"]["metadata"]["annotations"] {
        Value::Object(_) => {
            json!([{"op": "add", "path": "/metadata/annotations/notes", "value": notes}])
        }
        _ => json!([{"op": "add", "path": "/metadata/annotations", "value": {"notes": notes}}]),
    }
}

/// Returns the words that were added so far.
fn notes(request: &Value) -> &str {
    request["object"]["metadata"]["annotations"]["notes"].as_str().unwrap_or_default()
}

/// Returns the fields of an admission request as causes. The objects in it are split into one cause per field. Values
/// that differ between two servers are omitted or replaced.
fn told(request: &Value) -> Value {
    let mut causes = Vec::new();
    for (name, value) in request.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("uid" | "userInfo", _) => {}
            ("object" | "oldObject", Value::Object(members)) => {
                for (member, value) in members {
                    causes.push(cause(&format!("{name}.{member}"), value));
                }
            }
            _ => causes.push(cause(name, value)),
        }
    }
    causes.into()
}

fn cause(field: &str, value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.remove("managedFields");
        for volatile in ["uid", "clusterIP", "clusterIPs"] {
            if let Some(value) = members.get_mut(volatile) {
                *value = "there".into();
            }
        }
        if members.remove("resourceVersion").is_some() {
            members.insert("version".to_owned(), "there".into());
        }
    }
    // Sorts the fields by name.
    let sorted: std::collections::BTreeMap<String, Value> = match &value {
        Value::Object(members) => members.clone().into_iter().collect(),
        _ => return json!({"field": field, "message": value.to_string()}),
    };
    json!({"field": field, "message": json!(sorted).to_string()})
}
