//! Compares the OpenAPI documents of the repository with those that the server serves. After an intended change,
//! `BLESS=1 cargo test --test openapi` updates the files.

use std::path::Path;

use http::StatusCode;
use serde_json::Value;
use test_server::{ask, unreachable_cluster};

const DOCUMENTS: [&str; 4] = [
    "openapi/v2",
    "openapi/v3",
    "openapi/v3/apis/farm.example.com/v1",
    "openapi/v3/apis/farm.example.com/v1alpha",
];

#[tokio::test]
async fn openapi_files_equal_the_served_documents() {
    // The documents do not need the cluster.
    let server = farm_operator::server().in_process(unreachable_cluster()).await.unwrap();
    for path in DOCUMENTS {
        let (status, served) = ask(&server, "GET", &format!("/{path}"), &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let served = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{path}.json"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, served).unwrap();
        } else {
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(kept == served, "{path}: write it anew, BLESS=1 cargo test --test openapi");
        }
    }
}
