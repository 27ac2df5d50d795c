//! Objects in other namespaces than their source, and the permissions of their readers.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::computed::{FanOut, SourceOptions};
use aggregated_apiserver::{ApiServer, Computed, Kinds};
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_server::{FakeCluster, ask_as, user};

const CATALOGS: &str = "/api/v1/namespaces/catalogs/configmaps";

/// A key of a ConfigMap in the namespace `catalogs`, shown in the namespace that the value names.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Package", namespaced)]
struct PackageSpec {}

impl Computed for Package {
    type Source = ConfigMap;
    type Related = ();

    const OPTIONS: SourceOptions = SourceOptions::ALL.in_namespace("catalogs");
    const FAN_OUT: FanOut = FanOut::AnyNamespace;

    fn compute_all(catalog: &ConfigMap, (): &()) -> Vec<Self> {
        let catalog_name = catalog.metadata.name.as_deref().unwrap_or_default();
        let package = |(name, namespace): (&String, &String)| {
            let mut package = Self::new(&format!("{name}.{catalog_name}"), PackageSpec {});
            package.metadata.namespace = Some(namespace.clone());
            package
        };
        catalog.data.iter().flatten().map(package).collect()
    }

    fn source_name(name: &str) -> Option<String> {
        name.split_once('.').map(|(_, catalog)| catalog.to_owned())
    }
}

/// A reader needs the permission in the namespace of the sources, and the name of the source that an object has.
#[tokio::test]
async fn objects_in_any_namespace_need_the_permission_on_their_sources() {
    let cluster = FakeCluster::without_objects(CATALOGS);
    let catalog = json!({
        "metadata": {"name": "tools", "namespace": "catalogs", "uid": "1"},
        "data": {"vim": "dev", "git": "ops"},
    });
    cluster.set(CATALOGS, vec![catalog]);
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    cluster.authorize_by(move |spec| {
        let attributes = &spec["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        let [resource, namespace, name] = ["resource", "namespace", "name"].map(text);
        noted.lock().unwrap().push(format!("{resource} {namespace} {name}"));
        Some(resource == "packages" || spec["user"] == "reader" && namespace == "catalogs")
    });
    let kinds = Kinds::new().computed::<Package>();
    let server = ApiServer::new("packages", kinds).in_process(cluster.client()).await.unwrap();
    server.wait_synced().await;
    let get = async |name: &str, path: &str| {
        let path = format!("/apis/example.com/v1{path}");
        ask_as(&server, user(name), "GET", &path, &Value::Null).await
    };
    for (path, names) in [
        ("/packages", vec!["vim.tools", "git.tools"]),
        ("/namespaces/dev/packages", vec!["vim.tools"]),
        ("/namespaces/catalogs/packages", vec![]),
    ] {
        let (status, found) = get("reader", path).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        let items = found["items"].as_array().unwrap().iter();
        let found: Vec<_> =
            items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(found, names, "{path}");
        assert_eq!(get("other", path).await.0, StatusCode::FORBIDDEN);
    }
    let one = "/namespaces/dev/packages/vim.tools";
    let (status, found) = get("reader", one).await;
    assert_eq!((status, &found["metadata"]["namespace"]), (StatusCode::OK, &json!("dev")));
    for expected in ["configmaps catalogs ", "configmaps catalogs tools"] {
        assert!(asked.lock().unwrap().iter().any(|asked| asked == expected), "{expected}");
    }
    assert_eq!(get("other", one).await.0, StatusCode::FORBIDDEN);
}
