//! The work of the rest of the cluster, which must continue whatever happens to this server.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{Stage, llama, namespace};

/// A part of kubectl's message about an unavailable server, once for each of its versions.
pub const NOTICED: &str = "farm.example.com/v1";

const NAMESPACES: &str = "/api/v1/namespaces";

/// Work for a cluster: a namespace to delete, an object whose owner was deleted, and a quota to count.
pub struct Work {
    stays: String,
    goes: String,
}

/// Creates a namespace with a llama, to be deleted later.
pub fn herd(stage: &Stage, name: &str) -> Result<String> {
    let herd = format!("{name}-herd");
    stage.create(&json!([namespace(&herd), llama(&herd, "shaun")]))?;
    Ok(herd)
}

impl Work {
    pub fn give(stage: &Stage, name: &str) -> Result<Self> {
        let (stays, goes) = (format!("{name}-stays"), format!("{name}-goes"));
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": stays},
            "spec": {"hard": {"count/secrets": "5"}},
        });
        stage.create(&json!([namespace(&stays), namespace(&goes), quota]))?;
        // kube-controller-manager does not recount deleted objects before a quota has a status.
        stage.world.eventually(|| {
            let quota = quota_of(stage, &stays)?;
            ensure!(quota["status"]["used"] == json!({"count/secrets": "0"}), "{quota}");
            Ok(())
        })?;
        stage.create(&json!([
            secret(&stays, "kept"),
            secret(&stays, "owner"),
            secret(&goes, "content"),
        ]))?;
        let owner = stage.get(&format!("{NAMESPACES}/{stays}/secrets/owner"))?;
        stage.create(&owned_by(&owner, &stays, "owned"))?;
        stage.kubectl(["delete", "secret", "owner", "-n", &stays, "--wait=false"]).run()?;
        Ok(Self { stays, goes })
    }

    /// Deletes one of the namespaces.
    pub fn delete_namespace(&self, stage: &Stage) -> Result<()> {
        delete_namespace(stage, &self.goes)
    }

    /// Waits until the object without an owner is garbage-collected, and the quota is recounted.
    pub fn is_collected_and_counted(&self, stage: &Stage) -> Result<()> {
        stage.world.eventually(|| {
            let secrets = secrets(stage, &self.stays)?;
            ensure!(secrets == ["kept"], "not collected: {secrets:?}");
            Ok(())
        })?;
        stage.world.eventually(|| {
            let quota = quota_of(stage, &self.stays)?;
            ensure!(quota["status"]["used"] == json!({"count/secrets": "1"}), "{quota}");
            Ok(())
        })
    }

    /// Waits until the deleted namespace is empty except for objects that cannot be listed.
    pub fn waits_for_us(&self, stage: &Stage) -> Result<()> {
        stage.world.eventually(|| {
            let content = secrets(stage, &self.goes)?;
            ensure!(content.is_empty(), "{content:?}");
            Ok(())
        })?;
        is_held_by_discovery(stage, &self.goes)
    }

    /// Waits until kube-controller-manager reports, in a condition of this type, why the deletion is blocked.
    pub fn waits(&self, stage: &Stage, condition_type: &str, why: &str) -> Result<()> {
        is_held(stage, &self.goes, condition_type, why)
    }

    /// Waits until all work is done, and removes its objects.
    pub fn finish(self, stage: &Stage) -> Result<()> {
        self.is_collected_and_counted(stage)?;
        is_gone(stage, &self.goes)?;
        delete_namespace(stage, &self.stays)
    }
}

pub fn delete_namespace(stage: &Stage, name: &str) -> Result<()> {
    stage.kubectl(["delete", "namespace", name, "--wait=false"]).run()?;
    Ok(())
}

/// Waits until kube-controller-manager reports that the deletion waits for the discovery of the server's group.
pub fn is_held_by_discovery(stage: &Stage, name: &str) -> Result<()> {
    is_held(stage, name, "NamespaceDeletionDiscoveryFailure", NOTICED)
}

/// Waits until kube-controller-manager reports, in a condition of this type, why a namespace remains.
pub fn is_held(stage: &Stage, name: &str, condition_type: &str, why: &str) -> Result<()> {
    stage.world.eventually(|| {
        has_failure(&stage.get(&format!("{NAMESPACES}/{name}"))?, condition_type, why)
    })
}

/// Same as `is_held`, but the namespace may also be deleted. Each minute kube-apiserver asks one replica for its kinds,
/// and the controller does not search for objects of other kinds. Returns whether the namespace remains.
pub fn is_held_or_gone(stage: &Stage, name: &str, condition_type: &str, why: &str) -> Result<bool> {
    stage.world.eventually(|| match stage.find(&format!("{NAMESPACES}/{name}"))? {
        Some(found) => has_failure(&found, condition_type, why).map(|()| true),
        None => Ok(false),
    })
}

fn has_failure(namespace: &Value, condition_type: &str, why: &str) -> Result<()> {
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let failure = conditions.iter().find(|condition| {
        condition["type"] == condition_type
            && condition["status"] == "True"
            && condition["message"].as_str().is_some_and(|said| said.contains(why))
    });
    ensure!(failure.is_some(), "{namespace}");
    Ok(())
}

pub fn is_gone(stage: &Stage, name: &str) -> Result<()> {
    stage.world.eventually(|| {
        let found = stage.find(&format!("{NAMESPACES}/{name}"))?;
        ensure!(found.is_none(), "it is still there: {found:?}");
        Ok(())
    })
}

/// Checks that kubectl succeeds without errors.
pub fn is_silent(stage: &Stage) -> Result<()> {
    for arguments in [&["get", "all", "-A"][..], &["api-resources"]] {
        // The discovery cache of kube-apiserver is updated with a short delay.
        stage.world.eventually(|| {
            let printed = stage.fresh_kubectl(arguments)?;
            ensure!(printed.succeeded && printed.errors.is_empty(), "{arguments:?}: {printed:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Checks that all work continues without a visible effect.
pub fn is_undisturbed(stage: &Stage, name: &str) -> Result<()> {
    let herd = herd(stage, name)?;
    delete_namespace(stage, &herd)?;
    is_undisturbed_without_llamas(stage, name)?;
    is_gone(stage, &herd)
}

/// Same as `is_undisturbed`, without llamas.
pub fn is_undisturbed_without_llamas(stage: &Stage, name: &str) -> Result<()> {
    let work = Work::give(stage, name)?;
    work.delete_namespace(stage)?;
    is_silent(stage)?;
    work.finish(stage)
}

fn quota_of(stage: &Stage, namespace: &str) -> Result<Value> {
    stage.get(&format!("{NAMESPACES}/{namespace}/resourcequotas/few"))
}

/// The names of the Secrets of a namespace.
pub fn secrets(stage: &Stage, namespace: &str) -> Result<Vec<String>> {
    let found = stage.get(&format!("{NAMESPACES}/{namespace}/secrets"))?;
    let items = found["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect())
}

/// A Secret that is owned by another object.
pub fn owned_by(owner: &Value, namespace: &str, name: &str) -> Value {
    let mut owned = secret(namespace, name);
    let owner = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    });
    owned["metadata"]["ownerReferences"] = json!([owner]);
    owned
}

fn secret(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
    })
}
