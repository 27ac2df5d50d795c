//! How lists of built-in kinds are merged: the table of facts that standalone
//! has, held against what kube-apiserver publishes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::server::{Sent, Server};

/// Where the kinds are published, and which are in the table.
const KINDS: [(&str, &[&str]); 6] = [
    (
        "api/v1",
        &["ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount"],
    ),
    ("apis/apps/v1", &["Deployment", "ReplicaSet"]),
    ("apis/batch/v1", &["CronJob", "Job"]),
    ("apis/apiregistration.k8s.io/v1", &["APIService"]),
    ("apis/coordination.k8s.io/v1", &["Lease"]),
    ("apis/discovery.k8s.io/v1", &["EndpointSlice"]),
];
const HEAD: &str = "\
# How strategic merge patches merge the members of built-in kinds: facts, as
# kube-apiserver publishes them, and nothing else. A line is a type, a field,
# `of` the type that is in it, `by` the key of its items, `union` where items are
# texts, and `retainKeys`. Made by `BLESS=1 cargo test -p oracle -- merge`.
";

type Types = BTreeMap<String, BTreeMap<String, String>>;

/// The table.
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../standalone/src/built_in/merge_keys.txt")
}

/// Compares the table with what is published; with `BLESS=1` it is written anew.
///
/// # Errors
/// When nothing is published, or the table cannot be read.
pub async fn compare(reference: &Server) -> Result<String> {
    let mut types = Types::new();
    for (path, kinds) in KINDS {
        let path = format!("/openapi/v3/{path}");
        let sent = Sent { method: "GET".to_owned(), path: path.clone(), ..Sent::default() };
        let answer = reference.ask(&sent).await?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        let schemas = answer.body["components"]["schemas"].clone();
        for kind in kinds {
            let name = schemas.as_object().into_iter().flatten().map(|(name, _)| name);
            let of_kind = |name: &&String| {
                schemas[name.as_str()]["x-kubernetes-group-version-kind"][0]["kind"] == **kind
                    && name.rsplit('.').next() == Some(kind)
            };
            let name = name.into_iter().find(of_kind).with_context(|| format!("no {kind}"))?;
            walk(&schemas, name, &mut types);
        }
    }
    // What leads to nothing that is merged need not be said.
    loop {
        let size = |types: &Types| (types.len(), types.values().map(BTreeMap::len).sum::<usize>());
        let before = size(&types);
        let known: Vec<String> = types.keys().cloned().collect();
        for fields in types.values_mut() {
            fields.retain(|_, how| {
                let leads =
                    how.strip_prefix("of ").map(|rest| rest.split(' ').next().unwrap_or(rest));
                how.contains(" by ")
                    || how.contains("retainKeys")
                    || how.starts_with("by ")
                    || how.starts_with("union")
                    || leads.is_some_and(|leads| known.iter().any(|one| one == leads))
            });
        }
        types.retain(|_, fields| !fields.is_empty());
        if size(&types) == before {
            break;
        }
    }
    let mut table = HEAD.to_owned();
    for (name, fields) in &types {
        for (field, how) in fields {
            // What is known to lead nowhere is a leaf.
            let how = match how.strip_prefix("of ").map(|rest| rest.split_once(' ')) {
                Some(Some((leads, rest))) if !types.contains_key(leads) => rest.to_owned(),
                Some(None) if !types.contains_key(&how[3..]) => continue,
                _ => how.clone(),
            };
            let _ = writeln!(table, "{name} {field} {how}");
        }
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file(), &table)?;
    }
    let kept = std::fs::read_to_string(file())?;
    Ok(if kept == table { String::new() } else { format!("the table should be\n{table}") })
}

fn walk(schemas: &Value, name: &str, types: &mut Types) {
    let short = short(name);
    if types.contains_key(&short) {
        return;
    }
    types.insert(short.clone(), BTreeMap::new());
    let properties = schemas[name]["properties"].as_object().cloned().unwrap_or_default();
    for (field, property) in properties {
        let inner = [&property, &property["items"]].into_iter().find_map(reference);
        let mut words = Vec::new();
        if let Some(inner) = &inner {
            walk(schemas, inner, types);
            words.push(format!("of {}", self::short(inner)));
        }
        let strategy = property["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        let merges = strategy.split(',').any(|one| one == "merge");
        match property["x-kubernetes-patch-merge-key"].as_str() {
            Some(key) if merges => words.push(format!("by {key}")),
            None if merges => words.push("union".to_owned()),
            _ => {}
        }
        if strategy.split(',').any(|one| one == "retainKeys") {
            words.push("retainKeys".to_owned());
        }
        if !words.is_empty() {
            types.entry(short.clone()).or_default().insert(field, words.join(" "));
        }
    }
}

fn reference(schema: &Value) -> Option<String> {
    let path = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    Some(path.rsplit('/').next()?.to_owned())
}

fn short(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}
