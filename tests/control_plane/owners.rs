//! Owners of kinds that the program does not know: an Argo Rollout, and its owner.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::world::{IMAGE, World};

const APPLY: [&str; 3] = ["apply", "-f", "-"];
const POD: &str = "app=rolled";

/// A Pod belongs to a ReplicaSet, the ReplicaSet to a Rollout, and the Rollout to a cluster-scoped App.
pub fn of_any_kind_are_followed(world: &mut World) -> Result<()> {
    world.kubectl(APPLY).input(&definition("rollouts", "Rollout", "Namespaced")).run()?;
    world.kubectl(APPLY).input(&definition("apps", "App", "Cluster")).run()?;
    let app = make(world, "owners.example.com/v1", "App", "shop", &json!({}))?;
    let rollout = make(world, "owners.example.com/v1", "Rollout", "web", &json!({"of": app}))?;
    let labels = json!({"app": "rolled"});
    let pod = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "pause", "image": IMAGE}]},
    });
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": pod});
    make(world, "apps/v1", "ReplicaSet", "rolled", &json!({"of": rollout, "spec": spec}))?;
    // Without permission the chain ends, and there is no warning.
    let known = world.eventually(|| shown(world, &json!(["ReplicaSet/rolled", "Rollout/web"])))?;
    let expected = json!({"apiVersion": "owners.example.com/v1", "kind": "Rollout", "name": "web"});
    ensure!(known["owner"] == expected, "{known}");
    grant(world)?;
    let known = world
        .eventually(|| shown(world, &json!(["ReplicaSet/rolled", "Rollout/web", "App/shop"])))?;
    ensure!(known["owner"]["kind"] == "App", "{known}");
    // A ReplicaSet is not listed as a workload.
    let workloads = world.kubectl(["get", "farmworkloads", "-o", "name"]).run()?;
    ensure!(!workloads.contains("rolled"), "{workloads}");
    world.kubectl(["delete", "replicaset", "rolled"]).run()?;
    for name in ["rollouts", "apps"] {
        let definition = format!("crd/{name}.owners.example.com");
        world.kubectl(["delete", &definition]).run()?;
    }
    world.eventually(|| {
        let left = world.kubectl(["get", "pods", "-l", POD, "-o", "name"]).run()?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

/// The status of the only farm pod, which must have these owners.
fn shown(world: &World, owners: &Value) -> Result<Value> {
    let list = ["get", "farmpods", "-l", POD, "-o", "json"];
    let output = world.kubectl(list).output()?;
    ensure!(output.succeeded && !output.errors.contains("Warning"), "{}", output.errors);
    let list: Value = serde_json::from_str(&output.output)?;
    let status = &list["items"][0]["status"];
    ensure!(status["owners"] == *owners, "{status}");
    Ok(status.clone())
}

fn definition(plural: &str, kind: &str, scope: &str) -> String {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    let names = json!({"plural": plural, "kind": kind});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.owners.example.com")},
        "spec": {
            "group": "owners.example.com", "names": names, "scope": scope, "versions": [version],
        },
    })
    .to_string()
}

/// Creates an object, with the owner in `more` if there is one. Returns a reference to it.
fn make(world: &World, api_version: &str, kind: &str, name: &str, more: &Value) -> Result<Value> {
    let owners: Vec<&Value> = more.get("of").into_iter().collect();
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "ownerReferences": owners},
    });
    if let Some(spec) = more.get("spec") {
        object["spec"] = spec.clone();
    }
    let object = object.to_string();
    // A definition is served shortly after its creation.
    let made = world
        .eventually(|| world.kubectl(["apply", "-f", "-", "-o", "json"]).input(&object).run())?;
    let made: Value = serde_json::from_str(&made)?;
    let uid = made["metadata"]["uid"].as_str().context("no uid")?;
    Ok(json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
    }))
}

/// Allows the server to read the owners, same as the manifests with `--owner-resources`.
fn grant(world: &World) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let resources = ["rollouts", "apps"];
    let role = json!({
        "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "owners"},
        "rules": [{
            "apiGroups": ["owners.example.com"], "resources": resources, "verbs": ["list", "watch"],
        }],
    });
    let name = "farm-operator";
    let binding = json!({
        "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "owners"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owners"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}],
    });
    for object in [role, binding] {
        world.kubectl(APPLY).input(&object.to_string()).run()?;
    }
    Ok(())
}
