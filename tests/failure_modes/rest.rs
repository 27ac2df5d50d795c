//! What the rest of the cluster has to do, whatever becomes of us.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{Stage, llama, namespace};

/// What a server of ours that is not there makes kubectl say, of each of its versions.
pub const NOTICED: &str = "farm.example.com/v1";

const NAMESPACES: &str = "/api/v1/namespaces";

/// Work that was given to a cluster: a namespace to delete, an object whose owner has gone, a
/// quota to count.
pub struct Work {
    stays: String,
    goes: String,
}

/// Namespaces with a llama and without, to be deleted later.
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
        // kube-controller-manager does not count anew for what goes before a quota has a status.
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

    /// What has no owner any more is collected, and quota is counted anew for it.
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

    /// Of namespaces that are deleted everything goes but what nobody can know of.
    pub fn waits_for_us(&self, stage: &Stage) -> Result<()> {
        stage.world.eventually(|| {
            let content = secrets(stage, &self.goes)?;
            ensure!(content.is_empty(), "{content:?}");
            Ok(())
        })?;
        is_held_by_discovery(stage, &self.goes)
    }

    /// kube-controller-manager says, in a condition of this type, why it cannot go on.
    pub fn waits(&self, stage: &Stage, condition_type: &str, why: &str) -> Result<()> {
        is_held(stage, &self.goes, condition_type, why)
    }

    /// Waits until all is done, and removes it.
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

/// kube-controller-manager says that it waits for discovery of our group.
pub fn is_held_by_discovery(stage: &Stage, name: &str) -> Result<()> {
    is_held(stage, name, "NamespaceDeletionDiscoveryFailure", NOTICED)
}

/// kube-controller-manager says, in a condition of this type, why a namespace stays.
pub fn is_held(stage: &Stage, name: &str, condition_type: &str, why: &str) -> Result<()> {
    stage.world.eventually(|| {
        has_failure(&stage.get(&format!("{NAMESPACES}/{name}"))?, condition_type, why)
    })
}

/// The same, or the namespace is gone: each minute kube-apiserver asks a replica which kinds it serves, and the
/// controller does not look for the objects of other kinds.
pub fn is_held_or_gone(stage: &Stage, name: &str, condition_type: &str, why: &str) -> Result<()> {
    stage.world.eventually(|| match stage.find(&format!("{NAMESPACES}/{name}"))? {
        Some(found) => has_failure(&found, condition_type, why),
        None => Ok(()),
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

/// kubectl finds everything, and nothing to complain of.
pub fn is_silent(stage: &Stage) -> Result<()> {
    for arguments in [&["get", "all", "-A"][..], &["api-resources"]] {
        // kube-apiserver's list of everything follows what it finds by a moment.
        stage.world.eventually(|| {
            let printed = stage.fresh_kubectl(arguments)?;
            ensure!(printed.succeeded && printed.errors.is_empty(), "{arguments:?}: {printed:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Everything goes on, and nobody notices anything.
pub fn is_undisturbed(stage: &Stage, name: &str) -> Result<()> {
    let herd = herd(stage, name)?;
    delete_namespace(stage, &herd)?;
    is_undisturbed_without_llamas(stage, name)?;
    is_gone(stage, &herd)
}

/// The same where nobody knows of llamas.
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

/// A Secret that goes with another object.
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
