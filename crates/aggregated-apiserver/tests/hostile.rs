//! Malicious requests. For any bytes, the response is a Status with the error. It is never a panic, a 500 or an object
//! of another namespace.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::time::Duration;

use aggregated_apiserver::InProcess;
use aggregated_apiserver::encoding::read_protobuf;
use aggregated_apiserver::types::Types;
use axum::body::Body;
use fastrand::Rng;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use test_server::admin;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.colour}]
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Free, type: integer, jsonPath: .spec.free.x}
    - {name: Ratio, type: number, jsonPath: .spec.free.y}
    - {name: Since, type: date, jsonPath: .spec.free.z}
    - {name: Gone, type: date, jsonPath: .metadata.deletionTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, maxLength: 20}
              size: {type: integer, minimum: 0}
              list: {type: array, items: {type: object, properties: {a: {type: string}}}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              mail: {type: array, items: {type: string, format: email}}
              address: {type: string, format: cidr}
              page: {type: string, format: uri}
              host: {type: string, format: hostname}
              wait: {type: string, format: duration}
              number: {type: string, format: ssn}
              code: {type: string, pattern: '^[<>&&]+$', minLength: 2}
              map: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}
              closed: {type: object, x-kubernetes-preserve-unknown-fields: true, oneOf: [{additionalProperties: false}, {required: [x]}]}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              rows:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [key]
                items: {type: object, required: [key], properties: {key: {type: string}, value: {type: string, default: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}}}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}
";
/// A value that must never appear in responses for the namespace `open`.
const SECRET: &str = "swordfish";
const ROUNDS: u64 = 20_000;

const PATHS: &[&str] = &[
    "/apis/example.com/v1/namespaces/open/foos",
    "/apis/example.com/v1/namespaces/open/foos/a",
    "/apis/example.com/v1beta1/namespaces/open/foos",
    "/apis/example.com/v1/watch/namespaces/open/foos",
    "/apis/example.com/v1/watch/namespaces/open/foos/a",
    "/apis/example.com/v1/namespaces/open/foos/a/status",
    "/apis/example.com/v1/namespaces/open/foos/..%2f..%2fsecret",
    "/apis/example.com/v1/namespaces/open/foos/%00",
    "/apis/example.com/v1",
    "/apis",
    "/openapi/v3/apis/example.com/v1",
    "/openapi/v2",
];
const KEYS: &[&str] = &[
    "labelSelector",
    "fieldSelector",
    "watch",
    "allowWatchBookmarks",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "limit",
    "continue",
    "sendInitialEvents",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
    "pretty",
    "timeout",
    "includeObject",
    "uid",
    "export",
    "hash",
    "none",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "true",
    "false",
    "abc",
    "99999999999999999999",
    "9223372036854775807",
    "a in (b,c)",
    "!a",
    "a,,b",
    "a=b,c!=d",
    "metadata.name=a",
    "metadata.namespace=secret",
    "spec.colour=red",
    "spec.colour!=",
    "x=\\",
    "Exact",
    "NotOlderThan",
    "All",
    "Strict",
    "1h",
    "1.5.5s",
    "Object",
    "None",
    "Foreground",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL3NlY3JldC9hIn0",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLy4uL3NlY3JldC9hIn0",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "*/*",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "text/html",
    "application/vnd.kubernetes.protobuf",
    ";;;=",
    "application/json;q=x;pretty=1",
    "a/b/c;as",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
];
const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "",
    "text/plain",
    "application/json;x",
    "APPLICATION/YAML",
    "application/merge-patch+json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
];
const BODIES: &[&str] = &[
    r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"colour":"red","size":1,"list":[{"a":"x"}],"free":{"x":[null,1.5]}}}"#,
    r#"{"apiVersion":"example.com/v1beta1","kind":"Foo","metadata":{"generateName":"a-"},"spec":{}}"#,
    r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"},"propagationPolicy":"Background"}"#,
    "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: y}\nspec: {colour: &a red, free: {x: *a}}\n",
    "[[[[[[[[",
    "{\"a\":",
    "null",
    "\u{feff}{}",
    "- a\n- b",
    "a: !!binary x",
    "",
    "{}{}",
    r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a","finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}],"creationTimestamp":"0001-01-01T00:00:00Z"},"spec":{"free":{"x":9223372036854775807,"y":1e308,"z":"9999-12-31T23:59:59Z"}}}"#,
    r#"{"metadata":{"finalizers":["x/y","hold"],"labels":{"a":null}},"spec":{"free":{"x":[1,{"y":null}]}},"status":{"a":1}}"#,
    r#"{"metadata":{"finalizers":null}}"#,
    r#"[{"op":"add","path":"/spec/free/x","value":[1,2]},{"op":"copy","from":"/spec/free","path":"/spec/free/y"}]"#,
    r#"[{"op":"move","from":"/metadata/labels","path":"/spec/list/-1"},{"op":"remove","path":"/spec/list/99999999999999999999"}]"#,
    r#"[{"op":"test","path":"/metadata/finalizers/~1~0","value":null},{"op":"replace","path":"","value":{}}]"#,
    r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"b"},"spec":{"mail":["A <a@b.c>","\"x\\\"y\"@[::1]","=?utf-8?q?=C3?= <a@b>"],"address":"::1/64","page":"http://[fe80::1%25en0]:80/%7e","host":"a-b.example","wait":"1h 3 weeks","number":"123-45-6789","code":"<&>"}}"#,
    r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"b"},"spec":{"map":{"x":{"a":"b"},"":{}},"closed":{"x":1},"set":["a","b"],"rows":[{"key":"a"},{"key":"b","value":"c"}],"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"a":"b"},"finalizers":[null]},"spec":{}}}}"#,
    r#"{"spec":{"rows":[{"key":"a"},{"key":"a"},{}],"set":["a","a"],"template":{"kind":5},"map":{"x":null}}}"#,
    r#"{"propagationPolicy":"Orphan","dryRun":["All"],"preconditions":{"resourceVersion":"1"}}"#,
];

async fn server() -> InProcess {
    let server = test_server::server(DEFINITION).await;
    for name in ["a", "b"] {
        let path = "/apis/example.com/v1/namespaces/secret/foos";
        let body = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}},"spec":{{"colour":"{SECRET}"}}}}"#
        );
        let request = Request::post(path).body(Body::from(body)).unwrap();
        assert_eq!(server.respond(admin(), request).await.status(), StatusCode::CREATED);
    }
    server
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

/// Returns the string with a few bytes changed, cut or repeated.
fn mutated(rng: &mut Rng, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.usize(..4) {
        let at = rng.usize(..=bytes.len());
        match rng.u32(..5) {
            0 => bytes.insert(at, rng.u8(..)),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..].to_vec();
                bytes.extend(piece.repeat(rng.usize(..20)));
            }
            _ => bytes.extend_from_slice(pick(rng, VALUES).as_bytes()),
        }
    }
    // A path may have 64 KiB, and each of its bytes can be escaped.
    bytes.truncate(2_000);
    bytes
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// A header value, without the bytes that the HTTP library rejects.
fn header(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|&byte| byte == b'\t' || (byte >= 32 && byte != 127)).collect()
}

fn request(rng: &mut Rng) -> Request<Body> {
    let methods = [
        Method::GET,
        Method::GET,
        Method::POST,
        Method::DELETE,
        Method::PUT,
        Method::PATCH,
        Method::HEAD,
        Method::OPTIONS,
    ];
    let mut uri = pick(rng, PATHS).to_owned();
    // Outside of a namespace path, all objects may be read, so the path stays within the namespace.
    if uri.contains("/open/") && rng.u32(..8) == 0 {
        let more = mutated(rng, "foos");
        uri = format!("{uri}/{}", escaped(&more));
    }
    let mut separator = '?';
    for _ in 0..rng.usize(..5) {
        let value = pick(rng, VALUES);
        let value = if rng.bool() { mutated(rng, value) } else { value.into() };
        uri = format!("{uri}{separator}{}={}", pick(rng, KEYS), escaped(&value));
        separator = '&';
    }
    let mut builder = Request::builder().method(methods[rng.usize(..methods.len())].clone());
    builder = builder.uri(uri);
    for (name, values) in [
        ("accept", ACCEPTS),
        ("content-type", TYPES),
        ("accept-encoding", &["gzip", ""]),
        ("if-none-match", VALUES),
    ] {
        if rng.bool() {
            let value = pick(rng, values);
            let value = if rng.u32(..3) == 0 { mutated(rng, value) } else { value.into() };
            builder = builder.header(name, header(&value));
        }
    }
    let body = pick(rng, BODIES);
    let body = if rng.bool() { mutated(rng, body) } else { body.into() };
    builder.body(Body::from(body)).unwrap()
}

/// Reads a body until it pauses, because a watch does not end.
async fn read(response: Response<Body>) -> Vec<u8> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Ok(Some(Ok(frame))) =
        tokio::time::timeout(Duration::from_millis(20), body.frame()).await
    {
        bytes.extend(frame.into_data().unwrap_or_default());
    }
    bytes
}

/// Sends a random request, and checks the response. Returns whether the request succeeded.
async fn check(server: &InProcess, seed: u64) -> bool {
    let request = request(&mut Rng::with_seed(seed));
    let said =
        format!("seed {seed}: {} {} {:?}", request.method(), request.uri(), request.headers());
    let is_head = request.method() == Method::HEAD;
    let response = server.respond(admin(), request).await;
    let status = response.status();
    // A read at a future revision times out. A read at a revision of another process gets 410.
    assert!(status.as_u16() < 500 || status == StatusCode::GATEWAY_TIMEOUT, "{said}: {status}");
    // OpenAPI requests are rejected with an empty body, same as in kube-apiserver.
    let Some(content_type) = response.headers().get("content-type") else {
        assert!(status == StatusCode::NOT_ACCEPTABLE && said.contains("/openapi/"), "{said}");
        return false;
    };
    let is_yaml = content_type == "application/yaml";
    let is_protobuf = content_type == "application/vnd.kubernetes.protobuf";
    let is_plain = !response.headers().contains_key("content-encoding");
    let body = read(response).await;
    let text = String::from_utf8_lossy(&body);
    assert!(!text.contains(SECRET), "{said}: {text}");
    if status.as_u16() >= 400 && !is_head && is_plain {
        let told: Value = if is_yaml {
            serde_saphyr::from_str(&text).unwrap()
        } else if is_protobuf {
            read_protobuf(&body, Types::meta()).unwrap()
        } else {
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(
            (&told["kind"], &told["code"]),
            (&"Status".into(), &status.as_u16().into()),
            "{said}"
        );
        assert!(told["message"].as_str().is_some_and(|message| !message.is_empty()), "{said}");
    }
    status.is_success()
}

#[tokio::test(start_paused = true)]
async fn random_requests_never_fail_the_server() {
    let server = server().await;
    let mut succeeded = 0;
    for seed in 0..ROUNDS {
        succeeded += u64::from(check(&server, seed).await);
    }
    assert!((ROUNDS / 20..ROUNDS * 19 / 20).contains(&succeeded), "{succeeded} succeeded");
}

#[tokio::test]
async fn error_responses_do_not_repeat_long_input() {
    let server = server().await;
    let foos = "/apis/example.com/v1/namespaces/open/foos";
    let long = format!("{foos}/{}", "&".repeat(9_000));
    let request = Request::get(long).body(Body::empty()).unwrap();
    let response = server.respond(admin(), request).await;
    assert_eq!(response.status(), StatusCode::URI_TOO_LONG);
    let told: Value = serde_json::from_slice(&read(response).await).unwrap();
    assert_eq!((&told["kind"], &told["code"]), (&"Status".into(), &414.into()));
    let huge = "&".repeat(2_900_000);
    let foo = |name: &str, kind: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"name":"{name}"}}}}"#
        )
    };
    for (path, body) in [
        (foos.to_owned(), foo(&huge, "Foo")),
        (foos.to_owned(), foo("a", &huge)),
        (format!("{foos}?fieldManager={}", "x".repeat(60_000)), foo("a", "Foo")),
        (format!("{foos}?dryRun={}", "x".repeat(60_000)), foo("a", "Foo")),
        (format!("{foos}?labelSelector=a+in+b{}", "x".repeat(60_000)), "{}".to_owned()),
    ] {
        let method = if path.contains("labelSelector") { Method::GET } else { Method::POST };
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        let response = server.respond(admin(), request).await;
        assert!(response.status().is_client_error(), "{}", response.status());
        let answer = read(response).await;
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(300)]);
        assert!(answer.len() < 64 << 10, "{} bytes: {shown}", answer.len());
    }
}

#[tokio::test]
async fn oversized_queries_headers_and_depths_are_refused() {
    let server = server().await;
    let foos = "/apis/example.com/v1/namespaces/open/foos";
    let long = "a".repeat(60_000);
    for query in [
        format!("labelSelector={long}"),
        format!("labelSelector={}", "a,".repeat(20_000)),
        format!("fieldSelector={}", "metadata.name%3Da,".repeat(3_000)),
        format!("continue={long}"),
        "x&".repeat(30_000),
    ] {
        let request = Request::get(format!("{foos}?{query}")).body(Body::empty()).unwrap();
        let status = server.respond(admin(), request).await.status();
        assert!(status.is_success() || status == StatusCode::BAD_REQUEST, "{status}");
    }
    // As many entries as fit into the headers, in the order with the highest cost.
    for accept in [
        vec!["application/xml;q=0.5;as=Table"; 30_000].join(","),
        format!("{}{}", "*/*;q=0,".repeat(50_000), "a/b,".repeat(100_000)),
    ] {
        let request = Request::get(foos).header("accept", accept).body(Body::empty()).unwrap();
        let status = server.respond(admin(), request).await.status();
        assert!(status == StatusCode::OK || status == StatusCode::NOT_ACCEPTABLE, "{status}");
    }
    for (depth, expected) in [(60, StatusCode::CREATED), (100_000, StatusCode::BAD_REQUEST)] {
        let nested =
            format!("{}{}", "{\"a\":".repeat(depth), "}".repeat(depth).replacen('}', "1}", 1));
        let body = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"deep"}},"spec":{{"free":{nested}}}}}"#
        );
        let request = Request::post(foos).body(Body::from(body)).unwrap();
        assert_eq!(server.respond(admin(), request).await.status(), expected, "{depth} levels");
    }
}

/// The cost of a request is not many times its size, neither in the response nor during its processing.
#[tokio::test]
async fn answers_stay_small_for_large_requests() {
    const LARGE: usize = 2_900_000;
    let server = server().await;
    let foos = "/apis/example.com/v1/namespaces/open/foos";
    let of_spec = |spec: String| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"x"}},"spec":{spec}}}"#
        )
    };
    let of_metadata = |metadata: String| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"x",{metadata}}},"spec":{{}}}}"#
        )
    };
    let members = |count: usize| {
        let members = (0..count).map(|number| format!("\"m{number}\":1"));
        members.collect::<Vec<_>>().join(",")
    };
    let owner = |number: usize| {
        format!(
            r#"{{"apiVersion":"v1","kind":"a","name":"n{number}","uid":"u","controller":true}}"#
        )
    };
    let owners = (0..8_000).map(owner).collect::<Vec<_>>().join(",");
    let name = "k".repeat(LARGE);
    let bodies = [
        of_metadata(format!(r#""ownerReferences":[{owners}]"#)),
        of_metadata(format!(r#""labels":{{"{}":""}}"#, "/".repeat(LARGE))),
        of_metadata(format!(r#""finalizers":["{}"]"#, "/".repeat(LARGE))),
        of_spec(format!(r#"{{"map":{{"{name}":{{{}}}}}}}"#, members(1_000))),
        of_spec(format!(r#"{{"mail":["{}"]}}"#, "\u{7f}".repeat(LARGE))),
        of_spec(format!(r#"{{"mail":["{}"]}}"#, "(".repeat(LARGE))),
        of_spec(format!(r#"{{"mail":["=?{}?="]}}"#, "?".repeat(LARGE))),
        of_spec(format!(r#"{{"address":"{}/0"}}"#, ":".repeat(LARGE))),
        of_spec(format!(r#"{{"page":"http://{}"}}"#, "%e4".repeat(LARGE / 3))),
        of_spec(format!(r#"{{"host":"{}"}}"#, "\u{e9}.".repeat(LARGE / 3))),
        of_spec(format!(r#"{{"wait":"{}"}}"#, "1x".repeat(LARGE / 2))),
        of_spec(format!(r#"{{"number":"{}"}}"#, "-".repeat(LARGE))),
        of_spec(format!(r#"{{"code":"{}"}}"#, "\u{7f}".repeat(LARGE))),
        of_spec(format!(r#"{{"closed":{{{}}}}}"#, members(45_000))),
        of_spec(format!(r#"{{"rows":[{}]}}"#, vec!["{}"; 45_000].join(","))),
        of_spec(format!(r#"{{"set":[{}]}}"#, vec!["\"a\""; 45_000].join(","))),
        of_spec(format!(r#"{{"template":{{"metadata":{{{}}}}}}}"#, members(45_000))),
    ];
    for body in bodies {
        for validation in ["Strict", "Warn"] {
            let (length, begins) = (body.len(), body[..200].to_owned());
            let request = Request::post(format!("{foos}?dryRun=All&fieldValidation={validation}"));
            let request = request.body(Body::from(body.clone())).unwrap();
            let response = server.respond(admin(), request).await;
            let status = response.status();
            assert!(status.as_u16() < 500, "{status}: {begins}");
            let headers: usize = response.headers().values().map(|value| value.len()).sum();
            let answer = response.into_body().collect().await.unwrap().to_bytes().len();
            assert!(answer < 2 * length + 1_000_000, "{answer} bytes: {begins}");
            assert!(headers < 64 << 10, "{headers} bytes of headers: {begins}");
        }
    }
    let request = Request::patch(format!("{foos}/a")).header("content-type", TYPES[8]);
    let pointer = format!(r#"[{{"op":"remove","path":"{}"}}]"#, "/".repeat(LARGE));
    let response = server.respond(admin(), request.body(Body::from(pointer)).unwrap()).await;
    assert!(response.status().is_client_error(), "{}", response.status());
}
