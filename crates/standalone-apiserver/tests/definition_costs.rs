//! Limits the memory of this process for a definition of realistic size, and for definitions that are designed to use
//! much.
//!
//! The test is alone in its program, because it measures the process.

#![allow(clippy::unwrap_used)] // all of it is a test
#![cfg(target_os = "linux")] // reads /proc

use http::Request;
use kube::Client;
use mimalloc::MiMalloc;
use serde_json::{Map, Value, json};
use standalone_apiserver::TestServer;
use test_server::process_memory;

/// The allocator of the program. With the allocator of glibc, results depend on the threads that use its arenas.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The largest growth of the process while a definition is read, served and described, in MiB. The Rust types of
/// schemas are large.
const MOST: usize = 140;
/// The number of properties of the largest definitions in use.
const MANY: usize = 10_000;
/// The pattern of a quantity, which definitions that are generated from Go types contain many times.
const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// Returns a definition with `count` properties in its spec.
fn definition(name: &str, count: usize, property: impl Fn(usize) -> Value) -> Value {
    let properties: Map<String, Value> =
        (0..count).map(|number| (format!("property{number}"), property(number))).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"kind": name.to_uppercase(), "plural": format!("{name}s")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": properties}},
            }}}],
        },
    })
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, String> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    match client.request(request).await {
        Err(kube::Error::Api(status)) => Err(status.message),
        answer => Ok(answer.unwrap()),
    }
}

async fn define(client: &Client, definition: &Value) -> Result<(), String> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    post(client, path, definition).await?;
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
    let path = format!("/apis/example.com/v1/{plural}");
    let request = || Request::get(&path).body(Vec::new()).unwrap();
    // Waits until the kind is served.
    while client.request_text(request()).await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_definitions_are_served_and_expensive_patterns_are_rejected() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let get = async |path: &str| {
        let request = Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap().len()
    };
    get("/openapi/v2").await;
    let described = "what it is, in words that somebody wrote down, and why";
    let rows = [
        definition(
            "wide",
            MANY,
            |number| json!({"type": "string", "description": format!("{number} {described}")}),
        ),
        definition(
            "amount",
            MANY / 4,
            |_| json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": true}),
        ),
    ];
    for definition in &rows {
        let before = process_memory::begin();
        define(&client, definition).await.unwrap();
        get("/openapi/v2").await;
        let most = process_memory::most().saturating_sub(before);
        let (name, length) = (&definition["metadata"]["name"], definition.to_string().len());
        println!("{name}, {} kB: {most} MiB", length / 1_000);
        assert!(most < MOST, "{name}: {most} MiB");
    }
    let mut amount = json!({
        "apiVersion": "example.com/v1", "kind": "AMOUNT", "metadata": {"name": "a"},
        "spec": {"property0": "1.5Gi", "property1": "x"},
    });
    let refused = post(&client, "/apis/example.com/v1/amounts", &amount).await.unwrap_err();
    assert!(refused.contains("spec.property1 in body should match"), "{refused}");
    amount["spec"]["property1"] = "100m".into();
    post(&client, "/apis/example.com/v1/amounts", &amount).await.unwrap();

    // Patterns of a few kB that would use 180 MiB and seconds of CPU time.
    let patterns = definition(
        "pattern",
        400,
        |number| json!({"type": "string", "pattern": format!("^a{number}\\p{{L}}{{1,10}}$")}),
    );
    let before = process_memory::begin();
    let refused = define(&client, &patterns).await.unwrap_err();
    let expected =
        "spec.versions: Forbidden: must have fewer or smaller patterns: compiled they take ";
    assert!(refused.contains(expected), "{refused}");
    let most = process_memory::most().saturating_sub(before);
    println!("patterns: {most} MiB");
    assert!(most < MOST / 4, "patterns: {most} MiB");
}
