//! Compares the roles and bindings that kube-apiserver creates at startup with the table of `standalone-apiserver` and
//! with the objects that it creates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::server::Server;

const PLURALS: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The largest time that kube-controller-manager needs to aggregate roles.
const PATIENCE: Duration = Duration::from_secs(60);

type Tree = Map<String, Value>;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../standalone-apiserver/src/authorizer/bootstrap_policy.json")
}

/// Compares the table with the objects of `plain`, which runs without controllers. With `BLESS=1` the table is written.
/// Then compares the objects of `standalone` with those of `controlled`, whose aggregated roles are complete.
///
/// # Errors
/// When an object cannot be read, or the table cannot be written.
pub async fn compare(plain: &Server, controlled: &Server, standalone: &Server) -> Result<String> {
    let lines = objects(plain).await?.into_values().map(entry).collect::<Result<Vec<_>>>()?;
    let table = format!("[\n{}\n]\n", lines.join(",\n"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file(), &table)?;
    }
    if std::fs::read_to_string(file())? != table {
        return Ok(format!("{} is not what kube-apiserver has", file().display()));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (theirs, ours) = (objects(controlled).await?, objects(standalone).await?);
        let differs = |name: &&String| shown(theirs.get(*name)) != shown(ours.get(*name));
        let different: Vec<&String> = theirs.keys().filter(differs).collect();
        if different.is_empty() && theirs.len() == ours.len() {
            return Ok(String::new());
        }
        if Instant::now() > deadline {
            let each = different.into_iter().map(|name| {
                format!("{name}:\n{:#}\n{:#}", shown(theirs.get(name)), shown(ours.get(name)))
            });
            return Ok(each.collect::<Vec<_>>().join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the policy objects of a server, ordered by kind, namespace and name.
async fn objects(server: &Server) -> Result<BTreeMap<String, Tree>> {
    let mut objects = BTreeMap::new();
    for (number, plural) in PLURALS.into_iter().enumerate() {
        let (label, value) = LABEL;
        let path =
            format!("/apis/rbac.authorization.k8s.io/v1/{plural}?labelSelector={label}={value}");
        let list = server.demand("GET", &path, None).await?;
        let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        let kind = kind.context("the kind of a list")?.to_owned();
        for item in list["items"].as_array().into_iter().flatten() {
            let mut object = item.as_object().context("an object")?.clone();
            object.insert("kind".to_owned(), kind.clone().into());
            let metadata = &item["metadata"];
            let text = |name: &str| metadata[name].as_str().unwrap_or_default();
            objects.insert(
                format!("{number} {plural} {}/{}", text("namespace"), text("name")),
                object,
            );
        }
    }
    ensure!(!objects.is_empty(), "{} has no policy", server.name());
    Ok(objects)
}

/// Returns the line of an object in the table, without the fields that all objects share.
fn entry(mut object: Tree) -> Result<String> {
    object.remove("apiVersion");
    object.retain(|_, value| !value.is_null());
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).context("metadata")?;
    let annotations = metadata.remove("annotations").unwrap_or_default();
    ensure!(annotations == serde_json::json!({AUTO_UPDATE: "true"}), "{annotations}");
    for name in ["creationTimestamp", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(name);
    }
    let labels = metadata["labels"].as_object_mut().context("labels")?;
    labels.remove(LABEL.0);
    if labels.is_empty() {
        metadata.remove("labels");
    }
    Ok(serde_json::to_string(&object)?)
}

/// Returns an object without the fields that differ between servers.
fn shown(object: Option<&Tree>) -> Value {
    let mut object = object.cloned().unwrap_or_default();
    object.remove("apiVersion");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for name in ["creationTimestamp", "resourceVersion", "uid"] {
            metadata.remove(name);
        }
        for manager in
            metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten()
        {
            manager["time"] = Value::Null;
        }
    }
    object.into()
}
