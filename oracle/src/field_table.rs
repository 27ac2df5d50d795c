//! The fields of Kubernetes' own types: the tables of facts that the library and
//! standalone have, held against the sources of the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::Value;

/// The module that pins the sources.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../test-cluster/programs");
const API: &str = "k8s.io/api";
const EXTENSIONS: &str = "k8s.io/apiextensions-apiserver";
const AGGREGATOR: &str = "k8s.io/kube-aggregator";
/// Packages whose messages are called as some of other packages are: here they
/// are called behind the first word of their group.
const APART: [(&str, &str); 3] = [
    ("discovery/v1", "discovery."),
    ("events/v1", "events."),
    ("apiregistration/v1", "apiregistration."),
];
const MACHINERY: &str = "k8s.io/apimachinery";
/// Packages, and the kinds of them that are wanted.
const PACKAGES: [(&str, &str, &[&str]); 12] = [
    (
        API,
        "core/v1",
        &[
            "Binding",
            "ConfigMap",
            "Event",
            "Namespace",
            "Node",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (API, "apps/v1", &["Deployment", "ReplicaSet"]),
    (API, "batch/v1", &["CronJob", "Job"]),
    (API, "coordination/v1", &["Lease"]),
    (API, "discovery/v1", &["discovery.EndpointSlice"]),
    (API, "events/v1", &["events.Event"]),
    (API, "authentication/v1", &["SelfSubjectReview", "TokenReview"]),
    (
        API,
        "authorization/v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    (API, "autoscaling/v1", &["Scale"]),
    (AGGREGATOR, "pkg/apis/apiregistration/v1", &["apiregistration.APIService"]),
    (EXTENSIONS, "pkg/apis/apiextensions/v1", &["CustomResourceDefinition"]),
    (MACHINERY, "pkg/apis/meta/v1", &["DeleteOptions"]),
];
/// What clients send to every kind. The library has the fields of these, and of
/// what is in them.
const COMMON: [&str; 2] = ["DeleteOptions", "Scale"];
/// Messages that stand for something else in JSON.
const SPECIAL: [&str; 12] = [
    "Duration",
    "ExtraValue",
    "FieldsV1",
    "IntOrString",
    "JSON",
    "JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray",
    "MicroTime",
    "Quantity",
    "RawExtension",
    "Time",
];
/// A message that nothing of its package uses, and another package has too.
const UNUSED: (&str, &str) = ("core/v1", "Preconditions");
const HEAD: &str = "\
# The fields of Kubernetes' own types: facts, as the sources of the control plane
# have them, and nothing else. A line is a message, the number of a field in protobuf,
# its name in JSON, `list`, `map` or `inline`, a type, `*` where it may be absent and
# is something else then than nothing, `+` where it is always there, and its type
# in Go where that is called otherwise; a message alone has no fields. Made by `BLESS=1 cargo test -p oracle --lib fields`.
";

/// The fields of messages, in the words of the table.
type Messages = BTreeMap<String, BTreeMap<u32, String>>;

/// The table of what is common, and that of all else.
fn files() -> [PathBuf; 2] {
    ["../apiserver/src/kind/common_fields.txt", "../standalone/src/built_in/fields.txt"]
        .map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
}

/// Compares the tables with the sources; with `BLESS=1` they are written anew.
///
/// # Errors
/// When there is no Go, or the sources are not what they were.
fn compare() -> Result<String> {
    let mut folders = Vec::new();
    for module in [API, AGGREGATOR, EXTENSIONS, MACHINERY] {
        folders.push((module, folder(module)?));
    }
    let (mut all, mut twins) = (Messages::new(), BTreeSet::new());
    for (module, package, _) in PACKAGES {
        let folder = folders.iter().find(|(name, _)| *name == module).context("a module")?;
        for (message, fields) in read(&folder.1.join(package))? {
            if (package, message.as_str()) == UNUSED {
                continue;
            }
            if all.insert(message.clone(), fields).is_some() {
                twins.insert(message);
            }
        }
    }
    let mut table = Messages::new();
    for kind in PACKAGES.iter().flat_map(|(_, _, kinds)| kinds.iter()) {
        walk(&all, kind, &mut table)?;
    }
    let twin = table.keys().find(|name| twins.contains(*name));
    ensure!(twin.is_none(), "two messages are called {twin:?}");
    let mut common = Messages::new();
    for kind in COMMON {
        walk(&all, kind, &mut common)?;
    }
    table.retain(|message, _| !common.contains_key(message));
    for (file, messages) in files().into_iter().zip([common, table]) {
        let text = text(&messages);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, &text)?;
        }
        if std::fs::read_to_string(&file)? != text {
            return Ok(format!("{} is not that of the sources", file.display()));
        }
    }
    Ok(String::new())
}

/// A table, as it stands in its file.
fn text(messages: &Messages) -> String {
    let mut text = HEAD.to_owned();
    for (message, fields) in messages {
        if fields.is_empty() {
            let _ = writeln!(text, "{message}");
        }
        for (number, field) in fields {
            let _ = writeln!(text, "{message} {number} {field}");
        }
    }
    text
}

/// Where the sources of a module are; Go fetches them if they are not there.
fn folder(module: &str) -> Result<PathBuf> {
    let arguments = ["mod", "download", "-json", module];
    let output = Command::new("go").args(arguments).current_dir(MODULE).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    Ok(said["Dir"].as_str().context("go names no folder")?.into())
}

/// A field as Go has it.
struct GoField {
    name: String,
    go_type: String,
    is_inlined: bool,
    /// `*`, `+` or nothing.
    mark: &'static str,
}

/// Reads the messages of a package.
fn read(package: &Path) -> Result<Messages> {
    let mut messages = Messages::new();
    let begin = Regex::new(r"^message (\w+) \{")?;
    let one = Regex::new(r"^  (optional|repeated) ([\w.]+) (\w+) = (\d+);")?;
    let map = Regex::new(r"^  map<string, ([\w.]+)> (\w+) = (\d+);")?;
    let go = go_fields(package)?;
    let apart = APART.into_iter().find(|(folder, _)| package.ends_with(folder));
    let prefix = apart.map_or("", |(_, prefix)| prefix);
    let named = |name: &str| format!("{prefix}{name}");
    // Only what stands alone is of this package.
    let of = |name: &str| match name.contains('.') || name.starts_with(char::is_lowercase) {
        true => short(name).to_owned(),
        false => named(name),
    };
    let (mut message, mut name) = (String::new(), String::new());
    for line in std::fs::read_to_string(package.join("generated.proto"))?.lines() {
        if let Some(found) = begin.captures(line) {
            found[1].clone_into(&mut message);
            name = named(&message);
            messages.entry(name.clone()).or_default();
        }
        let (number, of, count) = if let Some(found) = one.captures(line) {
            let count = if &found[1] == "repeated" { "list" } else { "" };
            (found[4].parse()?, of(&found[2]), count)
        } else if let Some(found) = map.captures(line) {
            (found[3].parse()?, of(&found[1]), "map")
        } else {
            continue;
        };
        // What Go does not show, JSON does not.
        let Some(field) = go.get(&(message.clone(), number)) else { continue };
        let count = if field.is_inlined { "inline" } else { count };
        let is_special = SPECIAL.contains(&&*of);
        let derived = derived(count, &of);
        let is_special = is_special && count.is_empty();
        let own = if derived == field.go_type || is_special || field.is_inlined {
            ""
        } else {
            &field.go_type
        };
        let called = if field.is_inlined { "-" } else { &field.name };
        let words = [called, count, &of, field.mark, own];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        messages.entry(name.clone()).or_default().insert(number, words.join(" "));
    }
    Ok(messages)
}

/// What Go calls a type, mostly.
fn derived(count: &str, of: &str) -> String {
    let of = match APART.iter().fold(of, |of, (_, prefix)| of.trim_start_matches(prefix)) {
        "double" => "float64".to_owned(),
        "bytes" => "[]uint8".to_owned(),
        of if of.starts_with(char::is_lowercase) => of.to_owned(),
        of => format!("v1.{of}"),
    };
    match count {
        "list" => format!("[]{of}"),
        "map" => format!("map[string]{of}"),
        _ => of,
    }
}

/// The fields of types in Go, by type and number.
fn go_fields(package: &Path) -> Result<BTreeMap<(String, u32), GoField>> {
    let begin = Regex::new(r"^type (\w+) struct")?;
    let tag = r#"`json:"([^"]*)"[^`]*protobuf:"\w+,(\d+),"#;
    let field = Regex::new(&format!(r"^\s+(?:\w+\s+)?(\S+)\s+{tag}"))?;
    let bare = Regex::new(r"\b(\w+\.)?([A-Z]\w*)\b")?;
    let byte = Regex::new(r"\bbyte\b")?;
    let mut fields = BTreeMap::new();
    let mut text = String::new();
    for file in ["types.go", "types_jsonschema.go"] {
        let file = package.join(file);
        if file.exists() {
            text.push_str(&std::fs::read_to_string(file)?);
        }
    }
    let mut of = String::new();
    for line in text.lines() {
        if let Some(found) = begin.captures(line) {
            found[1].clone_into(&mut of);
        }
        let Some(found) = field.captures(line) else { continue };
        let (go_type, tag) = (&found[1], &found[2]);
        let (name, options) = tag.split_once(',').unwrap_or((tag, ""));
        if name == "-" {
            continue;
        }
        let has = |option: &str| options.split(',').any(|one| one == option);
        let is_inlined = has("inline");
        let plain = go_type.trim_start_matches('*');
        let is_collection = plain.starts_with('[') || plain.starts_with("map[");
        // Structs are shown though they are empty.
        let is_struct = !is_collection
            && (text.contains(&format!("type {} struct", short(plain)))
                || STRUCTS.contains(&short(plain)));
        let mark = match go_type.starts_with('*') {
            _ if is_inlined => "",
            true if !has("omitempty") => "+",
            true => "*",
            false if has("omitzero") => "",
            false if !has("omitempty") || is_struct => "+",
            false => "",
        };
        let qualified = bare.replace_all(plain, |name: &regex::Captures<'_>| {
            match name.get(1).map(|package| package.as_str()) {
                None | Some("metav1." | "corev1." | "v1.") => format!("v1.{}", &name[2]),
                Some(other) => format!("{other}{}", &name[2]),
            }
        });
        let go_type = byte.replace_all(&qualified, "uint8").into_owned();
        let number = found[3].parse()?;
        let field = GoField { name: name.to_owned(), go_type, is_inlined, mark };
        fields.insert((of.clone(), number), field);
    }
    Ok(fields)
}

/// Structs of other packages.
const STRUCTS: [&str; 12] = [
    "EventSource",
    "ObjectMeta",
    "ListMeta",
    "Time",
    "MicroTime",
    "Quantity",
    "IntOrString",
    "RawExtension",
    "PodTemplateSpec",
    "PodSpec",
    "LabelSelector",
    "ObjectReference",
];

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
        let of = field.split(' ').skip(1).find(|word| !["list", "map", "inline"].contains(word));
        walk(all, of.context("a type")?, table)?;
    }
    Ok(())
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_cluster::{Missing, Programs};

    #[test]
    fn fields_are_those_of_the_sources() {
        let is_required = std::env::var_os("REQUIRE_CONTROL_PLANE").is_some();
        match Programs::find() {
            Err(error) if error.is::<Missing>() && !is_required => {
                eprintln!("the sources need a control plane: {error}");
            }
            _ => assert_eq!(compare().unwrap(), ""),
        }
    }
}
