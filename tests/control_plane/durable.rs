//! Llamas that are kept in a folder.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::world::World;

/// kube-apiserver takes what the program prints for a store on a volume.
pub fn a_stateful_set_is_printed(world: &mut World) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    let printed = command.args(["manifests", "--store=sqlite"]).output()?;
    ensure!(printed.status.success(), "{printed:?}");
    let manifest = String::from_utf8(printed.stdout)?;
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-"];
    let applied = world.kubectl(apply).input(&manifest).run()?;
    let is_there = |name| applied.lines().any(|line| line == name);
    ensure!(is_there("statefulset.apps/farm-operator"), "{applied}");
    ensure!(!is_there("deployment.apps/farm-operator"), "{applied}");
    Ok(())
}

/// What is acknowledged is there after the process was killed, watches go on where they were, and
/// nobody collects what llamas own.
pub fn llamas_outlive_the_process(world: &mut World) -> Result<()> {
    const LLAMAS: &str = "/apis/farm.example.com/v1alpha/namespaces/default/llamas";
    let folder = world.control_plane.folder().join("data");
    let folder = folder.to_str().context("a path that is text")?.to_owned();
    let data_dir = ["--data-dir", &folder];
    world.restart_server_with(&data_dir)?;
    let llama = |name: &str| {
        json!({
            "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "metadata": {"name": name},
            "spec": {"weight": 100, "height": 2},
        })
    };
    let create = |name: &str| -> Result<Value> {
        let text = llama(name).to_string();
        let create = ["create", "-o", "json", "-f", "-"];
        let created = world.eventually(|| world.kubectl(create).input(&text).run())?;
        Ok(serde_json::from_str(&created)?)
    };
    let first = create("first")?;
    let uid = first["metadata"]["uid"].as_str().context("a uid")?;
    let owner = json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "name": "first", "uid": uid,
    });
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "of-first", "ownerReferences": [owner]},
    });
    world.kubectl(["create", "-f", "-"]).input(&owned.to_string()).run()?;
    let since = first["metadata"]["resourceVersion"].as_str().context("a revision")?;
    create("second")?;
    world.kubectl(["delete", "llama", "second"]).run()?;

    world.restart_server_with(&data_dir)?;
    let get = ["get", "llama", "first", "-o", "jsonpath={.metadata.uid}"];
    let found = world.eventually(|| world.kubectl(get).run())?;
    ensure!(found == uid, "{found} was {uid}");
    // What a watcher has missed is told to it: nothing else, and nothing twice.
    let watch = format!("{LLAMAS}?watch=true&resourceVersion={since}&timeoutSeconds=1");
    let told = world.kubectl(["get", "--raw", &watch]).run()?;
    let told = told.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let told: Vec<(&Value, &Value)> =
        told.iter().map(|event| (&event["type"], &event["object"]["metadata"]["name"])).collect();
    let (added, deleted, second) = (json!("ADDED"), json!("DELETED"), json!("second"));
    ensure!(told == [(&added, &second), (&deleted, &second)], "{told:?}");
    world.kubectl(["get", "configmap", "of-first"]).run()?;
    // The collector does know it: what is owned goes with its owner.
    world.kubectl(["delete", "llama", "first"]).run()?;
    world.kubectl(["wait", "--for=delete", "configmap/of-first", "--timeout=120s"]).run()?;
    world.restart_server()
}
