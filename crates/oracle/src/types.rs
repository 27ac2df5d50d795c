//! Compares the tables of Kubernetes' own types, in the library and in `standalone-apiserver`, with the control plane.
//! Go defines the fields of a type and their protobuf encoding; kube-apiserver publishes how they are merged, and their
//! defaults.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use test_cluster::Programs;

use crate::server::{Sent, Server};

/// The packages that every server needs; their types are in the table of the library.
const COMMON: &str = "k8s.io/apimachinery/";
/// The types of another package in the table of the library: a Scale can belong to any kind.
const SCALE: (&str, [&str; 3]) =
    ("k8s.io/api/autoscaling/v1", ["Scale", "ScaleSpec", "ScaleStatus"]);
const HEAD: &str = "\
# Types of Kubernetes: facts, as Go has them and kube-apiserver publishes them, and
# nothing else. What a line says is described in `types.rs` of `kubernetes-schema`.
# Made by `BLESS=1 cargo test -p oracle --test comparison types`.
";

/// A type with its lines in a table.
struct Entry {
    package: String,
    name: String,
    /// The line of the type, followed by the lines of its fields.
    lines: Vec<String>,
}

/// Returns the paths of the library's table and of the table of `standalone-apiserver`.
fn files() -> [PathBuf; 2] {
    ["../kubernetes-schema/src/meta_types.txt", "../standalone-apiserver/src/built_in/types.txt"]
        .map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
}

/// Compares the tables with Go and with `reference`. With `BLESS=1` the tables are written.
///
/// # Errors
/// When Go is not installed, a schema is not published, or a table cannot be read.
pub async fn compare(reference: &Server) -> Result<String> {
    let versions = versions(reference).await?;
    let schemas = schemas(reference, &versions).await?;
    let output = Command::new(Programs::types()?).args(&versions).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (packages, mut entries) = read(&String::from_utf8(output.stdout)?)?;
    let inlined = inlined(&entries);
    let is_struct = |entry: &&Entry| !entry.lines[0].contains(" = ");
    let structs = entries.iter().filter(is_struct).map(|entry| entry.name.clone()).collect();
    for entry in &mut entries {
        add_published(entry, &schemas, &inlined, &structs);
    }
    for (file, is_common) in files().into_iter().zip([true, false]) {
        let text = text(&packages, &entries, is_common);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, &text)?;
        }
        if std::fs::read_to_string(&file)? != text {
            return Ok(format!("{} is not what the control plane says", file.display()));
        }
    }
    Ok(String::new())
}

async fn get(server: &Server, path: &str) -> Result<Value> {
    let (method, path) = ("GET".to_owned(), path.to_owned());
    let sent = Sent { method, path: path.clone(), ..Sent::default() };
    let answer = server.ask(&sent).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.status);
    Ok(answer.body)
}

/// Returns all API groups of Kubernetes, with their versions.
async fn versions(reference: &Server) -> Result<Vec<String>> {
    let groups = get(reference, "/apis").await?;
    let groups = groups["groups"].as_array().context("groups")?;
    let is_own = |group: &&Value| {
        let name = group["name"].as_str().unwrap_or_default();
        name.ends_with(".k8s.io") || !name.contains('.')
    };
    let mut versions = vec!["v1".to_owned()];
    for group in groups.iter().filter(is_own) {
        let of_group = group["versions"].as_array().context("versions")?;
        let named = of_group.iter().filter_map(|version| version["groupVersion"].as_str());
        versions.extend(named.map(str::to_owned));
    }
    Ok(versions)
}

/// Returns the published schemas, by name.
async fn schemas(reference: &Server, versions: &[String]) -> Result<Map<String, Value>> {
    let mut schemas = Map::new();
    for version in versions {
        let root = if version.contains('/') { "apis" } else { "api" };
        let document = get(reference, &format!("/openapi/v3/{root}/{version}")).await?;
        let found = document["components"]["schemas"].as_object().context("schemas")?;
        schemas.extend(found.clone());
    }
    Ok(schemas)
}

/// Parses the output of the Go program: the lines of packages by package name, and the types.
fn read(printed: &str) -> Result<(HashMap<String, String>, Vec<Entry>)> {
    let (mut packages, mut entries) = (HashMap::new(), Vec::<Entry>::new());
    let mut package = String::new();
    for line in printed.lines() {
        if let Some(rest) = line.strip_prefix("package ") {
            package = rest.split(' ').next().unwrap_or_default().to_owned();
            packages.insert(package.clone(), line.to_owned());
        } else if line.starts_with(' ') {
            let entry = entries.last_mut().context("a field of no type")?;
            entry.lines.push(line.to_owned());
        } else {
            let name = line.split(' ').next().unwrap_or_default().to_owned();
            entries.push(Entry { package: package.clone(), name, lines: vec![line.to_owned()] });
        }
    }
    Ok((packages, entries))
}

/// Returns the name of a type in published schemas, for example `io.k8s.api.core.v1.Pod`.
fn published_name(package: &str, name: &str) -> String {
    let path = package.strip_prefix("k8s.io/").unwrap_or(package).replace('/', ".");
    format!("io.k8s.{path}.{name}")
}

/// Returns the types that are inlined into others, each with one such outer type.
fn inlined(entries: &[Entry]) -> HashMap<String, String> {
    let mut inlined = HashMap::new();
    for entry in entries {
        for line in &entry.lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["", "-", _, name, ..] = words.as_slice() {
                let inner = published_name(&entry.package, name);
                inlined.insert(inner, published_name(&entry.package, &entry.name));
            }
        }
    }
    inlined
}

/// Adds the published facts to the lines of a type.
fn add_published(
    entry: &mut Entry,
    schemas: &Map<String, Value>,
    inlined: &HashMap<String, String>,
    structs: &HashSet<String>,
) {
    let name = published_name(&entry.package, &entry.name);
    let outer = || schemas.get(inlined.get(&name)?);
    let Some(schema) = schemas.get(&name).or_else(outer) else { return };
    if is_atomic(schema) && schemas.contains_key(&name) {
        entry.lines[0].push_str(" atomic");
    }
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    for line in entry.lines.iter_mut().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, of) = (words[1].to_owned(), words[3].to_owned());
        let has = |mark: &str| words[4..].contains(&mark);
        let (is_always, is_pointer) = (has("+"), has("*"));
        let property = &schema["properties"][&name];
        if property.is_null() {
            continue;
        }
        if is_required(&name) {
            line.push_str(" !");
        }
        add_list_type(line, property);
        let implied = match is_always && !is_pointer {
            true => {
                let short = of.rsplit_once('.').map_or(&*of, |(_, name)| name);
                implied(&of, !of.contains(['[', ']']) && structs.contains(short))
            }
            false => Value::Null,
        };
        let default = property.get("default").unwrap_or(&Value::Null);
        if *default != implied {
            let _ = write!(line, " default={default}");
        }
    }
}

fn is_atomic(schema: &Value) -> bool {
    schema["x-kubernetes-map-type"] == "atomic"
}

fn add_list_type(line: &mut String, property: &Value) {
    match property["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            let keys = property["x-kubernetes-list-map-keys"].as_array();
            let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
            let _ = write!(line, " keys={}", keys.join(","));
        }
        Some(list_type) => {
            let _ = write!(line, " {list_type}");
        }
        None if is_atomic(property) => line.push_str(" atomic"),
        None if property["x-kubernetes-map-type"] == "granular" => line.push_str(" granular"),
        None => {}
    }
    let strategy = property["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    if strategy.split(',').any(|one| one == "merge") {
        match property["x-kubernetes-patch-merge-key"].as_str() {
            Some(key) => {
                let _ = write!(line, " merge={key}");
            }
            None => line.push_str(" merge"),
        }
    }
    if strategy.split(',').any(|one| one == "retainKeys") {
        line.push_str(" retainKeys");
    }
    if strategy == "replace" {
        line.push_str(" replace");
    }
}

/// Returns the default that is published for every field whose Go type has no nil value.
fn implied(of: &str, is_struct: bool) -> Value {
    match of {
        "string" => "".into(),
        "bool" => false.into(),
        "int32" | "int64" | "float64" => 0.into(),
        _ if is_struct => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Formats a table as the content of its file.
fn text(packages: &HashMap<String, String>, entries: &[Entry], is_common: bool) -> String {
    let mut text = HEAD.to_owned();
    let mut package = "";
    for entry in entries.iter().filter(|entry| is_common == self::is_common(entry)) {
        if package != entry.package {
            package = &entry.package;
            let _ = writeln!(text, "{}", packages[package]);
        }
        for line in &entry.lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn is_common(entry: &Entry) -> bool {
    let (package, names) = SCALE;
    entry.package.starts_with(COMMON)
        || (entry.package == package && names.contains(&entry.name.as_str()))
}
