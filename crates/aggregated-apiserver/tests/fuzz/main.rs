//! Random inputs from seeds: valid ones with small changes. For every input, nothing panics, no response has the status
//! 500, and each response can be parsed.
//!
//! `FUZZ_INPUTS` is the number of inputs and `FUZZ_SEED` the first seed. A failure prints its seed.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

mod chance;

use std::fmt::Write as _;

use aggregated_apiserver::InProcess;
use aggregated_apiserver::encoding::{read_protobuf, write_protobuf};
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::types::{Quantity, Types};
use axum::body::Body;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chance::{Chance, Outcomes, TEXTS, assert_no_panic, seeds, watch_panics};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use test_server::admin;

const DEFINITION: &str = include_str!("definition.yaml");
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

const QUERY: &[(&str, &[&str])] = &[
    ("labelSelector", &["a in (b,c),!d", "a=b,c!=d", "a notin (b)", "example.com/a", ""]),
    ("fieldSelector", &["metadata.name=a", "spec.colour!=red,metadata.namespace==default", ""]),
    ("resourceVersion", &["0", "1", "", "-1", "99999999999999999999"]),
    ("resourceVersionMatch", &["Exact", "NotOlderThan", ""]),
    ("limit", &["1", "2", "0", "-1", "9223372036854775807"]),
    ("timeoutSeconds", &["1", "0", "-5"]),
    ("sendInitialEvents", &["true", "false"]),
    ("allowWatchBookmarks", &["true", "1", "x"]),
    ("fieldValidation", &["Strict", "Warn", "Ignore", "strict"]),
    ("fieldManager", &["a", "\u{1}"]),
    ("dryRun", &["All", "None"]),
    ("propagationPolicy", &["Orphan", "Foreground", "Background"]),
    ("gracePeriodSeconds", &["0", "-1", "99999999999"]),
    ("pretty", &["true", "0"]),
    ("includeObject", &["Object", "None", "Metadata"]),
    ("watch", &["false", "x"]),
    ("timeout", &["1s", "1.5m", "-1h", "9999999h"]),
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml, */*;q=0.1",
    "application/vnd.kubernetes.protobuf, application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1,application/json;q=0.9",
    "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "text/html;level=1, text/*;q=0.3",
];

const APPLY: &str = "application/apply-patch+yaml";

const UNREADABLE: &[&str] = &[
    "Object 'apiVersion' is missing in",
    "Object 'Kind' is missing in",
    "failed to create typed patch object",
    "failed to create typed live object",
    "failed to convert new object",
];

/// An object that its definition allows.
fn foo() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {
            "name": "a", "namespace": "default", "labels": {"a": "b", "example.com/c": "d"},
            "annotations": {"a": "b"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
            "creationTimestamp": "2026-01-01T00:00:00Z", "generateName": "a-",
            "managedFields": [{
                "manager": "m", "operation": "Apply", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {
                    ".": {}, "f:size": {}, "f:set": {"v:\"a\"": {}, "i:1": {}},
                    "f:rows": {"k:{\"key\":\"a\"}": {".": {}, "f:value": {}}}, "f:free": {"f:x": {"x:": {}}},
                }},
            }, {
                "manager": "n", "operation": "Update", "apiVersion": "example.com/v2", "fieldsType": "FieldsV1",
                "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}},
            }],
        },
        "spec": {
            "colour": "red", "size": 1, "ratio": 0.5, "list": [{"a": "x"}, {"a": "y"}],
            "free": {"x": [null, 1.5, {"a": {"b": "c"}}]}, "mail": ["a@b.c"], "address": "::1/64",
            "page": "http://a/b", "host": "a.example", "wait": "1h", "at": "2026-01-01T00:00:00Z",
            "day": "2026-01-01", "code": "abc", "map": {"a": {"a": "b"}}, "set": ["a", "b"], "port": "80",
            "rows": [{"key": "a", "value": "b"}, {"key": "b"}], "either": {"x": 1}, "bytes": "YQ==",
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {}},
        },
        "status": {"replicas": 1, "selector": "a=b"},
    })
}

/// A patch of the object.
fn patch(chance: &mut Chance) -> (&'static str, Value) {
    if chance.once_in(3) {
        let mut applied = foo();
        if !chance.once_in(4) {
            applied["metadata"].as_object_mut().unwrap().remove("managedFields");
        }
        return (APPLY, applied);
    }
    if chance.rng.bool() {
        let mut patch = foo();
        patch["metadata"].as_object_mut().unwrap().remove("finalizers");
        return ("application/merge-patch+json", patch);
    }
    let paths = ["/spec/list/0", "/spec/free/x/-", "/metadata/labels/example.com~1c", "/spec", ""];
    let operations = ["add", "remove", "replace", "move", "copy", "test"];
    let count = chance.rng.usize(1..5);
    let operations = (0..count).map(|_| {
        json!({
            "op": chance.pick(&operations), "path": chance.pick(&paths), "from": chance.pick(&paths),
            "value": chance.value(1),
        })
    });
    ("application/json-patch+json", operations.collect())
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02X}");
        text
    })
}

/// A header value, if HTTP allows it.
fn header(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes).ok()
}

/// Returns the bytes of a string, sometimes damaged.
fn perhaps_damaged(chance: &mut Chance, text: &str) -> Vec<u8> {
    match chance.rng.u32(..16) {
        0 => chance.damaged(text.as_bytes()),
        1 => chance.text().into_bytes(),
        _ => text.as_bytes().to_vec(),
    }
}

fn query(chance: &mut Chance, token: &str) -> String {
    let mut query = "?".to_owned();
    if chance.once_in(4) {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap();
        let token = match chance.rng.u32(..3) {
            0 => token.as_bytes().to_vec(),
            1 => chance.damaged(token.as_bytes()),
            _ => {
                let mut tree: Value = serde_json::from_slice(&decoded).unwrap();
                chance.change(&mut tree);
                BASE64_URL_SAFE_NO_PAD.encode(tree.to_string()).into_bytes()
            }
        };
        let _ = write!(query, "continue={}&", escaped(&token));
    }
    for _ in 0..chance.rng.usize(..3) {
        let (name, values) = QUERY[chance.rng.usize(..QUERY.len())];
        let value = chance.pick(values);
        let _ = write!(query, "{name}={}&", escaped(&perhaps_damaged(chance, value)));
    }
    // With a dry run, all requests start with the same objects.
    query.push_str("dryRun=All");
    query.truncate(60_000);
    query
}

fn request(chance: &mut Chance, token: &str) -> (Request<Body>, String) {
    let (method, content_type, mut tree) = match chance.rng.u32(..8) {
        0 => (Method::GET, "application/json", Value::Null),
        1 | 2 => (Method::POST, "application/json", foo()),
        3 => (Method::PUT, "application/json", foo()),
        4..=6 => {
            let (content_type, patch) = patch(chance);
            (Method::PATCH, content_type, patch)
        }
        _ => {
            let options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan",
                "preconditions": {"uid": "u", "resourceVersion": "1"}, "gracePeriodSeconds": 1,
            });
            (Method::DELETE, "application/json", options)
        }
    };
    let parts: &[&str] = match method {
        _ if chance.once_in(10) => &["", "/a", "/a/status", "/a/scale"],
        Method::POST => &[""],
        _ => &["/a", "/a", "/a/status", "/b"],
    };
    let mut path = format!("{FOOS}{}", chance.pick(parts));
    if chance.once_in(10) {
        path = path.replace("/v1/", "/v2/");
    }
    if chance.once_in(20) {
        path = format!("{path}/{}", escaped(&perhaps_damaged(chance, "a")));
    }
    chance.change(&mut tree);
    let (content_type, body) = match tree {
        Value::Null => (content_type, String::new()),
        tree => (content_type, tree.to_string()),
    };
    let body = match chance.once_in(8) {
        true => chance.damaged(body.as_bytes()),
        false => body.into_bytes(),
    };
    let content_type = match chance.once_in(20) {
        true => perhaps_damaged(chance, content_type),
        false => content_type.as_bytes().to_vec(),
    };
    let mut uri = format!("{path}{}", query(chance, token));
    if content_type == APPLY.as_bytes() {
        uri.push_str(chance.pick(&["&fieldManager=a", "&fieldManager=m&force=true"]));
    }
    let accept = chance.pick(ACCEPTS);
    let accept = perhaps_damaged(chance, accept);
    let said = format!(
        "{method} {uri} {:?} {:?} {:?}",
        String::from_utf8_lossy(&content_type),
        String::from_utf8_lossy(&accept),
        String::from_utf8_lossy(&body)
    );
    let mut request = Request::builder().method(method).uri(uri).body(Body::from(body)).unwrap();
    let headers = [(CONTENT_TYPE, header(&content_type)), (ACCEPT, header(&accept))];
    for (name, value) in headers {
        request.headers_mut().extend(value.map(|value| (name, value)));
    }
    (request, said)
}

/// Sends a request. Checks that the status is not 500, and returns it with the body.
async fn answer(server: &InProcess, request: Request<Body>, said: &str) -> (StatusCode, Vec<u8>) {
    let response = server.respond(admin(), request).await;
    let status = response.status();
    assert_no_panic(|| said.to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    // A request for a future revision times out. If the result of a patch is not an object, kube-apiserver has
    // the same response.
    let may_be = status.as_u16() < 500
        || status == StatusCode::GATEWAY_TIMEOUT
        || UNREADABLE.iter().any(|why| text.contains(why));
    assert!(may_be, "{said}: {status} {text}");
    (status, body.to_vec())
}

async fn server() -> (InProcess, String) {
    watch_panics();
    let server = test_server::server(DEFINITION).await;
    for name in ["a", "b"] {
        let mut object = foo();
        object["metadata"]["name"] = name.into();
        let request = Request::post(FOOS).header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(object.to_string())).unwrap();
        let (status, body) = answer(&server, request, "begin").await;
        assert_eq!(status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&body));
    }
    let first = Request::get(format!("{FOOS}?limit=1")).body(Body::empty()).unwrap();
    let (_, page) = answer(&server, first, "page").await;
    let page: Value = serde_json::from_slice(&page).unwrap();
    (server, page["metadata"]["continue"].as_str().unwrap().to_owned())
}

/// The clock is paused, so timeouts expire at once. The thread that parses YAML does not use this clock, so YAML has a
/// separate test.
#[tokio::test(start_paused = true)]
async fn requests() {
    let (server, token) = server().await;
    let mut outcomes = Outcomes::default();
    for seed in seeds(45) {
        let (request, said) = request(&mut Chance::new(seed), &token);
        let (status, _) = answer(&server, request, &format!("seed {seed}: {said}")).await;
        outcomes.count(status.is_success());
    }
    outcomes.assert_both_are_frequent();
}

#[tokio::test]
async fn yaml() {
    let (server, _) = server().await;
    let mut object = foo();
    // The objects of the server have other names.
    object["metadata"]["name"] = "c".into();
    let written = serde_saphyr::to_string(&object).unwrap();
    let mut outcomes = Outcomes::default();
    for seed in seeds(5) {
        let mut chance = Chance::new(seed);
        let mut tree = object.clone();
        chance.change(&mut tree);
        let changed = serde_saphyr::to_string(&tree).unwrap_or_default();
        let body = chance.pick(&[written.as_str(), &changed]).as_bytes();
        let body = chance.damaged(body);
        let said = format!("seed {seed}: {}", String::from_utf8_lossy(&body));
        let request = Request::post(format!("{FOOS}?dryRun=All"));
        let request = request.header(CONTENT_TYPE, "application/yaml").body(Body::from(body));
        let (status, _) = answer(&server, request.unwrap(), &said).await;
        outcomes.count(status.is_success());
    }
    outcomes.assert_both_are_frequent();
}

#[test]
fn protobuf() {
    watch_panics();
    let types = Types::meta();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": "r", "code": 404,
        "metadata": {"resourceVersion": "1", "continue": "c", "remainingItemCount": 5},
        "details": {"name": "n", "kind": "k", "causes": [{"field": "f", "message": "m"}, {}], "retryAfterSeconds": 1},
    });
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": -1, "dryRun": ["All"],
        "preconditions": {"uid": "u"}, "orphanDependents": true,
    });
    let mut outcomes = Outcomes::default();
    for seed in seeds(30) {
        let mut chance = Chance::new(seed);
        let mut tree = chance.pick(&[&status, &options]).clone();
        chance.change(&mut tree);
        // A tree that matches no type is not encoded.
        let Some(written) = write_protobuf(&tree, types) else { continue };
        let damaged = chance.damaged(&written);
        assert_no_panic(|| format!("seed {seed}: {tree}"));
        let read = read_protobuf(&damaged, types);
        outcomes.count(read.is_ok());
        let Ok(read) = read else { continue };
        // A decoded message is encoded again, and decodes to the same value.
        let again = write_protobuf(&read, types).unwrap_or_else(|| panic!("{seed} {read}"));
        let again =
            read_protobuf(&again, types).unwrap_or_else(|why| panic!("{seed} {read}: {why}"));
        assert_eq!(again, read, "seed {seed}");
    }
    outcomes.assert_both_are_frequent();
}

#[test]
fn quantities() {
    watch_panics();
    let mut outcomes = Outcomes::default();
    for seed in seeds(15) {
        let mut chance = Chance::new(seed);
        let digits = "0123456789".repeat(chance.rng.usize(..4));
        let sign = chance.pick(&["", "", "-", "+"]);
        let fraction = chance.pick(&["", ".", ".5", ".000000001", ".99999999999"]);
        let suffix =
            chance.pick(&["", "m", "n", "u", "k", "Ki", "E", "Ei", "e3", "E-9", "e999", "Y"]);
        let text = format!("{sign}{}{digits}{fraction}{suffix}", chance.rng.u8(..));
        let text = String::from_utf8_lossy(&chance.damaged(text.as_bytes())).into_owned();
        let quantity = Quantity::parse(&text);
        outcomes.count(quantity.is_ok());
        if let Ok(quantity) = quantity {
            let shown = quantity.to_string();
            let again =
                Quantity::parse(&shown).unwrap_or_else(|why| panic!("{text} {shown}: {why}"));
            // `187.5Ki` is formatted as `192000`, and that as `192k`. Go does the same, because its suffix is lost with
            // a fraction.
            let shown_again = again.to_string();
            let once_more = Quantity::parse(&shown_again).map(|quantity| quantity.to_string());
            assert_eq!(once_more, Ok(shown_again), "seed {seed}: {text}");
        }
        assert_no_panic(|| format!("seed {seed}: {text}"));
    }
    outcomes.assert_both_are_frequent();
}

/// Parses a definition, serves it, and validates an object with it.
#[tokio::test]
async fn definitions() {
    let (server, _) = server().await;
    let kinds = server.runtime_kinds();
    let mut definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    definition["metadata"]["name"] = "bars.example.com".into();
    definition["spec"]["names"] = json!({"plural": "bars", "kind": "Bar", "shortNames": ["br"]});
    let mut outcomes = Outcomes::default();
    for seed in seeds(5) {
        let mut chance = Chance::new(seed);
        let mut changed = definition.clone();
        let versions = &mut changed["spec"]["versions"];
        if chance.rng.bool() {
            let columns = &mut versions[0]["additionalPrinterColumns"];
            columns[0]["jsonPath"] = perhaps_path(&mut chance).into();
            columns[1]["jsonPath"] = perhaps_path(&mut chance).into();
        } else {
            chance.change(&mut versions[0]["schema"]["openAPIV3Schema"]["properties"]);
        }
        if chance.once_in(4) {
            chance.change(&mut changed);
        }
        let said = format!("seed {seed}: {changed}");
        // Input that is not a definition at all is rejected before this point.
        let parsed = serde_json::from_value::<CustomResourceDefinition>(changed);
        let Ok(parsed) = parsed else {
            outcomes.count(false);
            continue;
        };
        let _ = RuntimeKinds::check(&parsed, None);
        let _ = RuntimeKinds::unenforced(&parsed, None);
        assert_no_panic(|| said.clone());
        // An older release may have stored an invalid definition.
        let is_served = kinds.serve(&parsed).await.is_ok();
        assert_no_panic(|| said.clone());
        outcomes.count(is_served);
        if !is_served {
            continue;
        }
        let group = format!("/apis/{}", parsed.spec.group);
        for version in parsed.spec.versions.iter().filter(|version| version.served) {
            let bars = format!("{group}/{}/namespaces/default/bars", version.name);
            let mut bar = foo();
            bar["apiVersion"] = format!("{}/{}", parsed.spec.group, version.name).into();
            bar["kind"] = "Bar".into();
            if chance.rng.bool() {
                chance.change(&mut bar["spec"]);
            }
            for accept in [ACCEPTS[0], ACCEPTS[3]] {
                let request = Request::post(format!("{bars}?dryRun=All")).header(ACCEPT, accept);
                let request = request.header(CONTENT_TYPE, "application/json");
                let request = request.body(Body::from(bar.to_string())).unwrap();
                answer(&server, request, &format!("{said}: {bar}")).await;
            }
        }
        if chance.once_in(20) {
            let request = Request::get("/openapi/v2").header(ACCEPT, "application/json");
            answer(&server, request.body(Body::empty()).unwrap(), &said).await;
        }
    }
    outcomes.assert_both_are_frequent();
    outcomes.assert_accepted(10);
}

/// A JSONPath of a column, or almost one.
fn perhaps_path(chance: &mut Chance) -> String {
    const STEPS: &[&str] = &[
        ".spec",
        ".free",
        ".list",
        "[*]",
        "[0]",
        "[-1:]",
        "[0:9:2]",
        "['a']",
        "[?(@.a==\"x\")]",
        "[?(@.a>1)]",
        "..a",
        "..",
        ".*",
        "['a','b']",
        "[0,1]",
        ".a\\.b",
        "[?(@)]",
    ];
    let steps: String = (0..chance.rng.usize(1..6)).map(|_| chance.pick(STEPS)).collect();
    match chance.rng.u32(..8) {
        0 => String::from_utf8_lossy(&chance.damaged(steps.as_bytes())).into_owned(),
        1 => format!("{{{steps}}}"),
        2 => format!("{steps}{}", chance.pick(TEXTS)),
        _ => steps,
    }
}
