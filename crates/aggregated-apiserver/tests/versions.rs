//! A kind with two versions that Rust code converts, as clients see it.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

#[path = "versions/flock.rs"]
mod flock;
#[path = "../../oracle/src/herd.rs"]
mod herd;

use aggregated_apiserver::versions::check_round_trips;
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_server::unreachable_cluster;

use herd::{v1, v1alpha};

const V1: &str = "/apis/example.com/v1/namespaces/n/herds";
const V1ALPHA: &str = "/apis/example.com/v1alpha/namespaces/n/herds";

async fn server() -> InProcess {
    test_server::server_of(Kinds::new().stored::<v1::Herd>()).await
}

struct Answer {
    status: StatusCode,
    warnings: Vec<String>,
    body: Value,
}

async fn send(
    server: &InProcess,
    (method, path): (&str, &str),
    (language, accept): (&str, &str),
    body: &Value,
) -> Response<Body> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", language).header("accept", accept);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    server.respond(test_server::admin(), request.body(body).unwrap()).await
}

async fn ask(server: &InProcess, method: &str, path: &str, body: Value) -> Answer {
    let language = match method {
        "PATCH" => "application/merge-patch+json",
        "APPLY" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let method = if method == "APPLY" { "PATCH" } else { method };
    let response = send(server, (method, path), (language, "application/json"), &body).await;
    let (head, body) = response.into_parts();
    let warnings = head.headers.get_all("warning").iter();
    let warnings = warnings.map(|text| text.to_str().unwrap().to_owned()).collect();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, warnings, body: serde_json::from_slice(&body).unwrap() }
}

async fn get(server: &InProcess, path: &str) -> Value {
    let answer = ask(server, "GET", path, Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
    answer.body
}

async fn read_as(server: &InProcess, path: &str, accept: &str) -> Value {
    let response = send(server, ("GET", path), ("", accept), &Value::Null).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

fn of_v1(name: &str, grams: i64, paint: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Herd", "metadata": {"name": name},
        "spec": {"grams": grams, "size": {"heads": 3}, "paint": paint},
    })
}

fn of_v1alpha(name: &str, weight: f64, color: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1alpha", "kind": "Herd", "metadata": {"name": name},
        "spec": {"weight": weight, "heads": 3, "color": color},
    })
}

async fn create(server: &InProcess, path: &str, object: Value) -> Value {
    let answer = ask(server, "POST", path, object).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn each_version_contains_the_object_in_its_own_fields() {
    let server = server().await;
    let created = create(&server, V1ALPHA, of_v1alpha("a", 1.5, "red")).await;
    assert_eq!(created["spec"], json!({"weight": 1.5, "heads": 3, "color": "red"}));
    let shown = get(&server, &format!("{V1}/a")).await;
    assert_eq!(shown["apiVersion"], "example.com/v1");
    let expected = json!({"grams": 1500, "size": {"heads": 3}, "paint": "RED"});
    assert_eq!(shown["spec"], expected);
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        assert_eq!(shown["metadata"][field], created["metadata"][field], "{field}");
    }
    create(&server, V1, of_v1("b", 2_000, "BLUE")).await;
    let specs = |list: Value| -> Vec<Value> {
        list["items"].as_array().unwrap().iter().map(|item| item["spec"].clone()).collect()
    };
    let list = get(&server, V1ALPHA).await;
    let expected = [
        json!({"weight": 1.5, "heads": 3, "color": "red"}),
        json!({"weight": 2, "heads": 3, "color": "blue"}),
    ];
    assert_eq!(specs(list), expected);
    // Field selectors use the names and values of the requested version.
    for (path, selector, expected) in [
        (V1, "spec.paint%3DBLUE", 1),
        (V1ALPHA, "spec.color%3Dblue", 1),
        (V1ALPHA, "spec.color%3DBLUE", 0),
    ] {
        let list = get(&server, &format!("{path}?fieldSelector={selector}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{selector}");
    }
    let of_other = format!("{V1}?fieldSelector=spec.color%3Dred");
    let other = ask(&server, "GET", &of_other, Value::Null).await;
    assert_eq!(other.status, StatusCode::BAD_REQUEST);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (path, column, cell) in [(V1, "Grams", json!(1500)), (V1ALPHA, "Weight", json!(1.5))] {
        let table = read_as(&server, path, table).await;
        assert_eq!(table["columnDefinitions"][1]["name"], column);
        assert_eq!(table["rows"][0]["cells"][1], cell);
    }
}

#[tokio::test]
async fn writes_preserve_fields_that_exist_only_in_another_version() {
    let server = server().await;
    let mut noted = of_v1("a", 1_500, "RED");
    noted["spec"]["note"] = json!("limps");
    create(&server, V1, noted).await;
    let (v1, v1alpha) = (format!("{V1}/a"), format!("{V1ALPHA}/a"));
    let shown = get(&server, &v1alpha).await;
    assert_eq!(shown["metadata"]["annotations"], json!({"example.com/note": "limps"}));
    let mut put = shown.clone();
    put["spec"]["weight"] = json!(7);
    let answer = ask(&server, "PUT", &v1alpha, put).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["metadata"]["generation"], 2);
    assert!(answer.warnings.iter().any(|text| text.contains("use example.com/v1")));
    let shown = get(&server, &v1).await;
    let expected = json!({"grams": 7000, "size": {"heads": 3}, "paint": "RED", "note": "limps"});
    assert_eq!((&shown["spec"], shown["metadata"].get("annotations")), (&expected, None));
    // A write without a change does not store anything.
    let again = ask(&server, "PUT", &v1alpha, get(&server, &v1alpha).await).await.body;
    assert_eq!(again["metadata"]["resourceVersion"], shown["metadata"]["resourceVersion"]);
    let patched = ask(&server, "PATCH", &v1alpha, json!({"spec": {"color": "green"}})).await;
    assert_eq!(patched.body["spec"]["color"], "green", "{}", patched.body);
    let status = format!("{v1alpha}/status");
    let patched = ask(&server, "PATCH", &status, json!({"status": {"seen": 2}})).await;
    assert_eq!(patched.status, StatusCode::OK, "{}", patched.body);
    // Each version has the replicas of a Scale in different fields.
    for (path, heads) in [(&v1, 5), (&v1alpha, 6)] {
        let scale = format!("{path}/scale");
        let scaled = ask(&server, "PATCH", &scale, json!({"spec": {"replicas": heads}})).await;
        let (spec, status) = (&scaled.body["spec"], &scaled.body["status"]);
        assert_eq!((&spec["replicas"], &status["replicas"]), (&json!(heads), &json!(2)));
        assert_eq!(scaled.body["apiVersion"], "autoscaling/v1");
    }
    let shown = get(&server, &v1).await;
    let expected = json!({"grams": 7000, "size": {"heads": 6}, "paint": "GREEN", "note": "limps"});
    assert_eq!(shown["spec"], expected);
    assert_eq!(shown["status"], json!({"observed": {"heads": 2}}));
    // Requests for metadata return the metadata of the requested version.
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let shown = read_as(&server, &v1alpha, metadata).await;
    assert_eq!(shown["metadata"]["annotations"], json!({"example.com/note": "limps"}));
    assert_eq!(read_as(&server, &v1, metadata).await["metadata"].get("annotations"), None);
}

#[tokio::test]
async fn watch_events_are_in_the_requested_version() {
    let server = server().await;
    let created = create(&server, V1, of_v1("a", 1_000, "RED")).await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let watch =
        format!("{V1ALPHA}?watch=true&resourceVersion={version}&fieldSelector=spec.color%3Dred");
    let watch = send(&server, ("GET", &watch), ("", "application/json"), &Value::Null).await;
    let mut body = watch.into_body();
    ask(&server, "PATCH", &format!("{V1}/a"), json!({"spec": {"grams": 2_000}})).await;
    ask(&server, "PATCH", &format!("{V1}/a"), json!({"spec": {"paint": "BLUE"}})).await;
    ask(&server, "PATCH", &format!("{V1}/a"), json!({"spec": {"paint": "RED"}})).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        for event in serde_json::Deserializer::from_slice(&frame).into_iter::<Value>() {
            let event = event.unwrap();
            let spec = &event["object"]["spec"];
            seen.push((event["type"].clone(), spec["weight"].clone(), spec["color"].clone()));
        }
    }
    let expected = [("MODIFIED", "red"), ("DELETED", "red"), ("ADDED", "red")];
    let expected = expected.map(|(event, color)| (json!(event), json!(2), json!(color)));
    assert_eq!(seen, expected);
}

fn managers(object: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entry = |entry: Value| {
        (text(&entry["manager"]), text(&entry["apiVersion"]), entry["fieldsV1"]["f:spec"].clone())
    };
    entries.into_iter().map(entry).collect()
}

#[tokio::test]
async fn field_managers_own_fields_in_the_version_that_they_applied() {
    let server = server().await;
    let (v1, v1alpha) = (format!("{V1}/a"), format!("{V1ALPHA}/a"));
    let path = format!("{v1alpha}?fieldManager=vet");
    let applied = ask(&server, "APPLY", &path, of_v1alpha("a", 1.5, "red")).await;
    assert_eq!(applied.status, StatusCode::CREATED);
    // Another manager changes the same weight in the other version.
    let heavier = json!({
        "apiVersion": "example.com/v1", "kind": "Herd", "metadata": {"name": "a"},
        "spec": {"grams": 2_000, "size": {"heads": 3}},
    });
    let path = format!("{v1}?fieldManager=farmer");
    let refused = ask(&server, "APPLY", &path, heavier.clone()).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert_eq!(
        refused.body["message"],
        "Apply failed with 1 conflict: conflict with \"vet\": .spec.weight"
    );
    let forced = ask(&server, "APPLY", &format!("{path}&force=true"), heavier).await;
    assert_eq!(forced.status, StatusCode::OK, "{}", forced.body);
    let expected = [
        (
            "farmer".to_owned(),
            "example.com/v1".to_owned(),
            json!({"f:grams": {}, "f:size": {"f:heads": {}}}),
        ),
        ("vet".to_owned(), "example.com/v1alpha".to_owned(), json!({"f:color": {}, "f:heads": {}})),
    ];
    let mut found = managers(&forced.body);
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
    // A field that the vet no longer applies is removed, although it has another name in the storage version.
    let mut paler = of_v1alpha("a", 2.0, "red");
    paler["spec"].as_object_mut().unwrap().remove("color");
    let path = format!("{v1alpha}?fieldManager=vet");
    let applied = ask(&server, "APPLY", &path, paler).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.body);
    assert_eq!(get(&server, &v1).await["spec"], json!({"grams": 2000, "size": {"heads": 3}}));
    // The field is also removed if the vet applies in another version than before.
    let last = json!({
        "apiVersion": "example.com/v1", "kind": "Herd", "metadata": {"name": "a"},
        "spec": {"grams": 2_000, "size": {"heads": 3}, "note": "limps"},
    });
    let path = format!("{v1}?fieldManager=vet");
    let applied = ask(&server, "APPLY", &path, last.clone()).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.body);
    let mut without = last;
    without["spec"].as_object_mut().unwrap().remove("note");
    ask(&server, "APPLY", &path, without).await;
    let shown = get(&server, &v1).await;
    assert_eq!(shown["spec"].get("note"), None);
}

#[tokio::test]
async fn a_field_manager_can_apply_its_manifest_in_another_version() {
    let server = server().await;
    let (v1, v1alpha) = (format!("{V1}/a"), format!("{V1ALPHA}/a"));
    let noted = |mut object: Value, labels: Value, annotations: Value| {
        object["metadata"]["labels"] = labels;
        object["metadata"]["annotations"] = annotations;
        object
    };
    let path = format!("{v1alpha}?fieldManager=kubectl");
    let manifest = noted(
        of_v1alpha("a", 1.5, "red"),
        json!({"stays": "x", "goes": "x"}),
        json!({"example.com/stays": "x", "example.com/goes": "x", "example.com/note": "limps"}),
    );
    let applied = ask(&server, "APPLY", &path, manifest).await;
    assert_eq!(applied.status, StatusCode::CREATED, "{}", applied.body);
    let of_other =
        json!({"metadata": {"labels": {"other": "x"}, "finalizers": ["example.com/held"]}});
    ask(&server, "PATCH", &format!("{v1}?fieldManager=other"), of_other).await;
    let path = format!("{v1}?fieldManager=kubectl");
    let manifest =
        noted(of_v1("a", 1_500, "RED"), json!({"stays": "x"}), json!({"example.com/stays": "x"}));
    let before = get(&server, &v1).await;
    assert_eq!(before["spec"]["note"], "limps");
    let applied = ask(&server, "APPLY", &path, manifest.clone()).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.body);
    let shown = get(&server, &v1).await;
    let metadata = &shown["metadata"];
    assert_eq!(metadata["labels"], json!({"stays": "x", "other": "x"}));
    assert_eq!(metadata["annotations"], json!({"example.com/stays": "x"}));
    assert_eq!(metadata["finalizers"], json!(["example.com/held"]));
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(metadata[field], before["metadata"][field]);
    }
    // The note, which was applied as an annotation in the first version, is a field in this version. It is removed too.
    assert_eq!(shown["spec"], manifest["spec"]);
    // Applying in the first version again leaves no remains.
    let path = format!("{v1alpha}?fieldManager=kubectl");
    let applied = ask(&server, "APPLY", &path, of_v1alpha("a", 1.5, "red")).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.body);
    let metadata = &get(&server, &v1alpha).await["metadata"];
    assert_eq!(metadata["labels"], json!({"other": "x"}));
    assert_eq!(metadata.get("annotations"), None);
}

#[tokio::test]
async fn rust_rules_run_on_the_hub_version_and_cel_rules_on_their_own() {
    let server = server().await;
    // Rules in Rust are evaluated on the hub version, whose fields they name.
    let heavy = ask(&server, "POST", V1ALPHA, of_v1alpha("a", 10_000.0, "red")).await;
    assert_eq!(heavy.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        heavy.body["message"],
        "Herd.example.com \"a\" is invalid: spec.grams: Invalid value: 10000000: too heavy"
    );
    // A field that the rules set appears in the version of the request.
    let created = create(&server, V1ALPHA, of_v1alpha("a", 1.0, "")).await;
    assert_eq!(created["spec"]["color"], "grey");
    assert_eq!(get(&server, &format!("{V1}/a")).await["spec"]["paint"], "GREY");
    let more = json!({"spec": {"heads": 100}});
    ask(&server, "PATCH", &format!("{V1ALPHA}/a"), more).await;
    let fewer = json!({"spec": {"heads": 1}});
    let refused = ask(&server, "PATCH", &format!("{V1ALPHA}/a"), fewer).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.size.heads");
    // Each version has its own CEL rules.
    let odd = ask(&server, "POST", V1ALPHA, of_v1alpha("b", 666.0, "red")).await;
    let expected =
        "Herd.example.com \"b\" is invalid: spec: Invalid value: is not said in kilograms";
    assert_eq!(odd.body["message"], expected);
    create(&server, V1, of_v1("b", 666_000, "RED")).await;
}

#[tokio::test]
async fn an_update_is_rejected_if_rules_cannot_convert_the_old_object() {
    let server = server().await;
    let mut herd = of_v1("a", 1_000, "ONE-WAY");
    herd["spec"]["size"]["heads"] = json!(100);
    create(&server, V1, herd).await;
    // The old object is readable in this version, but cannot be converted back to the version of the rules.
    let fewer = json!({"spec": {"heads": 1, "color": "red"}});
    let refused = ask(&server, "PATCH", &format!("{V1ALPHA}/a"), fewer).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.body);
    let why = "herds.example.com \"a\" cannot be converted to example.com/v1: spec.color: Invalid value: \"one-way\": is of no paint";
    assert_eq!(refused.body["message"], why);
    assert_eq!(get(&server, &format!("{V1}/a")).await["spec"]["size"]["heads"], 100);
}

#[tokio::test]
async fn an_unconvertible_field_of_a_request_is_reported_with_422() {
    let server = server().await;
    create(&server, V1ALPHA, of_v1alpha("a", 1.0, "red")).await;
    let a = format!("{V1ALPHA}/a");
    let mut put = get(&server, &a).await;
    put["spec"]["color"] = json!("one-way");
    for (method, path, body) in [
        ("POST", V1ALPHA, of_v1alpha("b", 1.0, "one-way")),
        ("PUT", a.as_str(), put),
        ("PATCH", a.as_str(), json!({"spec": {"color": "one-way"}})),
    ] {
        let refused = ask(&server, method, path, body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{method} {}", refused.body);
        let expected = json!([{
            "reason": "FieldValueInvalid", "field": "spec.color",
            "message": "Invalid value: \"one-way\": is of no paint",
        }]);
        assert_eq!(refused.body["details"]["causes"], expected, "{method}");
    }
    assert_eq!(get(&server, &a).await["spec"]["color"], "red");
    // If a stored object cannot be converted, the error is not the client's.
    create(&server, V1, of_v1("c", 1_000, "ONE-WAY")).await;
    let touched = json!({"spec": {"heads": 5}});
    let refused = ask(&server, "PATCH", &format!("{V1ALPHA}/c"), touched).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.body);
}

#[tokio::test]
async fn documents_describe_each_version() {
    let server = server().await;
    let group = get(&server, "/apis/example.com").await;
    let versions: Vec<&Value> =
        group["versions"].as_array().unwrap().iter().map(|one| &one["version"]).collect();
    assert_eq!(versions, ["v1", "v1alpha"]);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    for version in ["v1", "v1alpha"] {
        let resources = get(&server, &format!("/apis/example.com/{version}")).await;
        let names: Vec<&Value> =
            resources["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["herds", "herds/status", "herds/scale"]);
        let document = get(&server, &format!("/openapi/v3/apis/example.com/{version}")).await;
        let schemas = document["components"]["schemas"].to_string();
        assert_eq!(schemas.contains("\"grams\""), version == "v1");
        assert_eq!(schemas.contains("\"weight\""), version == "v1alpha");
    }
}

#[tokio::test]
async fn an_unconvertible_object_fails_only_its_version_and_can_be_deleted() {
    for (paint, why) in [
        ("RAINBOW", "no such color"),
        ("PANIC", "the conversion panicked"),
        ("RENAMED", "must have the same name: broken != other"),
    ] {
        let server = server().await;
        create(&server, V1, of_v1("a", 1_000, "RED")).await;
        create(&server, V1, of_v1("broken", 1_000, paint)).await;
        let why = format!(
            "herds.example.com \"broken\" cannot be converted to example.com/v1alpha: {why}"
        );
        let broken = format!("{V1ALPHA}/broken");
        let selected = format!("{V1ALPHA}?fieldSelector=spec.color%3Dred");
        let patch = json!({"metadata": {"labels": {"x": "y"}}});
        for (method, path, body) in [
            ("GET", broken.as_str(), Value::Null),
            ("GET", V1ALPHA, Value::Null),
            ("GET", &selected, Value::Null),
            ("PATCH", &broken, patch.clone()),
            ("PUT", &broken, of_v1alpha("broken", 1.0, "red")),
        ] {
            let answer = ask(&server, method, path, body).await;
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}");
            assert_eq!(answer.body["message"], why.as_str(), "{method} {path}");
        }
        let watch = format!("{V1ALPHA}?watch=true");
        let events = send(&server, ("GET", &watch), ("", "application/json"), &Value::Null).await;
        let events = events.into_body().collect().await.unwrap().to_bytes();
        let events: Vec<Value> =
            serde_json::Deserializer::from_slice(&events).into_iter().map(Result::unwrap).collect();
        assert_eq!(events.last().unwrap()["object"]["message"], why.as_str());
        // The object is visible in the storage version and as metadata.
        assert_eq!(get(&server, V1).await["items"].as_array().unwrap().len(), 2);
        let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let list = read_as(&server, V1ALPHA, metadata).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        let patched = ask(&server, "PATCH", &format!("{V1}/broken"), patch).await;
        assert_eq!(patched.status, StatusCode::OK, "{}", patched.body);
        let deleted = ask(&server, "DELETE", &broken, Value::Null).await;
        assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.body);
        get(&server, V1ALPHA).await;
    }
    // Objects that are written but cannot be converted to the storage version.
    let server = server().await;
    let answer = ask(&server, "POST", V1ALPHA, of_v1alpha("a", 0.000_1, "red")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let why = "herds.example.com \"a\" cannot be converted to example.com/v1: 0.0001 kg are no whole grams";
    assert_eq!(answer.body["message"], why);
    assert_eq!(get(&server, V1).await["items"], json!([]));
}

/// A herd with an extra field, so that the object has this nesting depth.
fn so_deep(mut herd: Value, depth: usize) -> Value {
    herd["metadata"]["finalizers"] = json!(["example.com/held"]);
    herd["spec"]["extra"] = (3..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    herd
}

#[tokio::test]
async fn converted_objects_beyond_depth_or_size_limits_are_rejected() {
    let server = server().await;
    // The maximum depth that can be read again, and one level more.
    let a = format!("{V1ALPHA}/a");
    create(&server, V1ALPHA, so_deep(of_v1alpha("a", 1.0, "red"), 126)).await;
    let deeper = so_deep(of_v1alpha("b", 1.0, "red"), 127);
    let answer = ask(&server, "POST", V1ALPHA, deeper.clone()).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.body);
    let too_deep = "an object nests at most 127 levels deep";
    let expected = format!("Request entity too large: {too_deep}");
    assert_eq!(answer.body["message"], expected.as_str());
    let patch = json!({"spec": {"extra": deeper["spec"]["extra"]}});
    let answer = ask(&server, "PATCH", &a, patch).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.body);
    assert_eq!(
        get(&server, &format!("{V1}/a")).await["metadata"]["finalizers"][0],
        "example.com/held"
    );
    // Too deep, or too large, in the requested version.
    create(&server, V1, so_deep(of_v1("c", 1_000, "RED"), 127)).await;
    let mut small = of_v1("d", 1_000, "RED");
    small["spec"]["extra"] = json!(50_000_000);
    create(&server, V1, small).await;
    for (name, why) in [("c", too_deep), ("d", "the conversion has made more than 16777216 bytes")]
    {
        let answer = ask(&server, "GET", &format!("{V1ALPHA}/{name}"), Value::Null).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", answer.body);
        let expected = format!(
            "herds.example.com \"{name}\" cannot be converted to example.com/v1alpha: {why}"
        );
        assert_eq!(answer.body["message"], expected.as_str());
        // A finalizer still holds the object.
        let held = get(&server, &format!("{V1}/{name}")).await;
        assert_eq!(held["metadata"]["name"], name);
    }
}

#[tokio::test]
async fn an_unconvertible_change_that_removes_the_last_finalizer_succeeds() {
    let server = server().await;
    let mut held = of_v1("a", 1_000, "RED");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    create(&server, V1, held).await;
    let path = format!("{V1ALPHA}/a");
    let deleted = ask(&server, "DELETE", &path, Value::Null).await;
    assert_eq!(deleted.body["metadata"]["finalizers"], json!(["example.com/held"]));
    // The object is removed, so it need not be converted to the storage version.
    let last = json!({"metadata": {"finalizers": null}, "spec": {"weight": 0.000_1}});
    let gone = ask(&server, "PATCH", &path, last).await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.body);
    assert_eq!(gone.body["spec"]["weight"], json!(0.000_1));
    assert_eq!(get(&server, V1).await["items"], json!([]));
}

#[test]
fn round_trips_are_tested() {
    let mut random = fastrand::Rng::with_seed(7);
    let names = ["RED", "BLUE", "GREY"];
    let herd = |_| {
        let spec = v1::HerdSpec {
            grams: random.i64(-1_000_000_000..1_000_000_000),
            size: v1::Size { heads: random.i64(..) },
            paint: random.bool().then(|| names[random.usize(..3)].to_owned()),
            note: random.bool().then(|| "x".repeat(random.usize(..20))),
            extra: None,
        };
        let mut herd = v1::Herd::new("a", spec);
        herd.metadata.labels = random.bool().then(|| [("a".into(), "b".into())].into());
        herd.metadata.annotations = random.bool().then(|| [("c".into(), "d".into())].into());
        herd.status =
            random.bool().then(|| v1::HerdStatus { observed: v1::Size { heads: random.i64(..) } });
        herd
    };
    let herds: Vec<v1::Herd> = (0..500).map(herd).collect();
    check_round_trips::<v1alpha::Herd, _>([], herds).unwrap();
    let spec = |weight, color: &str| v1alpha::HerdSpec {
        weight,
        heads: 1,
        color: Some(color.to_owned()),
        extra: None,
    };
    check_round_trips([v1alpha::Herd::new("a", spec(1.5, "red"))], []).unwrap();
    for (weight, color, expected) in [
        (1.5, "Red", ".spec.color: \"Red\" became \"red\""),
        (0.000_1, "red", "0.0001 kg are no whole grams"),
        (1.5, "panic", "on the way back: the conversion panicked"),
        (1.5, "aquamarineblue", "v1: spec.paint: Too long: may not be more than 12 bytes"),
        (1.5, "bare", ".metadata.annotations: {\"example.com/annotation\":\"x\"} is gone"),
    ] {
        let fault = check_round_trips([v1alpha::Herd::new("a", spec(weight, color))], []);
        let fault = fault.unwrap_err().to_string();
        assert!(
            fault.starts_with(&format!("from v1alpha to v1 and back: {expected}: {{")),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn inconsistent_definitions_of_versions_prevent_the_start() {
    let fault = check_round_trips::<flock::v1alpha::Flock, _>([], []).unwrap_err();
    let expected = r#"spec.names.shortNames: is ["fl"] in v1, and ["fk"] in v1alpha, spec.versions: objects are kept in one version, not in ["v1alpha", "v1beta"]"#;
    assert_eq!(fault.why, expected);
    let server = ApiServer::new("flocks", Kinds::new().stored::<flock::v1::Flock>());
    let refused = server.in_process(unreachable_cluster()).await.err().unwrap();
    assert!(refused.to_string().contains(r#"is ["fl"] in v1, and ["fk"] in v1alpha"#), "{refused}");
}
