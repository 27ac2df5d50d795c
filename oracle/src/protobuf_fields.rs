//! The fields of built-in kinds in protobuf: the table of facts that standalone
//! has, held against the sources of the control plane.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::Value;

/// The module that pins the sources.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../test-cluster/programs");
const API: &str = "k8s.io/api";
const MACHINERY: &str = "k8s.io/apimachinery";
/// Packages: the first ones are those of kinds.
const PACKAGES: [(&str, &str, &[&str]); 7] = [
    (
        API,
        "core/v1",
        &["ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount"],
    ),
    (API, "apps/v1", &["Deployment", "ReplicaSet"]),
    (API, "batch/v1", &["CronJob", "Job"]),
    (API, "coordination/v1", &["Lease"]),
    (API, "authentication/v1", &["SelfSubjectReview", "TokenReview"]),
    (API, "authorization/v1", &["SelfSubjectAccessReview", "SubjectAccessReview"]),
    (MACHINERY, "pkg/apis/meta/v1", &[]),
];
/// Messages that stand for something else in JSON.
const SPECIAL: [&str; 8] = [
    "Time",
    "MicroTime",
    "Quantity",
    "IntOrString",
    "FieldsV1",
    "RawExtension",
    "ExtraValue",
    "Duration",
];
const HEAD: &str = "\
# The fields of built-in kinds in protobuf: facts, as the sources of the control
# plane have them, and nothing else. A line is a message, a number, the name of a
# field in JSON, `list`, `map` or `inline`, a type, and `!` where nothing is a value. Made by
# `BLESS=1 cargo test -p oracle -- protobuf`.
";

/// Numbers of fields, each with its message.
type Numbers = Vec<(String, u32)>;
type Messages = BTreeMap<String, BTreeMap<u32, String>>;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../standalone/src/built_in/protobuf_fields.txt")
}

/// Compares the table with the sources; with `BLESS=1` it is written anew.
///
/// # Errors
/// When there is no Go, or the sources are not what they were.
pub fn compare() -> Result<String> {
    let folders = [(API, folder(API)?), (MACHINERY, folder(MACHINERY)?)];
    let mut all = Messages::new();
    for (module, package, _) in PACKAGES {
        let folder = folders.iter().find(|(name, _)| *name == module).context("a module")?;
        read(&folder.1.join(package), &mut all)?;
    }
    let mut table = Messages::new();
    for kind in PACKAGES.iter().flat_map(|(_, _, kinds)| kinds.iter()) {
        walk(&all, kind, &mut table)?;
    }
    let mut text = HEAD.to_owned();
    for (message, fields) in &table {
        for (number, field) in fields {
            let _ = writeln!(text, "{message} {number} {field}");
        }
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file(), &text)?;
    }
    let kept = std::fs::read_to_string(file())?;
    Ok(if kept == text { String::new() } else { "the table is not that of the sources".to_owned() })
}

/// Where the sources of a module are; Go fetches them if they are not there.
fn folder(module: &str) -> Result<PathBuf> {
    let arguments = ["mod", "download", "-json", module];
    let output = Command::new("go").args(arguments).current_dir(MODULE).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    Ok(said["Dir"].as_str().context("go names no folder")?.into())
}

/// Reads the messages of a package, and which of their fields keep nothing.
fn read(package: &Path, messages: &mut Messages) -> Result<()> {
    let begin = Regex::new(r"^message (\w+) \{")?;
    let one = Regex::new(r"^  (optional|repeated) ([\w.]+) (\w+) = (\d+);")?;
    let map = Regex::new(r"^  map<string, ([\w.]+)> (\w+) = (\d+);")?;
    let (kept, inlined) = kept(package)?;
    let mut message = String::new();
    for line in std::fs::read_to_string(package.join("generated.proto"))?.lines() {
        if let Some(found) = begin.captures(line) {
            found[1].clone_into(&mut message);
            messages.entry(message.clone()).or_default();
        }
        let fields = messages.get_mut(&message);
        if let (Some(found), Some(fields)) = (one.captures(line), fields) {
            let number: u32 = found[4].parse()?;
            let is_inlined = inlined.contains(&(message.clone(), number));
            let count = match &found[1] {
                "repeated" => "list ",
                _ if is_inlined => "inline ",
                _ => "",
            };
            let keeps = kept.contains(&(message.clone(), number)) && count.is_empty();
            let keeps = if keeps { " !" } else { "" };
            fields.insert(number, format!("{} {count}{}{keeps}", &found[3], short(&found[2])));
        }
        let fields = messages.get_mut(&message);
        if let (Some(found), Some(fields)) = (map.captures(line), fields) {
            fields.insert(found[3].parse()?, format!("{} map {}", &found[2], short(&found[1])));
        }
    }
    Ok(())
}

/// The fields of types in Go that are pointers, or shown also when they are
/// nothing; and those whose members are members of what they are in.
fn kept(package: &Path) -> Result<(Numbers, Numbers)> {
    let begin = Regex::new(r"^type (\w+) struct")?;
    let field = Regex::new(r#"^\s+\w+\s+(\S+)\s+`json:"([^"]*)" protobuf:"\w+,(\d+),"#)?;
    let inline = Regex::new(r#"`json:",inline" protobuf:"\w+,(\d+),"#)?;
    let (mut kept, mut inlined) = (Vec::new(), Vec::new());
    let mut name = String::new();
    for line in std::fs::read_to_string(package.join("types.go"))?.lines() {
        if let Some(found) = begin.captures(line) {
            found[1].clone_into(&mut name);
        }
        if let Some(found) = inline.captures(line) {
            inlined.push((name.clone(), found[1].parse()?));
        }
        if let Some(found) = field.captures(line)
            && (found[1].starts_with('*') || !found[2].contains("omitempty"))
        {
            kept.push((name.clone(), found[3].parse()?));
        }
    }
    Ok((kept, inlined))
}

fn walk(all: &Messages, message: &str, table: &mut Messages) -> Result<()> {
    if table.contains_key(message) || SPECIAL.contains(&message) {
        return Ok(());
    }
    let Some(fields) = all.get(message) else {
        // A type of protobuf itself.
        ensure!(message.starts_with(char::is_lowercase), "no message {message}");
        return Ok(());
    };
    table.insert(message.to_owned(), fields.clone());
    for field in fields.values() {
        let of =
            field.split(' ').skip(1).find(|word| !["list", "map", "inline", "!"].contains(word));
        walk(all, of.context("a type")?, table)?;
    }
    Ok(())
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
