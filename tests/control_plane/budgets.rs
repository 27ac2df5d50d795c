//! Compares the budgets in farm pods with the evictions of kube-apiserver.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, Error};
use serde_json::{Value, json};
use test_server::client_without_retries;

use crate::world::{IMAGE, World};

const APPLY: [&str; 3] = ["apply", "-f", "-"];

/// One of two ready Pods has an owner that cannot be scaled, so the expected number of Pods is unknown. A budget with a
/// percentage is then never counted, and nothing is evicted.
pub fn that_cannot_be_counted_allow_nothing(world: &mut World) -> Result<()> {
    let held = world.kubectl(["create", "configmap", "holder", "-o", "json"]).run()?;
    let held: Value = serde_json::from_str(&held)?;
    let holder = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "controller": true,
        "uid": held["metadata"]["uid"],
    });
    make_ready(world, "unscaled", &json!([holder]))?;
    make_ready(world, "counted", &json!([]))?;
    for (name, amount) in [("unscaled", "--max-unavailable=1"), ("counted", "--min-available=0")] {
        let selector = format!("--selector=app={name}");
        world.kubectl(["create", "pdb", name, &selector, amount]).run()?;
    }
    for (name, shown, refusal) in [
        // kube-apiserver reports zero allowed disruptions for this budget, because it has not been counted.
        (
            "unscaled",
            json!([{"name": "unscaled"}, 0]),
            Some("The disruption budget unscaled is still being processed by the server."),
        ),
        ("counted", json!([{"name": "counted", "disruptionsAllowed": 1}, 1]), None),
    ] {
        world.eventually(|| {
            let budget = world.kubectl(["get", "pdb", name, "-o", "json"]).run()?;
            let budget: Value = serde_json::from_str(&budget)?;
            let condition = &budget["status"]["conditions"][0];
            let reason = if refusal.is_some() { "SyncFailed" } else { "SufficientPods" };
            ensure!(condition["reason"] == reason, "{budget}");
            let one = format!("farmpod/farm-{name}");
            let farm_pod = world.kubectl(["get", &one, "-o", "json"]).run()?;
            let status = &serde_json::from_str::<Value>(&farm_pod)?["status"];
            let is = json!([status["budgets"][0], status["disruptionsAllowed"]]);
            ensure!(is == shown, "{is}, and {budget}");
            Ok(())
        })?;
        let evicted = evict(world, name)?;
        ensure!(evicted == refusal.map(str::to_owned), "{name}: {evicted:?}");
    }
    world.kubectl(["delete", "pdb/unscaled", "pdb/counted", "configmap/holder"]).run()?;
    // One of the Pods is deleted with its owner, and the other one may have been evicted.
    let pods = [
        "delete",
        "pod",
        "unscaled",
        "counted",
        "--ignore-not-found",
        "--grace-period=0",
        "--force",
    ];
    world.kubectl(pods).run()?;
    Ok(())
}

/// Creates a Pod with the status of a Pod that a kubelet runs.
fn make_ready(world: &World, name: &str, owners: &Value) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "pause", "image": IMAGE}]},
    });
    world.kubectl(APPLY).input(&pod.to_string()).run()?;
    let status = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let patch = status.to_string();
    world.kubectl(["patch", "pod", name, "--subresource=status", "-p", &patch]).run()?;
    Ok(())
}

/// The reason why kube-apiserver would not evict a Pod; `None` if it would. kubectl would retry for more than a minute.
fn evict(world: &World, name: &str) -> Result<Option<String>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        // The test expects the rejection.
        let client = client_without_retries(&world.control_plane.kubeconfig()).await?;
        let pods: Api<Pod> = Api::default_namespaced(client);
        let delete_options = Some(DeleteParams { dry_run: true, ..DeleteParams::default() });
        let options = EvictParams { delete_options, ..EvictParams::default() };
        match pods.evict(name, &options).await {
            Ok(_) => Ok(None),
            Err(Error::Api(status)) => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                Ok(causes.into_iter().next().map(|cause| cause.message))
            }
            Err(error) => Err(error.into()),
        }
    })
}
