//! Llamas that are stored in a directory, or in etcd by several replicas.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::Kubectl;

use crate::switch::Switch;
use crate::world::{API_SERVICES, Following, LLAMAS, NAMESPACE, PATIENCE, World};

/// kube-apiserver accepts the manifests for a store on a volume.
pub fn a_stateful_set_is_printed(world: &mut World) -> Result<()> {
    let applied = apply(world, &["--store=sqlite"])?;
    ensure!(applied.contains(&"statefulset.apps/farm-operator".to_owned()), "{applied:?}");
    ensure!(!applied.contains(&"deployment.apps/farm-operator".to_owned()), "{applied:?}");
    Ok(())
}

/// kube-apiserver accepts the manifests for replicas with etcd.
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

/// Applies the manifests with a server-side dry run. Returns the names of the objects.
fn apply(world: &World, options: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    let printed = command.arg("manifests").args(options).output()?;
    ensure!(printed.status.success(), "{printed:?}");
    let manifest = String::from_utf8(printed.stdout)?;
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-"];
    let applied = world.kubectl(apply).input(&manifest).run()?;
    Ok(applied.lines().map(str::to_owned).collect())
}

/// Creates a llama as soon as possible.
fn create(world: &World, name: &str) -> Result<Value> {
    let created = world.eventually(|| creation(world, name).run())?;
    Ok(serde_json::from_str(&created)?)
}

/// The kubectl command that creates a llama.
fn creation(world: &World, name: &str) -> Kubectl {
    let llama = json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "metadata": {"name": name},
        "spec": {"weight": 100, "height": 2},
    });
    world.kubectl(["create", "-o", "json", "-f", "-"]).input(&llama.to_string())
}

/// The events since a revision: the type and the name of each.
fn missed(world: &World, since: &str) -> Result<Vec<(String, String)>> {
    let watch = format!("{LLAMAS}?watch=true&resourceVersion={since}&timeoutSeconds=1");
    let told = world.kubectl(["get", "--raw", &watch]).run()?;
    let told = told.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told =
        told.iter().map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"])));
    Ok(told.collect())
}

/// The resourceVersion of a llama.
fn revision(llama: &Value) -> Result<&str> {
    llama["metadata"]["resourceVersion"].as_str().context("a revision")
}

/// An event of a watch: the revision, the type and the name.
type Told = (u64, String, String);

/// Starts a watch after a revision.
fn watch_behind(world: &World, version: u64) -> Result<Following> {
    let watch = format!("{LLAMAS}?watch=true&resourceVersion={version}");
    Following::start(world.kubectl(["get", "--raw", &watch]))
}

/// Reads the events of a watch until the connection breaks, or until the event of the last llama.
fn follow(mut watch: Following, last: &str) -> Result<Vec<Told>> {
    let mut told: Vec<Told> = Vec::new();
    while let Some(line) = watch.next().transpose()? {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            let next = watch.next().transpose()?;
            ensure!(next.is_none(), "{line} was not broken off: {next:?} follows");
            break;
        };
        // This includes the error 410.
        ensure!(event["type"] != "ERROR", "{event} comes after {told:?}");
        let name = event["object"]["metadata"]["name"].as_str().context("a name")?.to_owned();
        let version = revision(&event["object"])?.parse()?;
        let is_last = name == last;
        told.push((version, event["type"].as_str().context("a type")?.to_owned(), name));
        if is_last {
            break;
        }
    }
    Ok(told)
}

/// Creates and watches llamas while something happens. Every acknowledged llama exists afterwards, and a watch that
/// continues after an interruption reports each of them once.
fn watched_over(world: &mut World, what: impl FnOnce(&mut World) -> Result<()>) -> Result<()> {
    const MADE: usize = 30;
    const LAST: &str = "last";
    let begin: u64 = revision(&create(world, "begin")?)?.parse()?;
    let list = ["get", "llamas", "-o", "name"];
    let watch = ["get", "llamas", "-w", "-o", "name"];
    let mut running = Following::start(world.kubectl(watch))?;
    running.wait_for(&["llama.farm.example.com/begin"])?;
    let followed = watch_behind(world, begin)?;
    let creations: Vec<(String, Kubectl)> = (0..MADE)
        .map(|number| format!("m{number}"))
        .map(|name| (name.clone(), creation(world, &name)))
        .collect();
    let (acknowledge, acknowledged) = channel();
    let writing = thread::spawn(move || {
        for (name, creation) in creations {
            // A llama that was not acknowledged may exist too.
            if creation.output().is_ok_and(|printed| printed.succeeded) {
                let _ = acknowledge.send(name);
            }
        }
    });
    let mut names =
        vec![acknowledged.recv_timeout(PATIENCE)?, acknowledged.recv_timeout(PATIENCE)?];
    running.wait_for(&[&names[1]])?;
    what(world)?;
    create(world, "shown")?;
    world.eventually(|| {
        let mut again = Following::start(world.kubectl(watch))?;
        again.wait_for(&["llama.farm.example.com/shown"])
    })?;
    names.extend(acknowledged);
    ensure!(writing.join().is_ok(), "who writes has panicked");
    create(world, LAST)?;
    names.extend(["shown", LAST].map(str::to_owned));

    let mut told = follow(followed, LAST)?;
    ensure!(told.iter().all(|(_, _, name)| name != LAST), "the watch was not broken off: {told:?}");
    let deadline = Instant::now() + PATIENCE;
    while told.iter().all(|(_, _, name)| name != LAST) {
        ensure!(Instant::now() < deadline, "{LAST} does not come after {told:?}");
        let since = told.last().map_or(begin, |(version, _, _)| *version);
        told.extend(follow(watch_behind(world, since)?, LAST)?);
    }
    for (before, after) in told.iter().zip(&told[1..]) {
        ensure!(before.0 < after.0, "{after:?} comes after {before:?}");
    }
    ensure!(told.iter().all(|(_, what, _)| what == "ADDED"), "{told:?}");
    let told: BTreeSet<&str> = told.iter().map(|(_, _, name)| &**name).collect();
    let missing: Vec<&String> = names.iter().filter(|name| !told.contains(&***name)).collect();
    ensure!(missing.is_empty(), "{missing:?} were acknowledged, and told was {told:?}");
    let listed = world.kubectl(list).run()?;
    let listed = listed.lines().filter_map(|line| line.strip_prefix("llama.farm.example.com/"));
    let there: BTreeSet<&str> = listed.filter(|name| !["begin", "dolly"].contains(name)).collect();
    ensure!(there == told, "{there:?} are there, and told was {told:?}");
    Ok(())
}

/// The process is killed and restarted with the same directory.
pub fn watches_outlive_the_process(world: &mut World) -> Result<()> {
    let folder = world.control_plane.folder().join("watched");
    let folder = folder.to_str().context("a path that is text")?.to_owned();
    let data_dir = ["--data-dir", &folder];
    world.restart_server_with(&data_dir)?;
    watched_over(world, |world| world.restart_server_with(&data_dir))?;
    world.restart_server()
}

/// The replica that receives the requests is killed, and another one takes over.
pub fn watches_outlive_a_replica(world: &mut World) -> Result<()> {
    let etcd = world.control_plane.etcd_url();
    let flags = ["--etcd-servers", &etcd, "--etcd-prefix", "/registry/watched"];
    world.restart_server_with(&flags)?;
    let (port, _other) = world.start_another("other", &flags)?;
    let switch = Switch::to(world.port)?;
    let service = (NAMESPACE, farm_operator::NAME);
    world.control_plane.lead_to_localhost(&API_SERVICES, service, switch.port)?;
    world.wait_available()?;
    watched_over(world, |world| {
        world.server.kill();
        switch.lead_new_connections_to(port);
        Ok(())
    })?;
    world.control_plane.lead_to_localhost(&API_SERVICES, service, world.port)?;
    world.restart_server()
}

/// One replica replaces another. Nothing is lost or reported twice, and a write that one has acknowledged is at once
/// visible in the other. They share the etcd of the cluster.
pub fn replicas_take_turns(world: &mut World) -> Result<()> {
    let etcd = world.control_plane.etcd_url();
    let flags = ["--etcd-servers", &etcd];
    world.restart_server_with(&flags)?;
    let switch = Switch::to(world.port)?;
    let service = (NAMESPACE, farm_operator::NAME);
    world.control_plane.lead_to_localhost(&API_SERVICES, service, switch.port)?;
    world.wait_available()?;
    let first = create(world, "first")?;
    let (mut told, names) = (Vec::new(), ["second", "third", "fourth"]);
    let mut others = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let (port, other) = world.start_another(&format!("replica-{index}"), &flags)?;
        switch.lead_to(port);
        // The previous replica runs until the next one has received a request.
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
    world.control_plane.lead_to_localhost(&API_SERVICES, service, world.port)?;
    world.wait_available()?;
    world.eventually(|| {
        let left = world.kubectl(["get", "llamas", "-o", "name"]).run()?;
        ensure!(left.trim() == "llama.farm.example.com/dolly", "{left}");
        Ok(())
    })?;
    world.restart_server()
}

/// After the process was killed, acknowledged llamas exist, watches continue, and the dependents of llamas are not
/// garbage-collected.
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
    // A watch receives exactly the missed events, each once.
    let told = missed(world, since)?;
    let expected = ["ADDED", "DELETED"].map(|what| (what.to_owned(), "second".to_owned()));
    ensure!(told == expected, "{told:?}");
    world.kubectl(["get", "configmap", "of-first"]).run()?;
    // The garbage collector does know the owner: the dependent is deleted with it.
    world.kubectl(["delete", "llama", "first"]).run()?;
    world.kubectl(["wait", "--for=delete", "configmap/of-first", "--timeout=120s"]).run()?;
    world.restart_server()
}
