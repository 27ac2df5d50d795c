//! Llamas in both versions, as clients see them: a change in one version is visible in the other.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "llama_versions/kept_before.rs"]
mod kept_before;

use std::sync::Arc;

use aggregated_apiserver::serving::AdmissionPluginName;
use aggregated_apiserver::{ApiServer, InProcess};
use http::StatusCode;
use http_body_util::BodyExt;
use kept_before::KeptBefore;
use serde_json::{Value, json};
use test_server::{admin, request, unreachable_cluster};

const V1: &str = "/apis/farm.example.com/v1/namespaces/n/llamas";
const V1ALPHA: &str = "/apis/farm.example.com/v1alpha/namespaces/n/llamas";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// The annotation for the part of a quantity that a float cannot represent.
const QUANTITIES: &str = "farm.example.com/quantities";

/// The server of the program, without a check of namespaces.
async fn server() -> InProcess {
    in_process(farm_operator::server()).await
}

async fn in_process(server: ApiServer) -> InProcess {
    let server = test_server::without_webhooks(server);
    let server = server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
    server.in_process(unreachable_cluster()).await.unwrap()
}

async fn send(server: &InProcess, method: &str, path: &str, accept: &str, body: &Value) -> Answer {
    let (method, language) = match method {
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        other => (other, "application/json"),
    };
    let mut request = request(method, path, language, body);
    request.headers_mut().insert("accept", accept.parse().unwrap());
    let (head, body) = server.respond(admin(), request).await.into_parts();
    let warned = head.headers.contains_key("warning");
    let body = body.collect().await.unwrap().to_bytes();
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    Answer { status: head.status, warned, lines }
}

struct Answer {
    status: StatusCode,
    warned: bool,
    lines: Vec<Value>,
}

/// Sends a request that must succeed without a warning. Returns the response.
async fn done(server: &InProcess, method: &str, path: &str, body: &Value) -> Value {
    let mut answer = send(server, method, path, "application/json", body).await;
    assert!(answer.status.is_success(), "{method} {path}: {:?}", answer.lines);
    assert!(!answer.warned, "{method} {path}: {:?}", answer.lines);
    answer.lines.remove(0)
}

async fn get(server: &InProcess, path: &str) -> Value {
    done(server, "GET", path, &Value::Null).await
}

/// Sends a request that must fail. Returns the status code and the message.
async fn refused(server: &InProcess, method: &str, path: &str, body: &Value) -> (u16, String) {
    let answer = send(server, method, path, "application/json", body).await;
    let message = answer.lines[0]["message"].as_str().unwrap_or_default().to_owned();
    (answer.status.as_u16(), message)
}

fn llama(version: &str, name: &str, weight: Value, height: Value) -> Value {
    json!({
        "apiVersion": format!("farm.example.com/{version}"), "kind": "Llama",
        "metadata": {"name": name}, "spec": {"weight": weight, "height": height},
    })
}

fn of_v1(name: &str, weight: &str, height: &str) -> Value {
    llama("v1", name, weight.into(), height.into())
}

#[tokio::test]
async fn llamas_created_in_one_version_are_served_in_the_other() {
    let server = server().await;
    let created = done(&server, "POST", V1, &of_v1("shaun", "45500m", "1.1")).await;
    assert_eq!(created["spec"], json!({"weight": "45500m", "height": "1.1"}));
    assert!(created["metadata"]["annotations"].is_null(), "{created}");
    let seen = get(&server, &format!("{V1ALPHA}/shaun")).await;
    assert_eq!(seen["apiVersion"], "farm.example.com/v1alpha");
    assert_eq!(seen["spec"], json!({"weight": 45.5, "height": 1.1}));
    assert_eq!(
        seen["metadata"]["annotations"],
        json!({QUANTITIES: r#"{"weight":"45500m","height":"1.1"}"#})
    );
    assert_eq!(seen["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(get(&server, &format!("{V1}/shaun")).await, created);

    let timmy = llama("v1alpha", "timmy", json!(12), json!(0.6));
    done(&server, "POST", V1ALPHA, &timmy).await;
    let seen = get(&server, &format!("{V1}/timmy")).await;
    assert_eq!(seen["spec"], json!({"weight": "12", "height": "0.6"}));
    assert!(seen["metadata"]["annotations"].is_null(), "{seen}");
    // A whole number is a valid quantity too.
    let whole = llama("v1", "whole", json!(33), json!(1));
    let whole = done(&server, "POST", V1, &whole).await;
    assert_eq!(whole["spec"], json!({"weight": "33", "height": "1"}));

    let weights = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|llama| llama["spec"]["weight"].clone()).collect()
    };
    assert_eq!(weights(&get(&server, V1).await), ["45500m", "12", "33"].map(Value::from));
    let floats = weights(&get(&server, V1ALPHA).await);
    let floats: Vec<Option<f64>> = floats.iter().map(Value::as_f64).collect();
    assert_eq!(floats, [45.5, 12.0, 33.0].map(Some));
    for (path, cells) in
        [(V1, json!(["shaun", "45500m", "1.1"])), (V1ALPHA, json!(["shaun", 45.5, 1.1]))]
    {
        let table = send(&server, "GET", path, TABLE, &Value::Null).await.lines.remove(0);
        let row = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(json!(row[..3]), cells, "{table}");
    }
    done(&server, "DELETE", &format!("{V1ALPHA}/shaun"), &Value::Null).await;
    assert_eq!(refused(&server, "GET", &format!("{V1}/shaun"), &Value::Null).await.0, 404);
}

#[tokio::test]
async fn llamas_changed_in_one_version_are_updated_in_the_other() {
    let server = server().await;
    let created = done(&server, "POST", V1, &of_v1("shaun", "45500m", "1100m")).await;
    let since = created["metadata"]["resourceVersion"].as_str().unwrap();
    let (in_v1, in_v1alpha) = (format!("{V1}/shaun"), format!("{V1ALPHA}/shaun"));
    // Each version changes its own fields, and the values from the other version remain.
    done(&server, "MERGE", &in_v1alpha, &json!({"spec": {"weight": 46}})).await;
    let seen = get(&server, &in_v1).await;
    assert_eq!(seen["spec"], json!({"weight": "46", "height": "1100m"}));
    done(&server, "MERGE", &in_v1, &json!({"spec": {"height": "1.2"}})).await;
    let mut seen = get(&server, &in_v1alpha).await;
    assert_eq!(seen["spec"], json!({"weight": 46, "height": 1.2}));
    assert!(seen["metadata"]["annotations"].is_null(), "{seen}");
    seen["spec"]["weight"] = json!(47.25);
    let put = done(&server, "PUT", &in_v1alpha, &seen).await;
    assert_eq!(refused(&server, "PUT", &in_v1, &created).await.0, 409);
    let mut newest = get(&server, &in_v1).await;
    assert_eq!(newest["metadata"]["resourceVersion"], put["metadata"]["resourceVersion"]);
    newest["spec"]["weight"] = json!("47.25");
    // The content is equal, so nothing is written.
    let same = done(&server, "PUT", &in_v1, &newest).await;
    assert_eq!(same["metadata"]["resourceVersion"], newest["metadata"]["resourceVersion"]);

    for (path, expected) in [
        (V1, json!([["46", "1100m"], ["46", "1.2"], ["47.25", "1.2"]])),
        (V1ALPHA, json!([[46.0, 1.1], [46.0, 1.2], [47.25, 1.2]])),
    ] {
        let watch = format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={since}");
        let events = send(&server, "GET", &watch, "application/json", &Value::Null).await.lines;
        let number = |value: &Value| value.as_f64().map_or(value.clone(), Value::from);
        let told = events.iter().map(|event| {
            let spec = &event["object"]["spec"];
            [number(&spec["weight"]), number(&spec["height"])]
        });
        assert_eq!(json!(told.collect::<Vec<_>>()), expected, "{events:?}");
    }
}

#[tokio::test]
async fn fields_have_owners_in_both_versions() {
    let server = server().await;
    let apply = |path: &str, manager: &str| format!("{path}/shaun?fieldManager={manager}");
    done(&server, "APPLY", &apply(V1, "shearer"), &of_v1("shaun", "45500m", "1.1")).await;
    let heavier = llama("v1alpha", "shaun", json!(46), json!(1.1));
    let conflict = refused(&server, "APPLY", &apply(V1ALPHA, "vet"), &heavier).await;
    let expected = "Apply failed with 1 conflict: conflict with \"shearer\": .spec.weight";
    assert_eq!(conflict, (409, expected.to_owned()));
    let forced = apply(V1ALPHA, "vet") + "&force=true";
    done(&server, "APPLY", &forced, &heavier).await;
    let seen = get(&server, &format!("{V1}/shaun")).await;
    assert_eq!(seen["spec"], json!({"weight": "46", "height": "1.1"}));
    // A manager that no longer applies the weight leaves it to the other manager.
    let mut height = of_v1("shaun", "", "1.1");
    height["spec"] = json!({"height": "1.1"});
    let left = done(&server, "APPLY", &apply(V1, "shearer"), &height).await;
    assert_eq!(left["spec"], json!({"weight": "46", "height": "1.1"}));
    let back = of_v1("shaun", "45.5", "1.1");
    let conflict = refused(&server, "APPLY", &apply(V1, "shearer"), &back).await;
    let expected = "Apply failed with 1 conflict: conflict with \"vet\": .spec.weight";
    assert_eq!(conflict, (409, expected.to_owned()));
}

#[tokio::test]
async fn both_versions_have_the_same_rule() {
    let server = server().await;
    let why = "must not be less than height: weight is in kilograms, height in metres; are they swapped, or is height in centimetres?";
    let expected = |name: &str| {
        format!("Llama.farm.example.com \"{name}\" is invalid: spec.weight: Invalid value: {why}")
    };
    let swapped = llama("v1alpha", "a", json!(1.1), json!(45.5));
    assert_eq!(refused(&server, "POST", V1ALPHA, &swapped).await, (422, expected("a")));
    let swapped = of_v1("a", "1100m", "45.5");
    assert_eq!(refused(&server, "POST", V1, &swapped).await, (422, expected("a")));
    let whole = llama("v1", "a", json!(1), json!(45));
    assert_eq!(refused(&server, "POST", V1, &whole).await, (422, expected("a")));
    let centimetres = of_v1("shaun", "45500m", "110");
    assert_eq!(refused(&server, "POST", V1, &centimetres).await, (422, expected("shaun")));
    done(&server, "POST", V1, &of_v1("shaun", "45.5", "1.1")).await;
    for (path, patch) in
        [(V1, json!({"spec": {"height": "110"}})), (V1ALPHA, json!({"spec": {"height": 110}}))]
    {
        let path = format!("{path}/shaun");
        assert_eq!(refused(&server, "MERGE", &path, &patch).await, (422, expected("shaun")));
    }
    for weight in [
        json!("heavy"),
        json!("1.2.3"),
        json!("nan"),
        json!("inf"),
        json!(45.5),
        json!("1".repeat(25)),
    ] {
        let (code, message) =
            refused(&server, "POST", V1, &llama("v1", "b", weight, json!("1"))).await;
        assert!(code == 422 && message.contains("spec.weight: "), "{code} {message}");
    }
    // Quantities can represent every float.
    for (index, weight) in [1e300, 5e-324, f64::MAX].into_iter().enumerate() {
        let name = format!("edge-{index}");
        let edge = llama("v1alpha", &name, json!(weight), json!(0));
        done(&server, "POST", V1ALPHA, &edge).await;
        let mut shown = get(&server, &format!("{V1}/{name}")).await;
        shown["metadata"]["labels"] = json!({"changed": "in-v1"});
        done(&server, "PUT", &format!("{V1}/{name}"), &shown).await;
        let there = get(&server, &format!("{V1ALPHA}/{name}")).await;
        assert_eq!(there["spec"]["weight"].as_f64(), Some(weight));
    }
}

#[tokio::test]
async fn a_stored_llama_that_violates_a_new_rule_can_be_changed_and_deleted() {
    let swapped = |name: &str| {
        let mut llama = llama("v1alpha", name, json!(1.1), json!(45.5));
        llama["metadata"] = json!({"name": name, "namespace": "n", "uid": format!("of-{name}")});
        llama
    };
    let kept = [swapped("a"), swapped("b"), swapped("c")];
    let store = Arc::new(KeptBefore::new("llamas.farm.example.com", &kept).await);
    let server = in_process(farm_operator::server().with_store(store)).await;
    let why = "must not be less than height";
    for (path, number) in [(V1, false), (V1ALPHA, true)] {
        let of = |value: f64| if number { json!(value) } else { json!(value.to_string()) };
        let path = format!("{path}/a");
        // An unchanged invalid value is accepted with a warning.
        let labels = json!({"metadata": {"labels": {"changed": number.to_string()}}});
        let changed = send(&server, "MERGE", &path, "application/json", &labels).await;
        assert!(changed.status.is_success() && changed.warned, "{:?}", changed.lines);
        let mut whole = changed.lines[0].clone();
        whole["metadata"]["annotations"]["put"] = number.to_string().into();
        let put = send(&server, "PUT", &path, "application/json", &whole).await;
        assert!(put.status.is_success() && put.warned, "{:?}", put.lines);
        assert_eq!(put.lines[0]["metadata"]["annotations"]["put"], number.to_string());
        // A different invalid value is rejected.
        for spec in [json!({"height": of(50.5)}), json!({"weight": of(1.2)})] {
            let (code, message) = refused(&server, "MERGE", &path, &json!({"spec": spec})).await;
            assert!(code == 422 && message.contains(why), "{code} {message}");
        }
    }
    // The value can be corrected in either version; from then on the rule applies.
    let in_metres = json!({"spec": {"weight": "45.5", "height": "1.1"}});
    done(&server, "MERGE", &format!("{V1}/a"), &in_metres).await;
    let in_metres = json!({"spec": {"weight": 45.5, "height": 1.1}});
    done(&server, "MERGE", &format!("{V1ALPHA}/b"), &in_metres).await;
    for name in ["a", "b"] {
        let swap = json!({"spec": {"weight": 1.1, "height": 45.5}});
        let path = format!("{V1ALPHA}/{name}");
        assert_eq!(refused(&server, "MERGE", &path, &swap).await.0, 422);
    }
    done(&server, "DELETE", &format!("{V1}/c"), &Value::Null).await;
    assert_eq!(refused(&server, "GET", &format!("{V1ALPHA}/c"), &Value::Null).await.0, 404);
}

#[tokio::test]
async fn the_newer_version_is_preferred() {
    let server = server().await;
    let group = get(&server, "/apis/farm.example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let names = |version: &Value| -> Vec<String> {
        let resources = version["resources"].as_array().unwrap();
        resources.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let newer = get(&server, "/apis/farm.example.com/v1").await;
    assert_eq!(names(&newer), ["llamas"]);
    let older = get(&server, "/apis/farm.example.com/v1alpha").await;
    assert_eq!(
        names(&older),
        [
            "farmnodes",
            "farmpods",
            "farmpods/log",
            "farmworkloads",
            "farmworkloads/restart",
            "llamas"
        ]
    );
    // Both versions are one resource with one stored object.
    let hash = |version: &Value| {
        let resources = version["resources"].as_array().unwrap();
        let llamas = resources.iter().find(|one| one["name"] == "llamas").unwrap();
        llamas["storageVersionHash"].clone()
    };
    assert!(hash(&newer).is_string());
    assert_eq!(hash(&newer), hash(&older));
}
