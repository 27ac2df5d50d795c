//! Farm pods, as kubectl sees them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::world::{Following, IMAGE, World};

pub fn are_read(world: &mut World) -> Result<()> {
    world.deploy("web", 2)?;
    let names = world.kubectl(["get", "farmpods", "-l", "app=web", "-o", "name"]).run()?;
    let farm_pod = names.lines().next().context("no farm pod")?;
    let pod = farm_pod.strip_prefix("farmpod.farm.example.com/farm-").context("an odd name")?;
    // The status that a kubelet reports for a container that was killed and runs again.
    let container = json!({
        "name": "pause", "image": IMAGE, "imageID": "", "ready": true, "restartCount": 3,
        "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}},
        "lastState": {"terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z",
        }},
    });
    let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
    let mut watch = Following::start(world.kubectl(["get", "farmpods", "-o", "wide", "-w"]))?;
    let headings = ["NAME", "READY", "STATUS", "RESTARTS", "OWNER", "NODE", "AGE", "REASON"];
    watch.wait_for(&headings)?;
    let patch = status.to_string();
    world.kubectl(["patch", "pod", pod, "--subresource=status", "-p", &patch]).run()?;
    watch.wait_for(&[pod, "1/1", "3 (", " ago)", "web", "Deployment", "OOMKilled"])?;
    let selector = "--field-selector=status.restarts!=0,status.owner.name=web";
    let restarted = world.kubectl(["get", "farmpods", selector, "-o", "name"]).run()?;
    ensure!(restarted.trim() == farm_pod, "{restarted}");
    let shown = world.kubectl(["get", farm_pod, "-o", "json"]).run()?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["spec"] == json!({"pod": pod, "containers": 1}), "{shown}");
    let last_end = json!({
        "container": "pause", "exitCode": 137, "reason": "OOMKilled",
        "time": "2026-01-01T00:00:00Z",
    });
    let status = &shown["status"];
    ensure!(status["lastEnd"] == last_end && status["restarts"] == 3, "{shown}");
    ensure!(status["state"] == "Running" && status["ready"] == "1/1", "{shown}");
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    ensure!(status["owner"] == owner, "{shown}");
    ensure!(shown["metadata"]["labels"]["app"] == "web", "{shown}");
    let refused = world.kubectl(["delete", farm_pod]).output()?;
    ensure!(refused.errors.contains("MethodNotAllowed"), "{}", refused.errors);
    Ok(())
}

/// Pods in every state are shown like kube-apiserver shows them.
pub fn are_shown_as_pods_are(world: &mut World) -> Result<()> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pods.yaml");
    let mut pods: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "meadow"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STATES}});
    let apply = ["apply", "-f", "-"];
    for object in [node, namespace] {
        world.kubectl(apply).input(&object.to_string()).run()?;
    }
    let account = ["get", "serviceaccount", "default", "-n", STATES];
    world.eventually(|| world.kubectl(account).run())?;
    // kube-apiserver sets the time of a deletion itself.
    let mut deleted = Vec::new();
    for metadata in pods.iter_mut().filter_map(|pod| pod["metadata"].as_object_mut()) {
        metadata.remove("deletionGracePeriodSeconds");
        if metadata.remove("deletionTimestamp").is_some() {
            deleted.extend(metadata["name"].as_str().map(str::to_owned));
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string();
    world.kubectl(["create", "-f", "-", "-n", STATES]).input(&list).run()?;
    let replace = ["replace", "--subresource=status", "-f", "-", "-n", STATES];
    world.kubectl(replace).input(&list).run()?;
    for name in &deleted {
        world.kubectl(["delete", "pod", name, "-n", STATES, "--wait=false"]).run()?;
    }
    // The two tables are read sequentially, and ages increase in between.
    let compared = world.eventually(|| {
        let pods_shown = cells(world, "pods")?;
        let farm_pods_shown = cells(world, "farmpods")?;
        for (name, expected) in &pods_shown {
            let shown = farm_pods_shown.get(&format!("farm-{name}"));
            ensure!(shown == Some(expected), "{name}: {expected:?}, but {shown:?}");
        }
        ensure!(pods_shown.len() == farm_pods_shown.len(), "{farm_pods_shown:?}");
        Ok(pods_shown)
    })?;
    ensure!(compared.len() == pods.len(), "{compared:?}");
    let states: Vec<&str> = compared.values().map(|[_, status, _]| status.as_str()).collect();
    for state in ["CrashLoopBackOff", "Init:1/2", "Terminating", "Unknown", "SchedulingGated"] {
        ensure!(states.contains(&state), "no Pod is {state}: {states:?}");
    }
    // Deletes the Pods, and the objects that were created for them.
    let release = json!({"metadata": {"finalizers": null}}).to_string();
    for name in &deleted {
        let patch = ["patch", "pod", name, "-n", STATES, "--type=merge", "-p", &release];
        world.kubectl(patch).run()?;
    }
    let gone = ["delete", "pods", "--all", "-n", STATES, "--grace-period=0", "--force"];
    world.kubectl(gone).run()?;
    world.kubectl(["delete", "namespace", STATES]).run()?;
    world.kubectl(["delete", "node", "meadow"]).run()?;
    Ok(())
}

/// The namespace of the Pods in every state.
const STATES: &str = "states";

/// The cells of each object in the columns that both kinds have.
fn cells(world: &World, resource: &str) -> Result<BTreeMap<String, [String; 3]>> {
    let table = world.kubectl(["get", resource, "-n", STATES]).run()?;
    let mut lines = table.lines();
    let headings = lines.next().context("no table")?;
    // A cell starts below its heading.
    let starts = ["NAME", "READY", "STATUS", "RESTARTS"].map(|heading| headings.find(heading));
    let [Some(name), Some(ready), Some(status), Some(restarts)] = starts else {
        bail!("{headings}")
    };
    let of_restarts = headings[restarts..].find(' ').context("nothing behind the restarts")?;
    let gap = headings[restarts + of_restarts..].find(|c| c != ' ').context("no next column")?;
    let end = restarts + of_restarts + gap;
    let cell = |line: &str, range: std::ops::Range<usize>| {
        line.get(range).unwrap_or_default().trim().to_owned()
    };
    let rows = lines.map(|line| {
        let cells = [ready..status, status..restarts, restarts..end];
        (cell(line, name..ready), cells.map(|range| cell(line, range)))
    });
    Ok(rows.collect())
}

pub fn follow_a_deployment(world: &mut World) -> Result<()> {
    world.deploy("web", 2)?;
    let events = "--output-watch-events";
    let mut watch = Following::start(world.kubectl(["get", "farmpods", "-w", events]))?;
    for _ in 0..2 {
        watch.wait_for(&["ADDED", "farm-web-"])?;
    }
    world.kubectl(["scale", "deployment/web", "--replicas=3"]).run()?;
    world.eventually(|| {
        let name = "farmworkload/farm-web.deploy";
        let readiness = "jsonpath={.spec.kind} {.status.readiness} {.status.pods}";
        let shown = world.kubectl(["get", name, "-o", readiness]).run()?;
        ensure!(shown == "Deployment 0/3 3", "{shown}");
        Ok(())
    })?;
    watch.wait_for(&["ADDED", "farm-web-"])?;
    world.kubectl(["scale", "deployment/web", "--replicas=0"]).run()?;
    for _ in 0..3 {
        watch.wait_for(&["DELETED", "farm-web-"])?;
    }
    let left = world.kubectl(["get", "farmpods"]).output()?;
    // This cluster has no metrics-server, which is allowed: there is no warning.
    ensure!(left.errors == "No resources found in default namespace.\n", "{left:?}");
    Ok(())
}
