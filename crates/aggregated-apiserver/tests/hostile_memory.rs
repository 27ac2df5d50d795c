//! The memory that a request can make this process use, whatever its content.
//!
//! This test is alone in its program, because it measures the memory of the process.

#![allow(clippy::unwrap_used)] // all of it is a test
#![cfg(target_os = "linux")] // where the kernel says it

use std::sync::Arc;

use aggregated_apiserver::{InProcess, User};
use axum::body::{Body, Bytes};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use mimalloc::MiMalloc;
use test_server::process_memory::{begin, most};

/// The allocator of the program. The allocator of glibc retains up to 40 MiB more of memory that threads have freed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              rows:
                type: array
                items:
                  type: object
                  properties:
                    deep: {type: object, default: {a: {b: {c: {d: {e: {}}}}}}, x-kubernetes-preserve-unknown-fields: true}
              templates:
                type: array
                items: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
/// The memory that one request, and a hundred concurrent requests, may add to the process, in MiB.
const ONE: usize = 64;
const HUNDRED: usize = 128;
/// The input with the densest nesting.
const FIRST: &str = "objects in each other";
/// A little less than the maximum size of a body, in bytes.
const LARGE: usize = 3_000_000;

#[derive(Clone)]
struct Sent {
    what: &'static str,
    method: &'static str,
    path: String,
    content_type: &'static str,
    /// Shared between requests, so that the measured memory is the server's.
    body: Bytes,
}

/// One of ten users, each with all permissions and a memory limit.
fn user(number: usize) -> User {
    let groups = vec!["system:authenticated".to_owned()];
    User { name: format!("user-{}", number % 10), groups, ..User::default() }
}

async fn ask(server: &InProcess, user: User, sent: &Sent) -> StatusCode {
    let request = Request::builder().method(sent.method).uri(&sent.path);
    let request = request.header("content-type", sent.content_type);
    let request = request.body(Body::from(sent.body.clone())).unwrap();
    let response = server.respond(user, request).await;
    let status = response.status();
    // A client that sends so much reads little of the response.
    drop(response.into_body().frame().await);
    status
}

fn foo(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    )
}

/// Objects nested to this depth.
fn nested(depth: usize) -> String {
    format!("{}0{}", "{\"\":".repeat(depth), "}".repeat(depth))
}

fn many(one: &str, count: usize) -> String {
    format!("[{}]", vec![one; count].join(","))
}

fn bodies() -> Vec<(&'static str, String)> {
    let members: Vec<String> = (0..49_000).map(|number| format!("\"m{number}\":0")).collect();
    let lines: Vec<String> =
        (0..40).map(|number| format!("\"k{number}\":{}", nested(100))).collect();
    vec![
        (FIRST, format!("{{\"a\":{}}}", many(&nested(100), 450))),
        ("small objects", format!("{{\"a\":{}}}", many("{\"\":0}", 24_000))),
        ("empty lists", format!("{{\"a\":{}}}", many("[[]]", 24_000))),
        ("members", format!("{{{}}}", members.join(","))),
        ("columns of objects", format!("{{{}}}", lines.join(","))),
        ("one text", format!("{{\"a\":\"{}\"}}", "x".repeat(LARGE))),
        ("escapes", format!("{{\"a\":\"{}\"}}", "\\u0000".repeat(LARGE / 6))),
        ("defaults", format!("{{\"rows\":{}}}", many("{}", 49_000))),
        (
            "resources",
            format!(
                "{{\"templates\":{}}}",
                many("{\"metadata\":{\"labels\":{\"a\":null}}}", 12_000)
            ),
        ),
    ]
}

fn requests() -> Vec<Sent> {
    let mut all = Vec::new();
    for (what, spec) in bodies() {
        for (method, path, content_type, body) in [
            ("POST", format!("{FOOS}?dryRun=All"), "application/json", foo("x", &spec)),
            ("PUT", format!("{FOOS}/a?dryRun=All"), "application/json", foo("a", &spec)),
            (
                "PUT",
                format!("{FOOS}/a/status?dryRun=All"),
                "application/json",
                foo("a", "{}").replace("\"spec\":{}", &format!("\"status\":{spec}")),
            ),
            (
                "PATCH",
                format!("{FOOS}/a?dryRun=All"),
                "application/merge-patch+json",
                format!("{{\"spec\":{spec}}}"),
            ),
            (
                "PATCH",
                format!("{FOOS}/a?dryRun=All"),
                "application/json-patch+json",
                format!("[{{\"op\":\"add\",\"path\":\"/spec\",\"value\":{spec}}}]"),
            ),
            ("POST", format!("{FOOS}?dryRun=All"), "application/yaml", foo("x", &spec)),
            ("DELETE", format!("{FOOS}/none"), "application/json", spec.clone()),
        ] {
            all.push(Sent { what, method, path, content_type, body: body.into() });
        }
    }
    // A copy operation that copies earlier copies.
    let value = many(&nested(100), 400);
    let copies = (0..12).map(|number| {
        format!("{{\"op\":\"copy\",\"from\":\"/spec\",\"path\":\"/spec/c{number}\"}}")
    });
    let operations: Vec<String> = copies.collect();
    all.push(Sent {
        what: "copies",
        method: "PATCH",
        path: format!("{FOOS}/a?dryRun=All"),
        content_type: "application/json-patch+json",
        body: format!(
            "[{{\"op\":\"add\",\"path\":\"/spec\",\"value\":{{\"a\":{value}}}}},{}]",
            operations.join(",")
        )
        .into(),
    });
    // An object whose managed fields claim many fields.
    for (content_type, body) in [
        ("application/merge-patch+json", "{\"spec\":{\"k1\":2}}".to_owned()),
        (
            "application/json-patch+json",
            "[{\"op\":\"test\",\"path\":\"/metadata/managedFields/0/manager\",\"value\":\"m\"}]"
                .to_owned(),
        ),
        ("application/apply-patch+yaml", foo("m", "{\"k2\":2}")),
    ] {
        let path = format!("{FOOS}/m?dryRun=All&fieldManager=z&force=true");
        let path =
            if content_type.contains("apply") { path } else { path.replace("&force=true", "") };
        all.push(Sent { what: "managers", method: "PATCH", path, content_type, body: body.into() });
    }
    // Managed fields that a client made up: values that are not scalars, and nested fields.
    let values = |count: usize| format!("\"v:[{}0]\":{{}}", "[0],".repeat(count));
    let nested = |count: usize| {
        let one = |number| format!("\"f:{number}\":{{\"f:a\":{{\"f:a\":{{\"f:a\":{{}}}}}}}}");
        (0..count).map(one).collect::<Vec<_>>().join(",")
    };
    for fields in [values(100_000), values(20_000), nested(12_000), nested(4_000)] {
        all.push(Sent {
            what: "managers that are sent",
            method: "POST",
            path: format!("{FOOS}?dryRun=All"),
            content_type: "application/json",
            // The name behind the managed fields is invalid, because the memory of responses is accounted separately.
            body: managed("N!", "sent", &fields).into(),
        });
    }
    // YAML anchors.
    let mut laughs = format!("a0: &a0 [{}]\n", "x,".repeat(10));
    for level in 1..4 {
        let below = format!("*a{},", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    // Nested YAML anchors, each of which stores its whole content.
    let nested = (0..20).map(|level| format!("&a{level} [")).collect::<String>();
    let nested = format!(
        "a: {nested}{}{}\n",
        "\"\\x61bcdefghijklmnopqrstuvwxyz\",".repeat(40_000),
        "]".repeat(20)
    );
    for (what, body) in [
        ("anchors", laughs),
        ("anchors in each other", nested),
        ("lists in YAML", format!("a: {}\n", many("[]", 80_000))),
        ("lines in YAML", "- a\n".repeat(60_000)),
    ] {
        let path = format!("{FOOS}?dryRun=All");
        all.push(Sent {
            what,
            method: "POST",
            path,
            content_type: "application/yaml",
            body: body.into(),
        });
    }
    all
}

/// An object with a manager that owns these fields of its spec.
fn managed(name: &str, manager: &str, fields: &str) -> String {
    let managers = format!(
        "\"managedFields\":[{{\"manager\":\"{manager}\",\"operation\":\"Update\",\"apiVersion\":\"example.com/v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:spec\":{{{fields}}}}}}}],"
    );
    foo(name, "{\"a\":1}").replace("\"metadata\":{", &format!("\"metadata\":{{{managers}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_limited_for_hostile_requests() {
    let server = Arc::new(test_server::server_of_all(DEFINITION).await);
    let first = Sent {
        what: "",
        method: "POST",
        path: FOOS.to_owned(),
        content_type: "application/json",
        body: foo("a", "{\"a\":1}").into(),
    };
    assert_eq!(ask(&server, user(0), &first).await, StatusCode::CREATED);
    let paths: Vec<String> = (0..20_000).map(|number| format!("\"f:k{number}\":{{}}")).collect();
    let owned = managed("m", "m", &paths.join(","));
    let owned = Sent { body: owned.into(), ..first };
    assert_eq!(ask(&server, user(0), &owned).await, StatusCode::CREATED);
    let requests = requests();
    let mut faults = Vec::new();
    for sent in &requests {
        let before = begin();
        let status = ask(&server, user(0), sent).await;
        let grown = most().saturating_sub(before);
        let said =
            format!("{} {} {}: {status}, {grown} MiB", sent.what, sent.method, sent.content_type);
        println!("{said}");
        assert!(!status.is_server_error(), "{said}");
        if grown > ONE {
            faults.push(said);
        }
    }
    // The other requests consist of the same parts.
    let is_measured = |sent: &&Sent| {
        let is_yaml = sent.content_type.ends_with("yaml");
        sent.method == "PATCH" || (sent.method == "POST" && (!is_yaml || sent.what == FIRST))
    };
    for sent in requests.iter().filter(is_measured) {
        let before = begin();
        // A few threads parse YAML, whatever the number of clients.
        let count = if sent.content_type.ends_with("yaml") { 9 } else { 100 };
        let asked = (0..count).map(|number| {
            let (server, sent) = (Arc::clone(&server), sent.clone());
            tokio::spawn(async move { ask(&server, user(number), &sent).await })
        });
        let asked: Vec<_> = asked.collect();
        for one in asked {
            assert!(!one.await.unwrap().is_server_error(), "{}", sent.what);
        }
        let grown = most().saturating_sub(before);
        let said = format!(
            "a hundred times {} {} {}: {grown} MiB",
            sent.what, sent.method, sent.content_type
        );
        println!("{said}");
        if grown > HUNDRED {
            faults.push(said);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
