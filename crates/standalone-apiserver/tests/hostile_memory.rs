//! Limits the memory that a request for a built-in kind can allocate. Its objects are also decoded into Rust types,
//! which are larger than JSON trees.
//!
//! The test is alone in its program, because it measures the process.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test
#![cfg(target_os = "linux")] // reads /proc

use http::Request;
use kube::Client;
use standalone_apiserver::TestServer;
use test_server::process_memory;

/// The largest growth of the process by one request, in MiB.
const ONE: usize = 64;

fn many(one: &str, count: usize) -> String {
    format!("[{}]", vec![one; count].join(","))
}

async fn ask(client: &Client, method: &str, path: &str, content_type: &str, body: &str) -> u16 {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type);
    let request = request.body(body.as_bytes().to_vec()).unwrap();
    match client.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_decoded_into_typed_objects_use_limited_memory() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let pod = |spec: &str| format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let definition = |schema: &str| {
        format!(
            r#"{{"metadata":{{"name":"foos.example.com"}},"spec":{{"group":"example.com","scope":"Cluster","names":{{"plural":"foos","kind":"Foo"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
        )
    };
    let properties: Vec<String> =
        (0..20_000).map(|number| format!("\"p{number}\":{{\"type\":\"string\"}}")).collect();
    let properties = format!("{{\"type\":\"object\",\"properties\":{{{}}}}}", properties.join(","));
    let container = format!("{{\"name\":\"c\",\"image\":\"i\",\"env\":{}}}", many("{}", 40_000));
    let requests = [
        ("POST", pods, pod(&format!("{{\"containers\":{}}}", many("{}", 49_000)))),
        ("POST", pods, pod(&format!("{{\"containers\":{}}}", many("null", 49_000)))),
        ("POST", pods, pod(&format!("{{\"containers\":[{container}]}}"))),
        ("POST", pods, pod(&format!("{{\"containers\":[],\"volumes\":{}}}", many("{}", 49_000)))),
        ("POST", definitions, definition(&properties)),
        ("POST", definitions, definition(&format!("{{\"allOf\":{}}}", many("{}", 49_000)))),
    ];
    // The first request initializes statics, which are not part of the cost of a request.
    assert_eq!(ask(&client, "POST", pods, "application/json", &pod("{}")).await, 422);
    let mut faults = Vec::new();
    for (method, path, body) in &requests {
        let before = process_memory::begin();
        let code = ask(&client, method, path, "application/json", body).await;
        // Two more copies of the body exist: in this test and in the request.
        let grown = process_memory::most().saturating_sub(before + 2 * body.len() / (1 << 20));
        let said = format!("{method} {path} {:.200}: {code}, {grown} MiB", body);
        println!("{said}");
        assert!(code < 500, "{said}");
        if grown > ONE {
            faults.push(said);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
