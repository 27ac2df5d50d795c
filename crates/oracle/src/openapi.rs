//! Compares OpenAPI documents. Paths, operations and schemas that both servers document must be equal. Additional ones
//! of kube-apiserver must belong to features that are not implemented.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::answer::Answer;
use crate::compare::compare as compare_values;
use crate::row::GROUP;
use crate::server::{Sent, Server};

/// A patch type that is not implemented: docs/reference/differences.md.
const NOT_SERVED: &str = "application/apply-patch+yaml";

/// Compares the documents. Returns the differences as text.
pub async fn compare(reference: &Server, other: &Server) -> Result<String> {
    let mut report = String::new();
    for version in ["v1", "v1beta1"] {
        let path = format!("/openapi/v3/apis/{GROUP}/{version}");
        let (there, here) = (get(reference, &path).await?, get(other, &path).await?);
        differ("paths", &there, &here, &mut report);
        differ("components.schemas", &there, &here, &mut report);
    }
    let there = resolved(get(reference, "/openapi/v2").await?);
    let here = get(other, "/openapi/v2").await?;
    differ("paths", &there, &here, &mut report);
    differ("definitions", &there, &here, &mut report);
    check_hashes(other).await?;
    Ok(report)
}

/// Compares the schemas of built-in kinds, except for their descriptions and enumerations.
pub async fn compare_built_in(reference: &Server, other: &Server) -> Result<String> {
    let mut report = String::new();
    let index = get(other, "/openapi/v3").await?;
    let paths = index["paths"].as_object().context("paths")?.keys();
    // Other rows create and delete definitions at the same time.
    for path in paths.filter(|path| !path.contains(".example.com/")) {
        let path = format!("/openapi/v3/{path}");
        let (there, here) = (get(reference, &path).await?, get(other, &path).await?);
        let schemas = |document: &Value| document["components"]["schemas"].clone();
        let (there, here) = (schemas(&there), schemas(&here));
        for (name, ours) in here.as_object().context("schemas")? {
            // Every document of our server contains the schemas of the common responses.
            if there[name].is_null() && name.contains(".apimachinery.pkg.apis.meta.") {
                continue;
            }
            let theirs = without_words(there[name].clone());
            let ours = without_words(ours.clone());
            let compared = compare_values(theirs, ours, &[])?;
            if let Some(difference) = compared.difference {
                let difference = difference.to_text("kube-apiserver", "we");
                let _ = write!(report, "{path} {name}: {difference}");
            }
        }
    }
    Ok(report)
}

fn without_words(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            // A property can have the same name.
            members.retain(|key, value| match key.as_str() {
                "description" => !value.is_string(),
                "enum" => !value.is_array(),
                "x-kubernetes-group-version-kind" => false,
                // `granular` is the default of maps.
                "x-kubernetes-map-type" => value != "granular",
                // Nothing reads this extension any more.
                "x-kubernetes-unions" => false,
                _ => true,
            });
            for member in members.values_mut() {
                *member = without_words(member.take());
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = without_words(item.take()));
        }
        _ => {}
    }
    value
}

async fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (method, path) = ("GET".to_owned(), path.to_owned());
    server.ask(&Sent { method, path, headers: headers.collect(), ..Sent::default() }).await
}

async fn get(server: &Server, path: &str) -> Result<Value> {
    let answer = ask(server, path, &[("accept", "application/json")]).await?;
    ensure!(answer.status == 200, "{}: {path}: {}", server.name(), answer.status);
    Ok(answer.body)
}

/// Compares all entries of a part of our document with the reference.
fn differ(part: &str, there: &Value, here: &Value, report: &mut String) {
    let pick =
        |document: &Value| part.split('.').fold(document.clone(), |one, step| one[step].clone());
    let (there, here) = (pick(there), pick(here));
    let is_ours = |name: &str| name.contains(GROUP) || name.contains("com.example.oracle.");
    for (name, ours) in here.as_object().into_iter().flatten() {
        let theirs = there.get(name).cloned().unwrap_or_default();
        let (theirs, ours) = (without_unserved(theirs), without_unserved(ours.clone()));
        let compared = compare_values(theirs, ours, &[]);
        if let Ok(Some(difference)) = compared.map(|compared| compared.difference) {
            let _ =
                write!(report, "{part}[{name}]: {}", difference.to_text("kube-apiserver", "we"));
        }
    }
    let missing: BTreeSet<&String> = there
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .filter(|name| is_ours(name) && here.get(name.as_str()).is_none())
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(report, "{part}: only kube-apiserver has {missing:?}");
    }
}

/// Removes the patch type that is not implemented from a path, and the other groups that use a schema from that schema.
fn without_unserved(mut value: Value) -> Value {
    let Some(members) = value.as_object_mut() else { return value };
    if let Some(patch) = members.get_mut("patch") {
        if let Some(content) = patch["requestBody"]["content"].as_object_mut() {
            content.remove(NOT_SERVED);
        }
        if let Some(consumes) = patch["consumes"].as_array_mut() {
            consumes.retain(|media_type| media_type != NOT_SERVED);
        }
    }
    let used_in = members.get_mut("x-kubernetes-group-version-kind").and_then(Value::as_array_mut);
    if let Some(used_in) = used_in {
        used_in.retain(|used| used["group"] == GROUP || used["group"] == "");
    }
    value
}

/// Returns a document of version 2 with its parameter references resolved.
fn resolved(document: Value) -> Value {
    let parameters = document["parameters"].clone();
    let mut document = document;
    resolve(&mut document["paths"], &parameters);
    document
}

fn resolve(value: &mut Value, parameters: &Value) {
    let named = value["$ref"].as_str().and_then(|path| path.strip_prefix("#/parameters/"));
    if let Some(name) = named {
        *value = parameters[name].clone();
        return;
    }
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(|member| resolve(member, parameters));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| resolve(item, parameters)),
        _ => {}
    }
}

/// Checks that a request with the current hash returns the document, and that an old hash leads to the current
/// document.
async fn check_hashes(server: &Server) -> Result<()> {
    let index = get(server, "/openapi/v3").await?;
    let url = index["paths"][format!("apis/{GROUP}/v1")]["serverRelativeURL"].clone();
    let url = url.as_str().context("an URL in the index")?;
    let (path, hash) = url.split_once("?hash=").context("an URL with a hash")?;
    for url in [url.to_owned(), format!("{path}?hash=old"), path.to_owned()] {
        let answer = ask(server, &url, &[]).await?;
        ensure!(answer.status == 200, "{url}: {}", answer.status);
        let known = ask(server, &url, &[("if-none-match", &format!("\"{hash}\""))]).await?;
        ensure!(known.status == 304, "{url} with its ETag: {}", known.status);
    }
    Ok(())
}
