//! The cost of an input grows linearly with its size. An input that is four times as large may cost four times as much,
//! but not sixteen times.
//!
//! This test is alone in its program, because it measures the CPU time of the process, so that the load of the machine
//! has no influence.

#![allow(clippy::unwrap_used)] // all of it is a test

use aggregated_apiserver::InProcess;
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use test_server::admin;

const DEFINITION: &str = include_str!("fuzz/definition.yaml");
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
/// The largest allowed ratio of costs for an input four times as large; linear is 4, quadratic is 16.
const MOST: f64 = 10.0;
/// Costs below this number of nanoseconds are not compared.
const LEAST: u64 = 20_000_000;
/// The number of runs; the shortest one counts.
const RUNS: usize = 3;

/// The CPU time of the process, in nanoseconds.
fn spent() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(spent.tv_sec * 1_000_000_000 + spent.tv_nsec).unwrap()
}

/// The cost of a run: the shortest of `RUNS` runs.
async fn cost(mut run: impl AsyncFnMut()) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..RUNS {
        let before = spent();
        run().await;
        least = least.min(spent().saturating_sub(before));
    }
    least
}

/// Generates an input of this size.
type Make = fn(usize) -> (Method, String, &'static str, String);

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

fn of_spec(spec: &Value) -> (Method, String, &'static str, String) {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}, "spec": spec});
    (Method::POST, format!("{FOOS}?dryRun=All"), JSON, object.to_string())
}

fn of_metadata(mut metadata: Value) -> (Method, String, &'static str, String) {
    metadata["name"] = "x".into();
    let object =
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata, "spec": {}});
    (Method::POST, format!("{FOOS}?dryRun=All"), JSON, object.to_string())
}

fn get(query: String) -> (Method, String, &'static str, String) {
    (Method::GET, format!("{FOOS}?{query}"), JSON, String::new())
}

fn members(count: usize, value: impl Fn(usize) -> Value) -> Value {
    let members = (0..count).map(|number| (format!("m{number}"), value(number)));
    Value::Object(members.collect::<Map<String, Value>>())
}

fn items(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// Inputs, and the smaller of the two sizes that are compared.
const INPUTS: &[(&str, usize, Make)] = &[
    ("labels", 4_000, |size| of_metadata(json!({"labels": members(size, |_| "a".into())}))),
    ("finalizers", 10_000, |size| {
        of_metadata(json!({"finalizers": items(size, |at| format!("a/b{at}").into())}))
    }),
    ("owners", 1_500, |size| {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "A", "name": format!("n{at}"), "uid": at.to_string()});
        of_metadata(json!({"ownerReferences": items(size, owner)}))
    }),
    ("a set", 5_000, |size| of_spec(&json!({"set": items(size, |at| at.to_string().into())}))),
    ("a list with keys", 2_500, |size| {
        of_spec(&json!({"rows": items(size, |at| json!({"key": at.to_string()}))}))
    }),
    ("values in a list that are no texts", 5_000, |size| {
        of_spec(&json!({"set": items(size, Value::from)}))
    }),
    ("a map", 3_000, |size| of_spec(&json!({"map": members(size, |_| json!({}))}))),
    ("unknown members", 5_000, |size| of_spec(&members(size, |_| 1.into()))),
    ("mails", 2_000, |size| of_spec(&json!({"mail": items(size, |_| "a@b.c".into())}))),
    ("a text", 500_000, |size| of_spec(&json!({"free": {"a": "é\\\"".repeat(size / 6)}}))),
    ("a mail", 100_000, |size| of_spec(&json!({"mail": ["a.".repeat(size / 2)]}))),
    ("a mail of comments", 100_000, |size| of_spec(&json!({"mail": ["(".repeat(size)]}))),
    ("a page", 100_000, |size| {
        of_spec(&json!({"page": format!("http://{}", "%20".repeat(size / 3))}))
    }),
    ("a host", 100_000, |size| of_spec(&json!({"host": "a.".repeat(size / 2)}))),
    ("a duration", 100_000, |size| of_spec(&json!({"wait": "1h".repeat(size / 2)}))),
    ("a code", 500_000, |size| of_spec(&json!({"code": "ab1".repeat(size / 3)}))),
    ("bytes", 500_000, |size| of_spec(&json!({"bytes": "YWJj".repeat(size / 4)}))),
    ("a column", 4_000, |size| {
        of_spec(&json!({"free": {"x": items(size, |_| json!({"a": {"b": "c"}}))}}))
    }),
    ("adding to the front", 2_000, |size| {
        let add = |_| json!({"op": "add", "path": "/spec/free/x/0", "value": 1});
        (Method::PATCH, format!("{FOOS}/a?dryRun=All"), JSON_PATCH, items(size, add).to_string())
    }),
    ("moving", 2_000, |size| {
        let step = |_| json!({"op": "move", "from": "/spec/free/x", "path": "/spec/free/x"});
        (Method::PATCH, format!("{FOOS}/a?dryRun=All"), JSON_PATCH, items(size, step).to_string())
    }),
    ("moving a text", 1_000, |size| {
        let text = json!({"op": "add", "path": "/spec/free/t", "value": "x".repeat(100 * size)});
        let step = |at: usize| match at {
            0 => text.clone(),
            _ => json!({"op": "move", "from": "/spec/free/t", "path": "/spec/free/t"}),
        };
        (Method::PATCH, format!("{FOOS}/a?dryRun=All"), JSON_PATCH, items(size, step).to_string())
    }),
    ("managers that have updated", 1_000, |size| {
        let entry = |at: usize| {
            json!({
                "manager": format!("m{at}"), "operation": "Update", "apiVersion": "example.com/v1",
                "fieldsType": "FieldsV1", "fieldsV1": {format!("f:a{at}"): null, format!("f:b{at}"): null},
            })
        };
        of_metadata(json!({"managedFields": items(size, entry)}))
    }),
    ("a path of a patch", 100_000, |size| {
        let step = json!([{"op": "add", "path": "/spec/free/~0".repeat(size / 13), "value": 1}]);
        (Method::PATCH, format!("{FOOS}/a?dryRun=All"), JSON_PATCH, step.to_string())
    }),
    ("members that are there twice", 5_000, |size| {
        let twice = r#""a":1,"#.repeat(size);
        let object = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"x"}},"spec":{{"free":{{{twice}"b":1}}}}}}"#
        );
        (Method::POST, format!("{FOOS}?dryRun=All&fieldValidation=Strict"), JSON, object)
    }),
    ("anchors", 10_000, |size| {
        let object = format!(
            "apiVersion: example.com/v1\nkind: Foo\nmetadata: {{name: x}}\nspec: {{free: {{a: &a [1], b: [{}]}}}}\n",
            "*a,".repeat(size)
        );
        (Method::POST, format!("{FOOS}?dryRun=All"), "application/yaml", object)
    }),
    ("lines of YAML", 10_000, |size| {
        let object = format!(
            "apiVersion: example.com/v1\nkind: Foo\nmetadata: {{name: x}}\nspec:\n  set:\n{}",
            "  - a\n".repeat(size)
        );
        (Method::POST, format!("{FOOS}?dryRun=All"), "application/yaml", object)
    }),
    ("a selector", 3_500, |size| get(format!("labelSelector=a%20in%20({})", "b,".repeat(size)))),
    ("terms", 3_500, |size| get(format!("fieldSelector={}", "a=b,".repeat(size)))),
    ("a token", 15_000, |size| get(format!("continue={}", "a".repeat(size)))),
    ("a query", 3_500, |size| get("a=b&".repeat(size))),
];

async fn ask(server: &InProcess, input: &(Method, String, &'static str, String)) {
    let (method, uri, content_type, body) = input;
    let request = Request::builder().method(method).uri(uri).header("content-type", *content_type);
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";
    let request = request.header("accept", accept).body(Body::from(body.clone())).unwrap();
    let response = server.respond(admin(), request).await;
    assert!(response.status().as_u16() < 500, "{}", response.status());
    response.into_body().collect().await.unwrap();
}

/// A definition with this schema.
fn definition(properties: &Value) -> Value {
    let mut definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    let versions = &mut definition["spec"]["versions"];
    versions[0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    definition
}

/// Generates the properties of a schema of this size.
type MakeSchema = fn(usize) -> Value;

/// Schemas, and the smaller of the two sizes that are compared.
const SCHEMAS: &[(&str, usize, MakeSchema)] = &[
    ("properties", 2_500, |size| members(size, |_| json!({"type": "string"}))),
    ("patterns", 1_000, |size| {
        members(size, |at| json!({"type": "string", "pattern": format!("^g{size}-{at}$")}))
    }),
    ("faults", 500, |size| members(size, |_| json!({"type": "what"}))),
    (
        "values",
        20_000,
        |size| json!({"a": {"type": "string", "enum": items(size, |at| at.to_string().into())}}),
    ),
    (
        "required",
        20_000,
        |size| json!({"a": {"type": "object", "required": items(size, |at| at.to_string().into())}}),
    ),
    ("keys", 1_000, |size| {
        let names = items(size, |at| format!("m{at}").into());
        let rows = json!({"type": "object", "required": names, "properties": members(size, |_| json!({"type": "string"}))});
        json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names, "items": rows}})
    }),
    ("keys that are none", 5_000, |size| {
        let names = items(size, |_| "".into());
        let rows = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names, "items": rows}})
    }),
    (
        "branches",
        2_000,
        |size| json!({"a": {"type": "object", "anyOf": items(size, |at| json!({"required": [at.to_string()]}))}}),
    ),
    ("defaults", 500, |size| {
        members(
            size,
            |_| json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}}),
        )
    }),
];

#[tokio::test]
async fn costs_grow_as_inputs_do() {
    let server = test_server::server(DEFINITION).await;
    let mut first = of_spec(&json!({"free": {"x": [1]}}));
    first.1 = FOOS.to_owned();
    first.3 = first.3.replace("\"x\"},\"spec\"", "\"a\"},\"spec\"");
    ask(&server, &first).await;
    let mut faults = Vec::new();
    let mut hold = |what: &str, small: u64, large: u64| {
        let ratio = large as f64 / small.max(1) as f64;
        let said =
            format!("{what}: {} and {} ms, {ratio:.1}", small / 1_000_000, large / 1_000_000);
        println!("{said}");
        if large > LEAST && ratio > MOST {
            faults.push(said);
        }
    };
    for (what, size, make) in INPUTS {
        let (small, large) = (make(*size), make(4 * size));
        let small = cost(async || ask(&server, &small).await).await;
        let large = cost(async || ask(&server, &large).await).await;
        hold(what, small, large);
    }
    for (what, size, make) in SCHEMAS {
        let parsed = |size| serde_json::from_value(definition(&make(size))).unwrap();
        let (small, large) = (parsed(*size), parsed(4 * size));
        let small = cost(async || drop(RuntimeKinds::check(&small, None))).await;
        let large = cost(async || drop(RuntimeKinds::check(&large, None))).await;
        hold(what, small, large);
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
