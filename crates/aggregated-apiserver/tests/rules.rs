//! Validation rules written in Rust, as clients see them.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use aggregated_apiserver::{FieldError, InProcess, Kinds, Stored, User, Validation};
use http::{Method, Response, StatusCode};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::{admin, request, send, server_of};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Range", namespaced)]
struct RangeSpec {
    least: i64,
    most: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    maker: Option<String>,
}

impl Stored for Range {
    fn validation() -> Validation<Self> {
        Validation::<Self>::new()
            .prepare(|range, context| {
                range.spec.maker.get_or_insert_with(|| context.user.name.clone());
            })
            .validate(|range, old, _| {
                let spec = &range.spec;
                assert!(spec.most != 13, "thirteen");
                let mut errors = Vec::new();
                if spec.least > spec.most {
                    let why = "must not exceed spec.most";
                    errors.push(FieldError::invalid("spec.least", spec.least, why));
                }
                if old.is_some_and(|old| old.spec.maker != spec.maker) {
                    errors.push(FieldError::forbidden("spec.maker", "stays as it is"));
                }
                errors
            })
            .warn(|range, _, _| {
                let is_empty = range.spec.least == range.spec.most;
                is_empty.then(|| "spec: the range is empty".to_owned()).into_iter().collect()
            })
    }
}

const RANGES: &str = "/apis/example.com/v1/namespaces/n/ranges";

async fn ask(server: &InProcess, method: Method, path: &str, body: &Value) -> Response<Value> {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let jane = User { name: "jane".to_owned(), ..admin() };
    send(server, jane, request(method, path, content_type, body)).await
}

fn range(name: &str, least: i64, most: i64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Range", "metadata": {"name": name},
        "spec": {"least": least, "most": most},
    })
}

#[tokio::test]
async fn rules_are_part_of_every_write() {
    let server = server_of(Kinds::new().stored::<Range>()).await;
    let created = ask(&server, Method::POST, RANGES, &range("a", 1, 1)).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(created.headers()["warning"], "299 - \"spec: the range is empty\"");
    assert_eq!(created.body()["spec"], json!({"least": 1, "most": 1, "maker": "jane"}));

    let refused = ask(&server, Method::POST, RANGES, &range("b", 2, 1)).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        refused.body()["message"],
        "Range.example.com \"b\" is invalid: spec.least: Invalid value: 2: must not exceed spec.most"
    );
    assert_eq!(refused.body()["details"]["causes"][0]["field"], "spec.least");
    // Rules are not evaluated on an object that the schema rejects.
    let mut wrong = range("b", 2, 1);
    wrong["spec"]["least"] = "x".into();
    let refused = ask(&server, Method::POST, RANGES, &wrong).await;
    assert_eq!(refused.body()["details"]["causes"].as_array().unwrap().len(), 1);

    let path = format!("{RANGES}/a");
    let patch = json!({"spec": {"maker": "joe", "most": 0}});
    let refused = ask(&server, Method::PATCH, &path, &patch).await;
    let causes = refused.body()["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["spec.least", "spec.maker"]);
    let patched = ask(&server, Method::PATCH, &path, &json!({"spec": {"most": 9}})).await;
    assert_eq!(patched.status(), StatusCode::OK);
    assert!(!patched.headers().contains_key("warning"));
    // The maker cannot be removed: it is set again to the same value.
    let patched = ask(&server, Method::PATCH, &path, &json!({"spec": {"maker": null}})).await;
    assert_eq!(patched.body()["spec"]["maker"], "jane");
    assert_eq!(patched.body()["metadata"]["generation"], 2);

    // Invalid managed fields do not prevent a rule from running.
    let mut forged = range("d", 1, 2);
    forged["metadata"]["managedFields"] = json!([{"operation": "None", "fieldsV1": {"f:spec": 5}}]);
    let created = ask(&server, Method::POST, RANGES, &forged).await;
    assert_eq!(created.body()["spec"]["maker"], "jane");
    // In JSON, 1.0 is an integer.
    let mut whole = range("e", 1, 2);
    whole["spec"]["least"] = json!(1.0);
    let created = ask(&server, Method::POST, RANGES, &whole).await;
    assert_eq!(created.status(), StatusCode::CREATED, "{}", created.body());

    let rehearsed = format!("{RANGES}?dryRun=All");
    let rehearsed = ask(&server, Method::POST, &rehearsed, &range("c", 2, 1)).await;
    assert_eq!(rehearsed.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_panicking_validation_rule_fails_only_its_request() {
    let server = server_of(Kinds::new().stored::<Range>()).await;
    let failed = ask(&server, Method::POST, RANGES, &range("a", 1, 13)).await;
    assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed.body()["reason"], "InternalError");
    assert!(failed.headers().contains_key("audit-id"));
    let left = ask(&server, Method::GET, RANGES, &Value::Null).await;
    assert_eq!(left.body()["items"], json!([]));
    let created = ask(&server, Method::POST, RANGES, &range("a", 1, 2)).await;
    assert_eq!(created.status(), StatusCode::CREATED);
}
