//! The controllers of kube-controller-manager: garbage collector, quotas, deletion of namespaces.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{World, database, expect_refusal};

impl World<'_> {
    pub(super) fn owners(&self) -> Result<()> {
        let dependent = |name: &str, owner: &Value, kind: &str, version: &str| {
            json!([{
                "apiVersion": version, "kind": kind, "name": name, "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": true,
            }])
        };
        for (cascade, survives) in [("background", false), ("foreground", false), ("orphan", true)]
        {
            self.with_input("create -f -", &database(cascade, &json!({})))?;
            let owner = self.get(&format!("database {cascade}"))?;
            let owners = dependent(cascade, &owner, "Database", "apps.example.com/v1");
            let name = format!("of-{cascade}");
            let metadata = json!({"name": name, "ownerReferences": owners});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            self.with_input("create -f -", &map.to_string())?;
            // The garbage collector has to know the kind first.
            self.eventually(|| {
                self.kubectl(&format!(
                    "delete database {cascade} --cascade={cascade} --timeout=90s"
                ))
                .map(drop)
                .or_else(|_| self.is_gone(&format!("database {cascade}")))
            })?;
            self.is_gone(&format!("configmap databases.{cascade}"))?;
            match survives {
                true => drop(self.kubectl(&format!("delete configmap {name}"))?),
                false => self.is_gone(&format!("configmap {name}"))?,
            }
        }
        self.kubectl("create configmap owner")?;
        let owners = dependent("owner", &self.get("configmap owner")?, "ConfigMap", "v1");
        let metadata = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
        self.with_input("create -f -", &database("owned", &metadata))?;
        self.kubectl("delete configmap owner")?;
        self.is_gone("database owned")?;
        self.is_gone("configmap databases.owned")
    }

    /// kube-controller-manager counts the objects, and the server enforces the limit.
    pub(super) fn quotas(&self) -> Result<()> {
        self.kubectl("create namespace counted")?;
        self.with_input("create -n counted -f -", &database("a", &json!({})))?;
        self.kubectl("create quota one -n counted --hard=count/databases.apps.example.com=5")?;
        // The controller counts the objects of its informer, which may be behind. A change of the limits causes a new count.
        let mut limit = 5;
        self.eventually(|| {
            limit += 1;
            let hard = json!({"count/databases.apps.example.com": limit.to_string()});
            let patch = json!({"spec": {"hard": hard}});
            self.kubectl(&format!("patch quota one -n counted -p {patch}"))?;
            let used = self.get("quota one -n counted")?["status"]["used"].clone();
            ensure!(used == json!({"count/databases.apps.example.com": "1"}), "{used:?}");
            Ok(())
        })?;
        let hard = json!({"spec": {"hard": {"count/databases.apps.example.com": "1"}}});
        self.kubectl(&format!("patch quota one -n counted -p {hard}"))?;
        let second = database("b", &json!({}));
        self.eventually(|| {
            let refused = self.output("create -n counted -f -", Some(&second))?;
            expect_refusal(&refused, "exceeded quota: one")
        })?;
        self.kubectl("delete namespace counted")?;
        Ok(())
    }

    /// The finalizers of an object are respected although its ConfigMap is deleted with the namespace.
    pub(super) fn namespaces(&self) -> Result<()> {
        self.kubectl("create namespace left")?;
        let metadata = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        self.with_input("create -n left -f -", &database("held", &metadata))?;
        self.with_input("create -n left -f -", &database("free", &json!({})))?;
        self.kubectl("delete namespace left --wait=false")?;
        self.eventually(|| {
            let databases = self.get("databases -n left")?;
            let databases = databases["items"].as_array().cloned().unwrap_or_default();
            ensure!(databases.len() == 1, "{databases:?}");
            ensure!(databases[0]["metadata"]["deletionTimestamp"].is_string(), "{databases:?}");
            self.get("configmap databases.held -n left")
        })?;
        let patch = "{\"metadata\":{\"finalizers\":null}}";
        self.kubectl(&format!("patch database held -n left --type=merge -p {patch}"))?;
        self.kubectl("wait --for=delete namespace/left --timeout=90s")?;
        Ok(())
    }

    /// There is no namespace, or kube-apiserver refuses the ConfigMap.
    pub(super) fn refusals(&self) -> Result<()> {
        let missing = self.output("create -n missing -f -", Some(&database("a", &json!({}))))?;
        expect_refusal(&missing, "namespaces \"missing\" not found")?;
        self.kubectl("create namespace full")?;
        self.kubectl("create quota none -n full --hard=configmaps=0")?;
        self.kubectl("wait --for=jsonpath={.status.hard.configmaps}=0 quota/none -n full")?;
        let refused = self.output("create -n full -f -", Some(&database("a", &json!({}))))?;
        expect_refusal(&refused, "exceeded quota: none")?;
        let spec = json!({"spec": {"engine": "postgres", "size": "x".repeat(1_100_000)}});
        let large = self.output("create -f -", Some(&database("large", &spec)))?;
        expect_refusal(&large, "may not be more than 1048576 bytes")?;
        self.kubectl("delete namespace full")?;
        Ok(())
    }
}
