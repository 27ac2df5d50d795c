//! Objects that an earlier or a later release has stored in another version.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use aggregated_apiserver::commands::TransferOptions;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use anyhow::{Context, Result, ensure};
use serde_json::json;

/// A server of a kind with this storage version, and with another version if it is given.
fn server(stored: &str, other: Option<&str>) -> Result<ApiServer> {
    let version = |name: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"name": name, "served": true, "storage": name == stored, "schema": schema})
    };
    let versions: Vec<_> = [Some(stored), other].into_iter().flatten().map(version).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": versions,
        },
    });
    Ok(ApiServer::new("foos", Kinds::new().crds_from_yaml(&definition.to_string())?))
}

/// Waits until the server has released the directory, which its last task does.
fn wait_until_free(data: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let lock = File::open(data.join("lock"))?;
    while lock.try_lock().is_err() {
        ensure!(Instant::now() < deadline, "the folder stays locked");
        std::thread::yield_now();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_stored_in_an_unknown_version_prevents_startup_until_migration() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let etcd = ServeArgs::default().etcd;
    let data_dir = Some(folder.path().join("data"));
    let options = TransferOptions { data_dir, etcd, encryption_provider_config: None };
    let line = json!({"collection": "foos.example.com", "object": {
        "apiVersion": "example.com/v1alpha1", "kind": "Foo",
        "metadata": {"name": "a", "uid": "u"}, "text": "kept",
    }});
    options.import("foos", format!("{line}\n").as_bytes()).await?;
    let starts = async |server: ApiServer| -> Result<String> {
        let mut args = ServeArgs::default();
        args.data_dir = options.data_dir.clone();
        (args.bind_address, args.secure_port) = ([127, 0, 0, 1].into(), 0);
        Ok(match server.bind_without_cluster(&args)?.start().await {
            Ok(running) => {
                running.drain(Duration::ZERO).await;
                wait_until_free(&folder.path().join("data"))?;
                "it starts".to_owned()
            }
            Err(refused) => refused.to_string(),
        })
    };
    let refused = "foos.example.com a is stored in example.com/v1alpha1, which this release does not have: run the command migrate of a release that has both versions";
    ensure!(starts(server("v1", None)?).await? == refused);
    // A release that knows both versions reads the object unchanged, and rewrites it with `migrate`.
    ensure!(starts(server("v1", Some("v1alpha1"))?).await? == "it starts");
    // A release that does not know the version reports that, and leaves the object unchanged.
    let unknown = options.migrate(&server("v1", None)?).await.err().context("it is known")?;
    let expected = "0 of 1; left as they are, because they are of unknown versions: foos.example.com a in example.com/v1alpha1";
    ensure!(unknown.to_string() == expected, "{unknown}");
    ensure!(options.migrate(&server("v1alpha1", Some("v1"))?).await? == "0 of 1");
    ensure!(options.migrate(&server("v1", Some("v1alpha1"))?).await? == "1 of 1");
    ensure!(options.migrate(&server("v1", Some("v1alpha1"))?).await? == "0 of 1");
    let mut exported = Vec::new();
    options.export("foos", &mut exported).await?;
    let exported: serde_json::Value = serde_json::from_slice(&exported)?;
    let object = exported.get("object").context("an object")?;
    ensure!(object["apiVersion"] == "example.com/v1" && object["text"] == "kept", "{object}");
    ensure!(object["metadata"]["uid"] == "u");
    ensure!(starts(server("v1", None)?).await? == "it starts");
    Ok(())
}
