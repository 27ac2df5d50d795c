//! Compares the discovery documents of built-in kinds: each resource of our server without a cluster must be that of
//! kube-apiserver, with its verbs, names and categories.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::server::{Sent, Server};

/// The resources of kube-apiserver that our server does not have. The list may only become shorter.
const MISSING: &[&str] = &[
    "admissionregistration.k8s.io/v1 mutatingadmissionpolicies",
    "admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings",
    "v1 componentstatuses",
    "v1 nodes/proxy",
    "v1 pods/attach",
    "v1 pods/ephemeralcontainers",
    "v1 pods/exec",
    "v1 pods/portforward",
    "v1 pods/proxy",
    "v1 pods/resize",
    "v1 services/proxy",
];

/// Resources that differ on purpose. kube-apiserver stores definitions as `v1beta1`, so their hash is another one.
const DIFFERENT: &[&str] = &["apiextensions.k8s.io/v1 customresourcedefinitions"];

/// The resources of a server, by group version and name.
type Resources = BTreeMap<String, Value>;

/// Compares the documents. Returns the differences as text.
///
/// # Errors
/// When a document cannot be read.
pub async fn compare(reference: &Server, other: &Server) -> Result<String> {
    let (there, here) = (resources(reference).await?, resources(other).await?);
    let mut report = String::new();
    let (mut missing, mut different) = (BTreeSet::new(), BTreeSet::new());
    for (name, theirs) in &there {
        match here.get(name) {
            None => drop(missing.insert(name.as_str())),
            Some(ours) if ours != theirs => {
                different.insert(name.as_str());
                if !DIFFERENT.contains(&name.as_str()) {
                    let _ = writeln!(report, "{name}\n  kube-apiserver {theirs}\n  ours {ours}");
                }
            }
            Some(_) => {}
        }
    }
    for name in here.keys().filter(|name| !there.contains_key(*name)) {
        let _ = writeln!(report, "only our server has {name}");
    }
    report_changes(&mut report, "missing", &missing, MISSING);
    report_changes(&mut report, "different", &different, DIFFERENT);
    Ok(report)
}

/// Reports the resources that are not in the list of known ones, and the known ones that are not found.
fn report_changes(report: &mut String, what: &str, found: &BTreeSet<&str>, known: &[&str]) {
    for name in found.iter().filter(|name| !known.contains(*name)) {
        let _ = writeln!(report, "{what}: {name}");
    }
    for name in known.iter().filter(|name| !found.contains(*name)) {
        let _ = writeln!(report, "not {what} any more: {name}");
    }
}

/// Returns the resources of all groups of Kubernetes.
async fn resources(server: &Server) -> Result<Resources> {
    let mut resources = Resources::new();
    let groups = get(server, "/apis").await?;
    let mut versions = vec!["v1".to_owned()];
    for group in groups["groups"].as_array().context("groups")? {
        let name = group["name"].as_str().context("a group has a name")?;
        if name.ends_with(".k8s.io") || !name.contains('.') {
            let all = group["versions"].as_array().context("versions")?;
            let all = all.iter().filter_map(|version| version["groupVersion"].as_str());
            versions.extend(all.map(str::to_owned));
        }
    }
    for version in versions {
        let root = if version.contains('/') { "apis" } else { "api" };
        let document = get(server, &format!("/{root}/{version}")).await?;
        for resource in document["resources"].as_array().context("resources")? {
            let name = resource["name"].as_str().context("a resource has a name")?;
            resources.insert(format!("{version} {name}"), resource.clone());
        }
    }
    Ok(resources)
}

async fn get(server: &Server, path: &str) -> Result<Value> {
    let (method, path) = ("GET".to_owned(), path.to_owned());
    let answer = server.ask(&Sent { method, path: path.clone(), ..Sent::default() }).await?;
    ensure!(answer.status == 200, "{}: {path}: {}", server.name(), answer.status);
    Ok(answer.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_known_resources_may_only_become_shorter() {
        let mut report = String::new();
        report_changes(&mut report, "missing", &BTreeSet::from(["a", "b"]), &["b", "c"]);
        assert_eq!(report, "missing: a\nnot missing any more: c\n");
    }
}
