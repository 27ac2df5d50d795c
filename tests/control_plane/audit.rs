//! The audit logs of kube-apiserver and of farm-operator.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Programs};

use crate::world::World;

const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
    {"level": "RequestResponse", "resources": [{"group": "farm.example.com"}]}, {"level": "None"}
]}"#;

/// A request has the same audit id in both logs. Only farm-operator's has the bodies, and the name of a created object:
/// kube-apiserver does not read the bodies of requests that it forwards.
pub fn logs_share_their_ids(_: &mut World) -> Result<()> {
    let control_plane = ControlPlane::start_audited(&Programs::find()?, POLICY)?;
    let folder = control_plane.folder().to_owned();
    let (policy, log) =
        (folder.join("farm-operator-policy.json"), folder.join("farm-operator-audit.log"));
    std::fs::write(&policy, POLICY)?;
    let policy = format!("--audit-policy-file={}", policy.display());
    let path = format!("--audit-log-path={}", log.display());
    let world = World::start_on(control_plane, &[&policy, &path])?;
    let llama = json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "metadata": {"name": "audited"},
        "spec": {"weight": 100, "height": 2},
    });
    world.kubectl(["create", "-f", "-"]).input(&llama.to_string()).run()?;
    let ours = world.eventually(|| created(&log))?;
    let theirs = world.eventually(|| created(&world.control_plane.audit_log()))?;
    for member in ["auditID", "verb", "user", "requestURI", "sourceIPs", "responseStatus/code"] {
        let path = format!("/{member}");
        let (ours, theirs) = (ours.pointer(&path), theirs.pointer(&path));
        ensure!(ours.is_some() && ours == theirs, "{member}: {ours:?}, kube-apiserver: {theirs:?}");
    }
    ensure!(ours["objectRef"]["name"] == "audited", "{ours}");
    ensure!(theirs["objectRef"]["name"].is_null(), "{theirs}");
    for body in ["requestObject", "responseObject"] {
        ensure!(ours[body]["spec"]["weight"] == 100, "{ours}");
        ensure!(theirs[body].is_null(), "{theirs}");
    }
    Ok(())
}

/// The event of the completed create of the llama.
fn created(log: &Path) -> Result<Value> {
    let events = std::fs::read_to_string(log)?;
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut completed = events.filter(|event| {
        event["verb"] == "create"
            && event["stage"] == "ResponseComplete"
            && event["objectRef"]["resource"] == "llamas"
    });
    completed.next().with_context(|| format!("no create in {}", log.display()))
}
