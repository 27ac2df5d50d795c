//! Farm pods, as kubectl sees them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::world::{Following, IMAGE, World};

pub fn are_read(world: &mut World) -> Result<()> {
    world.deploy("web", 2)?;
    let names = world.kubectl(["get", "farmpods", "-l", "app=web", "-o", "name"]).run()?;
    let farm_pod = names.lines().next().context("no farm pod")?;
    let pod = farm_pod.strip_prefix("farmpod.farm.example.com/farm-").context("an odd name")?;
    // What a kubelet says of a container that was killed and runs again.
    let container = json!({
        "name": "pause", "image": IMAGE, "imageID": "", "ready": true, "restartCount": 3,
        "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}},
        "lastState": {"terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z",
        }},
    });
    let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
    let mut watch = Following::start(world.kubectl(["get", "farmpods", "-o", "wide", "-w"]))?;
    watch.wait_for(&[
        "NAME",
        "CONTAINERS",
        "READY",
        "RESTARTS",
        "OWNER",
        "AGE",
        "NODE",
        "REASON",
    ])?;
    let patch = status.to_string();
    world.kubectl(["patch", "pod", pod, "--subresource=status", "-p", &patch]).run()?;
    watch.wait_for(&[pod, "1/1", "3 (", " ago)", "web", "Deployment", "OOMKilled"])?;
    let selector = "--field-selector=status.restarts!=0,status.owner.name=web";
    let restarted = world.kubectl(["get", "farmpods", selector, "-o", "name"]).run()?;
    ensure!(restarted.trim() == farm_pod, "{restarted}");
    let shown = world.kubectl(["get", farm_pod, "-o", "json"]).run()?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["spec"] == json!({"containers": 1}), "{shown}");
    let expected = json!({
        "phase": "Running", "ready": "1/1", "restarts": 3,
        "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "lastRestart": {
            "container": "pause", "exitCode": 137, "reason": "OOMKilled",
            "time": "2026-01-01T00:00:00Z",
        },
    });
    ensure!(shown["status"] == expected, "{shown}");
    ensure!(shown["metadata"]["labels"]["app"] == "web", "{shown}");
    let refused = world.kubectl(["delete", farm_pod]).output()?;
    ensure!(refused.errors.contains("MethodNotAllowed"), "{}", refused.errors);
    Ok(())
}

pub fn follow_a_deployment(world: &mut World) -> Result<()> {
    world.deploy("web", 2)?;
    let events = "--output-watch-events";
    let mut watch = Following::start(world.kubectl(["get", "farmpods", "-w", events]))?;
    for _ in 0..2 {
        watch.wait_for(&["ADDED", "farm-web-"])?;
    }
    world.kubectl(["scale", "deployment/web", "--replicas=3"]).run()?;
    watch.wait_for(&["ADDED", "farm-web-"])?;
    world.kubectl(["scale", "deployment/web", "--replicas=0"]).run()?;
    for _ in 0..3 {
        watch.wait_for(&["DELETED", "farm-web-"])?;
    }
    let left = world.kubectl(["get", "farmpods"]).output()?;
    ensure!(left.errors == "No resources found in default namespace.\n", "{left:?}");
    Ok(())
}
