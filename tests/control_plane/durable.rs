//! Llamas that are kept in a folder, or in etcd by several replicas.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::switch::Switch;
use crate::world::{API_SERVICE, NAMESPACE, World};

const LLAMAS: &str = "/apis/farm.example.com/v1alpha/namespaces/default/llamas";

/// kube-apiserver takes what the program prints for a store on a volume.
pub fn a_stateful_set_is_printed(world: &mut World) -> Result<()> {
    let applied = apply(world, &["--store=sqlite"])?;
    ensure!(applied.contains(&"statefulset.apps/farm-operator".to_owned()), "{applied:?}");
    ensure!(!applied.contains(&"deployment.apps/farm-operator".to_owned()), "{applied:?}");
    Ok(())
}

/// The same for replicas on an etcd.
pub fn replicas_are_printed(world: &mut World) -> Result<()> {
    for servers in ["http://etcd:2379", "https://a.example.com:2379,https://b.example.com:2379"] {
        let servers = format!("--etcd-servers={servers}");
        let applied = apply(world, &["--store=etcd", &servers])?;
        for name in ["deployment.apps", "poddisruptionbudget.policy"] {
            ensure!(applied.contains(&format!("{name}/farm-operator")), "{applied:?}");
        }
    }
    Ok(())
}

/// What kube-apiserver would make of what is printed.
fn apply(world: &World, options: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    let printed = command.arg("manifests").args(options).output()?;
    ensure!(printed.status.success(), "{printed:?}");
    let manifest = String::from_utf8(printed.stdout)?;
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-"];
    let applied = world.kubectl(apply).input(&manifest).run()?;
    Ok(applied.lines().map(str::to_owned).collect())
}

/// Makes a llama, as soon as that can be done.
fn create(world: &World, name: &str) -> Result<Value> {
    let llama = json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "metadata": {"name": name},
        "spec": {"weight": 100, "height": 2},
    });
    let create = ["create", "-o", "json", "-f", "-"];
    let created = world.eventually(|| world.kubectl(create).input(&llama.to_string()).run())?;
    Ok(serde_json::from_str(&created)?)
}

/// What a watcher has missed since a revision: what happened, to whom.
fn missed(world: &World, since: &str) -> Result<Vec<(String, String)>> {
    let watch = format!("{LLAMAS}?watch=true&resourceVersion={since}&timeoutSeconds=1");
    let told = world.kubectl(["get", "--raw", &watch]).run()?;
    let told = told.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told =
        told.iter().map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"])));
    Ok(told.collect())
}

/// As kubectl prints it.
fn revision(llama: &Value) -> Result<&str> {
    llama["metadata"]["resourceVersion"].as_str().context("a revision")
}

/// One replica takes the place of another one: nothing is lost or told twice, and what one has
/// acknowledged the other shows at once. They share the etcd of the cluster.
pub fn replicas_take_turns(world: &mut World) -> Result<()> {
    let etcd = world.control_plane.etcd_url();
    let flags = ["--etcd-servers", &etcd];
    world.restart_server_with(&flags)?;
    let switch = Switch::to(world.port)?;
    let service = (NAMESPACE, farm_operator::NAME);
    world.control_plane.lead_to_localhost(API_SERVICE, service, switch.port)?;
    world.wait_available()?;
    let first = create(world, "first")?;
    let (mut told, names) = (Vec::new(), ["second", "third", "fourth"]);
    let mut others = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let (port, other) = world.start_another(&format!("replica-{index}"), &flags)?;
        switch.lead_to(port);
        // The one before goes on until the next one is asked.
        others.push(other);
        create(world, name)?;
        told.push(("ADDED".to_owned(), name.to_owned()));
        let seen = missed(world, revision(&first)?)?;
        ensure!(seen == told, "{seen:?} of {told:?}");
        if let Some(before) = index.checked_sub(1).and_then(|index| others.get_mut(index)) {
            before.kill();
        }
    }
    world.kubectl(["delete", "llama", "first", "second", "third", "fourth"]).run()?;
    world.control_plane.lead_to_localhost(API_SERVICE, service, world.port)?;
    world.wait_available()?;
    world.eventually(|| {
        let left = world.kubectl(["get", "llamas", "-o", "name"]).run()?;
        ensure!(left.trim() == "llama.farm.example.com/dolly", "{left}");
        Ok(())
    })?;
    world.restart_server()
}

/// What is acknowledged is there after the process was killed, watches go on where they were, and
/// nobody collects what llamas own.
pub fn llamas_outlive_the_process(world: &mut World) -> Result<()> {
    let folder = world.control_plane.folder().join("data");
    let folder = folder.to_str().context("a path that is text")?.to_owned();
    let data_dir = ["--data-dir", &folder];
    world.restart_server_with(&data_dir)?;
    let first = create(world, "first")?;
    let uid = first["metadata"]["uid"].as_str().context("a uid")?;
    let owner = json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "name": "first", "uid": uid,
    });
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "of-first", "ownerReferences": [owner]},
    });
    world.kubectl(["create", "-f", "-"]).input(&owned.to_string()).run()?;
    let since = revision(&first)?;
    create(world, "second")?;
    world.kubectl(["delete", "llama", "second"]).run()?;

    world.restart_server_with(&data_dir)?;
    let get = ["get", "llama", "first", "-o", "jsonpath={.metadata.uid}"];
    let found = world.eventually(|| world.kubectl(get).run())?;
    ensure!(found == uid, "{found} was {uid}");
    // What a watcher has missed is told to it: nothing else, and nothing twice.
    let told = missed(world, since)?;
    let expected = ["ADDED", "DELETED"].map(|what| (what.to_owned(), "second".to_owned()));
    ensure!(told == expected, "{told:?}");
    world.kubectl(["get", "configmap", "of-first"]).run()?;
    // The collector does know it: what is owned goes with its owner.
    world.kubectl(["delete", "llama", "first"]).run()?;
    world.kubectl(["wait", "--for=delete", "configmap/of-first", "--timeout=120s"]).run()?;
    world.restart_server()
}
