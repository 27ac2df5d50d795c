//! A kind whose versions a webhook converts, with a working and with a failing webhook.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

#[path = "conversion_webhook/webhook.rs"]
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::InProcess;
use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use webhook::{Mode, Webhook};

const V1: &str = "/apis/example.com/v1/namespaces/n/boxes";
const V2: &str = "/apis/example.com/v2/namespaces/n/boxes";

fn definition(url: &str, ca_bundle: &str) -> Value {
    let version = |name: &str, stored: bool, field: &str, of_type: &str| {
        json!({
            "name": name, "served": true, "storage": stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    field: {"type": of_type}, "replicas": {"type": "integer"},
                }},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }},
            "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "additionalPrinterColumns":
                [{"name": "Field", "type": of_type, "jsonPath": format!(".spec.{field}")}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Box", "plural": "boxes", "singular": "box", "listKind": "BoxList"},
            "versions": [version("v1", true, "size", "integer"), version("v2", false, "width", "string")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": ca_bundle},
            }},
        },
    })
}

async fn server(webhook: &Webhook) -> InProcess {
    test_server::server(&definition(&webhook.url(), &webhook.ca_bundle).to_string()).await
}

async fn respond(
    server: &InProcess,
    method: &str,
    path: &str,
    accept: &str,
    body: &Value,
) -> Response<Body> {
    let language = match method {
        "PATCH" => "application/merge-patch+json",
        "APPLY" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let method = if method == "APPLY" { "PATCH" } else { method };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", language).header("accept", accept);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    server.respond(test_server::admin(), request.body(body).unwrap()).await
}

async fn ask(server: &InProcess, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let response = respond(server, method, path, "application/json", &body).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, serde_json::from_slice(&body).unwrap())
}

async fn done(server: &InProcess, method: &str, path: &str, body: Value) -> Value {
    let (status, answer) = ask(server, method, path, body).await;
    assert!(status.is_success(), "{method} {path}: {answer}");
    answer
}

fn of_v1(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"size": size}})
}

fn of_v2(name: &str, width: &str) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Box", "metadata": {"name": name}, "spec": {"width": width}})
}

/// Changes the response of the webhook.
type Change = fn(&mut Value);

#[tokio::test]
async fn every_verb_converts_through_the_webhook() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    let created = done(&server, "POST", V2, of_v2("a", "5cm")).await;
    assert_eq!(created["spec"], json!({"width": "5cm"}));
    let a = (format!("{V1}/a"), format!("{V2}/a"));
    assert_eq!(done(&server, "GET", &a.0, Value::Null).await["spec"], json!({"size": 5}));
    let shown = done(&server, "GET", &a.1, Value::Null).await;
    assert_eq!(shown["metadata"], created["metadata"]);
    let patch = json!({"spec": {"width": "6cm", "replicas": 2}});
    done(&server, "PATCH", &a.1, patch).await;
    assert_eq!(
        done(&server, "GET", &a.0, Value::Null).await["spec"],
        json!({"size": 6, "replicas": 2})
    );
    let mut whole = done(&server, "GET", &a.1, Value::Null).await;
    whole["spec"]["width"] = "7cm".into();
    done(&server, "PUT", &a.1, whole).await;
    let apply = format!("{}?fieldManager=me", a.1);
    let conflict = ask(&server, "APPLY", &apply, of_v2("a", "8cm")).await;
    assert_eq!(conflict.0, StatusCode::CONFLICT, "{}", conflict.1);
    let applied = done(&server, "APPLY", &format!("{apply}&force=true"), of_v2("a", "8cm")).await;
    assert_eq!(applied["spec"]["width"], "8cm");
    // The ownership of fields is the same in both versions.
    let other = format!("{}?fieldManager=other", a.0);
    let conflict = ask(&server, "APPLY", &other, of_v1("a", 9)).await;
    assert_eq!(conflict.0, StatusCode::CONFLICT, "{}", conflict.1);
    let scale = done(&server, "GET", &format!("{}/scale", a.1), Value::Null).await;
    assert_eq!(scale["spec"]["replicas"], 2);
    let scale = json!({"spec": {"replicas": 3}});
    done(&server, "PATCH", &format!("{}/scale", a.1), scale).await;
    done(&server, "PATCH", &format!("{}/status", a.1), json!({"status": {"replicas": 1}})).await;
    let shown = done(&server, "GET", &a.0, Value::Null).await;
    assert_eq!((&shown["spec"]["replicas"], &shown["status"]["replicas"]), (&json!(3), &json!(1)));
    let gone = done(&server, "DELETE", &a.1, Value::Null).await;
    assert_eq!(gone["status"], "Success");
    assert_eq!(ask(&server, "GET", &a.1, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_list_is_few_calls() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    for number in 0..100 {
        done(&server, "POST", V1, of_v1(&format!("b{number:03}"), number)).await;
    }
    assert_eq!(webhook.take_calls(), [0; 0], "the stored version needs no webhook");
    let list = done(&server, "GET", V2, Value::Null).await;
    let widths: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["spec"]["width"].as_str().unwrap())
        .collect();
    let expected: Vec<String> = (0..100).map(|number| format!("{number}cm")).collect();
    assert_eq!(widths, expected);
    let calls = webhook.take_calls();
    assert_eq!(calls.iter().sum::<usize>(), 100, "{calls:?}");
    assert!(calls.len() <= 3, "{calls:?}");
    let selected = format!("{V2}?fieldSelector=spec.width%3D42cm&limit=1");
    let list = done(&server, "GET", &selected, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["metadata"]["name"], "b042");
    let paged = done(&server, "GET", &format!("{V2}?limit=30"), Value::Null).await;
    assert_eq!(paged["items"].as_array().unwrap().len(), 30);
    for accept in [
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/yaml",
    ] {
        let response = respond(&server, "GET", V2, accept, &Value::Null).await;
        assert_eq!(response.status(), StatusCode::OK, "{accept}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("b000") && text.contains("b099"), "{accept}: {text}");
        assert!(!accept.contains("Table") || text.contains("99cm"), "{text}");
    }
    done(&server, "DELETE", &format!("{V2}?fieldSelector=spec.width%3D42cm"), Value::Null).await;
    let list = done(&server, "GET", V1, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 99);
}

/// The webhook stores data in annotations that a version has no field for, like the webhooks of many operators.
#[tokio::test]
async fn a_conversion_webhook_can_store_data_in_annotations() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    webhook.set(Mode::Changes(|review| {
        let object = &mut review["response"]["convertedObjects"][0];
        let is_v2 = object["apiVersion"] == "example.com/v2";
        let annotations = &mut object["metadata"]["annotations"];
        match is_v2 {
            true => annotations["data"] = "of v1".into(),
            false => *annotations = json!({"data-of": "v2"}),
        }
    }));
    done(&server, "POST", V1, of_v1("a", 1)).await;
    let (v1, v2) = (format!("{V1}/a"), format!("{V2}/a"));
    let mut shown = done(&server, "GET", &v2, Value::Null).await;
    assert_eq!(shown["metadata"]["annotations"], json!({"data": "of v1"}));
    assert_eq!(
        done(&server, "GET", &v1, Value::Null).await["metadata"]["annotations"],
        Value::Null
    );
    shown["spec"]["width"] = "2cm".into();
    let written = done(&server, "PUT", &v2, shown).await;
    assert_eq!(
        written["metadata"]["annotations"],
        json!({"data": "of v1", "data-of": "v2"}),
        "{written}"
    );
    let kept = done(&server, "GET", &v1, Value::Null).await;
    assert_eq!(kept["metadata"]["annotations"], json!({"data-of": "v2"}));
}

/// Objects that the selector does not match must be converted too. A call has many objects, and the collection is
/// converted step by step.
#[tokio::test]
async fn a_field_selector_converts_each_object_once() {
    const OBJECTS: i64 = 700;
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    for number in 0..OBJECTS {
        done(&server, "POST", V1, of_v1(&format!("b{number:03}"), number)).await;
    }
    let last = format!("{V2}?fieldSelector=spec.width%3D{}cm", OBJECTS - 1);
    let nothing = format!("{V2}?fieldSelector=spec.width%3D1m");
    for path in [&nothing, &last] {
        let list = done(&server, "GET", path, Value::Null).await;
        let expected = usize::from(path == &last);
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{path}");
        let calls = webhook.take_calls();
        assert_eq!(calls.iter().sum::<usize>(), 700, "{calls:?}");
        assert!(calls.len() < 20, "{calls:?}");
    }
    done(&server, "DELETE", &nothing, Value::Null).await;
    let calls = webhook.take_calls();
    assert!(calls.len() < 50, "{calls:?}");
    done(&server, "DELETE", &last, Value::Null).await;
    let list = done(&server, "GET", V1, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 699);
}

#[tokio::test]
async fn many_watches_of_one_change_cause_one_webhook_call() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    done(&server, "POST", V1, of_v1("first", 1)).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        let path = format!("{V2}?watch=true&resourceVersion=0");
        let response = respond(&server, "GET", &path, "application/json", &Value::Null).await;
        let mut events = response.into_body().into_data_stream();
        let event: Value = serde_json::from_slice(&events.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(event["object"]["spec"]["width"], "1cm");
        watches.push(events);
    }
    webhook.take_calls();
    done(&server, "POST", V1, of_v1("second", 2)).await;
    let next = watches.iter_mut().map(StreamExt::next);
    for event in futures::future::join_all(next).await {
        let event: Value = serde_json::from_slice(&event.unwrap().unwrap()).unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["spec"]["width"], "2cm");
    }
    assert_eq!(webhook.take_calls(), [1]);
    // A field selector of a version is evaluated on the objects of that version.
    let path = format!("{V2}?watch=true&resourceVersion=0&fieldSelector=spec.width%3D2cm");
    let response = respond(&server, "GET", &path, "application/json", &Value::Null).await;
    let mut events = response.into_body().into_data_stream();
    let event: Value = serde_json::from_slice(&events.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "second");
    done(&server, "PATCH", &format!("{V1}/first"), json!({"spec": {"size": 2}})).await;
    let event: Value = serde_json::from_slice(&events.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("first"))
    );
}

#[tokio::test]
async fn conversion_webhook_errors_are_reported_and_the_storage_version_still_works() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    done(&server, "POST", V1, of_v1("a", 1)).await;
    let failed = "conversion webhook for example.com/v1, Kind=Box";
    let post = format!("Post \"{}?timeout=30s\"", webhook.url());
    let changes: [(Change, &str); 9] = [
        (|review| review["response"]["uid"] = "other".into(), " failed: expected response.uid="),
        (
            |review| review["apiVersion"] = "v1".into(),
            " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=ConversionReview",
        ),
        (
            |review| review["response"]["convertedObjects"] = json!([]),
            " returned 0 objects, expected 1",
        ),
        (
            |review| {
                review["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v3".into();
            },
            " returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            |review| review["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            " returned invalid object: must have the same name: a != b",
        ),
        (
            |review| {
                review["response"]["convertedObjects"][0]["metadata"]["labels"] =
                    json!({"x": "y z"});
            },
            " returned invalid metadata: metadata.labels: Invalid value: \"y z\": a valid label must be ",
        ),
        (
            |review| {
                review["response"]["convertedObjects"][0]["metadata"]["annotations"] =
                    json!({"x": 3});
            },
            " returned invalid metadata: metadata.annotations[x] must be a string, but is int64 in converted object",
        ),
        (
            |review| {
                review["response"]["convertedObjects"][0]["metadata"]["annotations"] = json!(["x"]);
            },
            " returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
        (
            |review| {
                drop(
                    review["response"]["convertedObjects"][0]
                        .as_object_mut()
                        .unwrap()
                        .remove("metadata"),
                );
            },
            " returned invalid object: must have the same name: a != ",
        ),
    ];
    let modes = changes.map(|(change, why)| (Mode::Changes(change), why.to_owned()));
    let not_now = |status| Mode::Answers(status, "not now".to_owned());
    let unavailable = not_now(StatusCode::SERVICE_UNAVAILABLE);
    let broken = not_now(StatusCode::INTERNAL_SERVER_ERROR);
    let unprocessable = not_now(StatusCode::UNPROCESSABLE_ENTITY);
    let huge = Mode::Answers(StatusCode::OK, "x".repeat(5 << 20));
    let others = [
        (unavailable, " failed: the server is currently unable to handle the request".to_owned()),
        (broken, " failed: an error on the server (\"not now\") has prevented the request from succeeding".to_owned()),
        (unprocessable, " failed: the server rejected our request due to an error in our request".to_owned()),
        (huge, format!(" failed: {post}: the answer is larger than 4194304 bytes")),
        (Mode::Answers(StatusCode::OK, "{".to_owned()), " failed: ".to_owned()),
        (Mode::Silent, format!(" failed: {post}: context deadline exceeded")),
    ];
    for (number, (mode, why)) in modes.into_iter().chain(others).enumerate() {
        // Each round changes the object, because a recent failure is not retried for the same object.
        done(&server, "PATCH", &format!("{V1}/a"), json!({"spec": {"replicas": number}})).await;
        let is_silent = matches!(mode, Mode::Silent);
        webhook.set(mode);
        if is_silent {
            tokio::time::pause();
        }
        for path in [format!("{V2}/a"), V2.to_owned()] {
            let (status, answer) = ask(&server, "GET", &path, Value::Null).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {answer}");
            let message = answer["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{failed}{why}")), "{path}: {message}, not {why}");
        }
        let (status, _) =
            ask(&server, "PATCH", &format!("{V2}/a"), json!({"spec": {"replicas": 1000}})).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let list = done(&server, "GET", V1, Value::Null).await;
        assert_eq!(list["items"][0]["spec"]["replicas"], number);
    }
    tokio::time::resume();
    // Watches of the converted version end with an error; watches of the storage version continue.
    webhook.set(Mode::Converts);
    let list = done(&server, "GET", V1, Value::Null).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = async |path: &str| {
        let path = format!("{path}?watch=true&resourceVersion={revision}");
        let response = respond(&server, "GET", &path, "application/json", &Value::Null).await;
        response.into_body().into_data_stream()
    };
    let (mut stored, mut other) = (watch(V1).await, watch(V2).await);
    done(&server, "POST", V1, of_v1("bad", 1)).await;
    let event: Value = serde_json::from_slice(&stored.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(event["type"], "ADDED");
    let event: Value = serde_json::from_slice(&other.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["message"], format!("{failed} failed: it is bad"));
    assert!(other.next().await.is_none());
    done(&server, "PATCH", &format!("{V1}/a"), json!({"spec": {"replicas": 77}})).await;
    // An object that cannot be converted does not affect requests for other objects, and can be deleted in the storage
    // version.
    done(&server, "POST", V1, of_v1("c", 1)).await;
    let (status, _) = ask(&server, "GET", V2, Value::Null).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    done(&server, "GET", &format!("{V2}/c"), Value::Null).await;
    let (status, answer) = ask(&server, "DELETE", &format!("{V2}/bad"), Value::Null).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer["message"], format!("{failed} failed: it is bad"));
    done(&server, "DELETE", &format!("{V1}/bad"), Value::Null).await;
    let list = done(&server, "GET", V2, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn label_selectors_use_the_labels_of_the_requested_version() {
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    for name in ["a", "b"] {
        let mut kept = of_v1(name, 1);
        kept["metadata"]["labels"] = json!({"kept": "yes"});
        done(&server, "POST", V1, kept).await;
    }
    let list = done(&server, "GET", V1, Value::Null).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    webhook.set(Mode::Changes(|review| {
        let objects = review["response"]["convertedObjects"].as_array_mut().unwrap();
        for object in objects {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"] = json!({"made": name});
        }
    }));
    let shown = done(&server, "GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!(shown["metadata"]["labels"], json!({"made": "a"}));
    let found = async |path: &str, selector: &str| {
        let path = format!("{path}?labelSelector={selector}");
        let list = done(&server, "GET", &path, Value::Null).await;
        let names = list["items"].as_array().unwrap().iter();
        names.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(V2, "made%3Da").await, ["a"]);
    assert_eq!(found(V2, "kept").await, [""; 0]);
    assert_eq!(found(V1, "kept").await, ["a", "b"]);
    assert_eq!(found(V1, "made").await, [""; 0]);
    let watch = format!("{V2}?watch=true&resourceVersion={revision}&labelSelector=made%3Db");
    let watch = respond(&server, "GET", &watch, "application/json", &Value::Null).await;
    let mut watch = watch.into_body().into_data_stream();
    for name in ["a", "b"] {
        let patch = json!({"spec": {"replicas": 1}});
        done(&server, "PATCH", &format!("{V1}/{name}"), patch).await;
    }
    let event: Value = serde_json::from_slice(&watch.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&json!("MODIFIED"), &json!("b"))
    );
    done(&server, "DELETE", &format!("{V2}?labelSelector=made%3Da"), Value::Null).await;
    assert_eq!(found(V1, "kept").await, ["b"]);
}

#[tokio::test]
async fn an_unreachable_or_untrusted_conversion_webhook_fails_requests() {
    let (webhook, stranger) = (Webhook::start().await, Webhook::start().await);
    let failed = "conversion webhook for example.com/v1, Kind=Box failed: Post ";
    let untrusted = definition(&webhook.url(), &stranger.ca_bundle);
    let away = definition("https://localhost:1/convert", &webhook.ca_bundle);
    for (definition, why) in [
        (untrusted, "x509: certificate signed by unknown authority"),
        (away, "dial tcp 127.0.0.1:1: connect: connection refused"),
    ] {
        let server = test_server::server(&definition.to_string()).await;
        done(&server, "POST", V1, of_v1("a", 1)).await;
        let (status, answer) = ask(&server, "GET", &format!("{V2}/a"), Value::Null).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with(failed) && message.contains(why), "{message}");
        let (status, _) = ask(&server, "POST", V2, of_v2("b", "1cm")).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let list = done(&server, "GET", V1, Value::Null).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
    }
    assert_eq!(webhook.take_calls(), [0; 0]);
    let server =
        test_server::server(&definition(&webhook.url(), &webhook.ca_bundle).to_string()).await;
    done(&server, "POST", V2, of_v2("a", "1cm")).await;
    webhook.set(Mode::Answers(StatusCode::INTERNAL_SERVER_ERROR, "no".to_owned()));
    ask(&server, "POST", V2, of_v2("b", "1cm")).await;
    let metrics = respond(&server, "GET", "/metrics", "*/*", &Value::Null).await;
    let metrics = metrics.into_body().collect().await.unwrap().to_bytes();
    let metrics = String::from_utf8_lossy(&metrics);
    let failure = "result=\"failure\",failure_type=\"conversion_webhook_call_failure\"";
    for (labels, at_least) in [("result=\"success\",failure_type=\"\"", 1), (failure, 1)] {
        for name in ["request_total", "duration_seconds_count"] {
            let series = format!("apiserver_conversion_webhook_{name}{{{labels}}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
            let count: u64 = line.expect(&series).parse().unwrap();
            assert!(count >= at_least, "{series}{count}");
        }
    }
    for succeeded in [true, false] {
        let series = format!(
            "apiserver_crd_conversion_webhook_duration_seconds_count{{crd_name=\"boxes.example.com\",from_version=\"v2\",to_version=\"v1\",succeeded=\"{succeeded}\"}} "
        );
        assert!(metrics.lines().any(|line| line.starts_with(&series)), "{series}: {metrics}");
    }
}

#[tokio::test]
async fn webhooks_that_never_respond_do_not_delay_other_webhooks() {
    const SILENT: usize = 5;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let webhook = Webhook::start().await;
        let server = Arc::new(server(&webhook).await);
        for number in 0..4 {
            done(&server, "POST", V1, of_v1(&format!("box-{number}"), 1)).await;
        }
        webhook.set(Mode::Silent);
        silent.push((webhook, server));
    }
    let asked: Vec<_> = silent
        .iter()
        .flat_map(|(_, server)| (0..4).map(move |number| (Arc::clone(server), number)))
        .map(|(server, number)| {
            let path = format!("{V2}/box-{number}");
            tokio::spawn(async move { ask(&server, "GET", &path, Value::Null).await })
        })
        .collect();
    let all_are_asked = async {
        // One user can use half of the concurrent calls of a webhook.
        while silent.iter().any(|(webhook, _)| webhook.calls.lock().unwrap().len() < 2) {
            tokio::task::yield_now().await;
        }
    };
    // A call times out after 30 seconds. Until then all calls are pending.
    tokio::time::timeout(Duration::from_secs(25), all_are_asked).await.expect("all are asked");
    let webhook = Webhook::start().await;
    let server = server(&webhook).await;
    done(&server, "POST", V1, of_v1("a", 1)).await;
    let read = done(&server, "GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!(read["spec"]["width"], "1cm");
    assert!(asked.iter().all(|asked| !asked.is_finished()), "the others still wait");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}
