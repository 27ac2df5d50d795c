//! Compares every field of every built-in kind: null, Go's zero value and an absent field, in JSON and in protobuf,
//! between a kube-apiserver and our server without a cluster. The table of types lists the fields. `kinds.json` has an
//! object of each kind as a base.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;

use aggregated_apiserver::types::{GoType, Type};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::protobuf::{TYPES, encode};
use crate::row::Variables;
use crate::run::Side;
use crate::server::Sent;

const KINDS: &str = include_str!("../kinds.json");

/// The largest number of differences that are printed for a kind.
const SHOWN: usize = 40;

/// Fields whose values are not compared, each with a reason.
const SKIPPED: &[(&str, &str)] = &[
    ("matchConditions", "webhooks have rows of their own"),
    ("nodeAllocatableResourceClaimStatuses", "off by default"),
    ("schedulingGroup", "off by default"),
    ("stopSignal", "off by default"),
    ("volumeStatus", "off by default"),
    ("metadata", "metadata has rows of its own"),
    ("overhead", "RuntimeClasses decide about it, and they have rows of their own"),
    ("username", "the user of the request"),
    ("extra", "of the user of the request"),
    ("clusterIP", "addresses are allocated"),
    ("clusterIPs", "addresses are allocated"),
    ("generateName", "names are random"),
];

/// Fields whose zero values Go distinguishes from absent ones and the Rust types do not, each with its type.
const UNTOLD: &[(&str, &str)] = &[
    ("HPAScalingRules", "policies"),
    ("HTTPIngressPath", "pathType"),
    ("MutatingWebhook", "sideEffects"),
    ("ValidatingWebhook", "sideEffects"),
    // Go compares times with their time zones.
    ("Event", "deprecatedFirstTimestamp"),
    ("Event", "deprecatedLastTimestamp"),
];

/// A kind, and a valid object of it.
#[derive(Deserialize)]
struct Kind {
    /// The package and the name of its type.
    of: String,
    collection: String,
    /// The name, if it must have another format.
    name: Option<String>,
    /// Whether the kind has a `status` subresource.
    #[serde(default)]
    status: bool,
    object: Map<String, Value>,
    /// Paths of fields whose empty values Go distinguishes from absent ones and the Rust types do not.
    #[serde(default)]
    untold: Vec<String>,
}

/// A struct in an object: the path of fields that leads to it, and its type.
struct Place<'a> {
    /// The fields, and whether their value is in a list or a map.
    path: Vec<(&'a str, Container)>,
    of: Type<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    None,
    List,
    Map,
}

/// Returns the names of all kinds.
///
/// # Errors
/// When the file cannot be read.
pub fn kinds() -> Result<Vec<String>> {
    Ok(all()?.into_iter().map(|kind| kind.of).collect())
}

fn all() -> Result<Vec<Kind>> {
    serde_json::from_str(KINDS).context("kinds.json")
}

/// Compares all fields of a kind, in a namespace that exists on both servers. Returns the number of requests, and the
/// differences as text.
///
/// # Errors
/// When a request to a server fails.
pub async fn compare(
    name: &str,
    namespace: &str,
    reference: &Side,
    other: &Side,
) -> Result<(usize, String)> {
    let kind = all()?.into_iter().find(|kind| kind.of == name).context("no such kind")?;
    let variables = Variables { namespace, answers: &[] };
    let filled = |text: &str| variables.fill(text);
    let collection = filled(&kind.collection)?;
    let mut first: Map<String, Value> =
        serde_json::from_str(&filled(&Value::Object(kind.object.clone()).to_string())?)?;
    let object_name = kind.name.clone().unwrap_or_else(|| format!("{namespace}-a"));
    first.insert("metadata".to_owned(), json!({"name": object_name}));
    let (package, type_name) = name.split_once(' ').context("PACKAGE TYPE")?;
    let of = TYPES.named(package, type_name).with_context(|| format!("no type {name}"))?;
    let version = TYPES.kinds().find(|(version, kind)| {
        *kind == type_name
            && version.ends_with(package.rsplit('/').next().unwrap_or(package))
            && group_of(package, version)
    });
    let (api_version, _) = version.with_context(|| format!("no kind {name}"))?;
    first.insert("apiVersion".to_owned(), api_version.into());
    first.insert("kind".to_owned(), type_name.into());
    if kind.status {
        for side in [reference, other] {
            let body = Value::Object(first.clone()).to_string();
            side.server.demand("POST", &collection, Some(body)).await?;
        }
    }
    let mut count = 0;
    let mut differences = Vec::new();
    for place in places(of, type_name == "Pod" || !holds_pods(type_name)) {
        let is_status = place.path.first().is_some_and(|(field, _)| *field == "status");
        if is_status && !kind.status {
            continue;
        }
        for (field, value) in values(&place) {
            let at: Vec<&str> = place.path.iter().map(|(field, _)| *field).collect();
            let at = format!("{}.{}", at.join("."), field.unwrap_or("{}"));
            if !is_status && kind.untold.contains(&at) {
                continue;
            }
            let mut object = first.clone();
            put(&mut object, &place.path, field, value.clone());
            let text = Value::Object(object).to_string();
            let (method, path) = match is_status {
                true => ("PUT", format!("{collection}/{namespace}-a/status?dryRun=All")),
                false => ("POST", format!("{collection}?dryRun=All")),
            };
            let text = match is_status {
                true => text,
                false => text.replace(&format!("{namespace}-a"), &format!("{namespace}-b")),
            };
            for in_protobuf in [false, true] {
                let Some(sent) = request(method, &path, &text, in_protobuf) else { continue };
                let (there, here) =
                    tokio::try_join!(reference.server.ask(&sent), other.server.ask(&sent))?;
                count += 1;
                let (there, here) = (told(there), told(here));
                if there != here {
                    let how = if in_protobuf { "protobuf" } else { "JSON" };
                    differences.push(format!(
                        "{at} = {value} in {how}\n  kube-apiserver {}\n  ours           {}\n",
                        shown(&there, &here),
                        shown(&here, &there)
                    ));
                    // The other encoding has the same difference.
                    break;
                }
            }
        }
    }
    if kind.status {
        let path = format!("{collection}/{namespace}-a");
        for side in [reference, other] {
            let body = json!({"gracePeriodSeconds": 0}).to_string();
            let _ = side.server.demand_or_gone("DELETE", &path, Some(body)).await;
        }
    }
    let mut report = String::new();
    for difference in differences.iter().take(SHOWN) {
        let _ = writeln!(report, "{difference}");
    }
    if differences.len() > SHOWN {
        let _ = writeln!(report, "and {} more", differences.len() - SHOWN);
    }
    Ok((count, report))
}

/// Whether a version such as `networking.k8s.io/v1` is that of a package such as `networking/v1`.
fn group_of(package: &str, version: &str) -> bool {
    let (group, _) = package.split_once('/').unwrap_or((package, ""));
    let of = version.split_once('/').map_or("", |(group, _)| group);
    match group {
        "core" => of.is_empty(),
        group => of.split('.').next() == Some(group),
    }
}

/// Whether objects of a type contain a Pod template, whose fields are those of a Pod.
fn holds_pods(name: &str) -> bool {
    let all = [
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    ];
    all.contains(&name)
}

/// Returns the structs of an object, each type once.
fn places(of: Type<'_>, with_pods: bool) -> Vec<Place<'_>> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([of.name]);
    let mut next = VecDeque::from([Place { path: Vec::new(), of }]);
    while let Some(place) = next.pop_front() {
        for (name, member) in place.of.node().members.iter() {
            if is_skipped(name) || (!with_pods && name == "template") {
                continue;
            }
            let mut inner = place.of.at(&member.of);
            let mut container = Container::None;
            if inner.go == Some(GoType::List) {
                container = Container::List;
                let Some(item) = inner.of_items() else { continue };
                inner = item;
            } else if inner.go == Some(GoType::Map) {
                container = Container::Map;
                let Some(value) = inner.of_member("a") else { continue };
                inner = value;
            }
            if inner.go == Some(GoType::Struct) && seen.insert(inner.name) {
                let mut path = place.path.clone();
                path.push((name, container));
                next.push_back(Place { path, of: inner });
            }
        }
        found.push(place);
    }
    found
}

fn is_skipped(name: &str) -> bool {
    ["apiVersion", "kind"].contains(&name) || SKIPPED.iter().any(|(skipped, _)| *skipped == name)
}

/// Returns the values to test in a struct: the empty struct, for each field null and its zero value, and a null element
/// for lists and maps.
fn values<'a>(place: &Place<'a>) -> Vec<(Option<&'a str>, Value)> {
    let mut values = vec![(None, json!({}))];
    for (name, member) in place.of.node().members.iter() {
        if is_skipped(name) {
            continue;
        }
        values.push((Some(name), Value::Null));
        let of = place.of.at(&member.of);
        let zero = match of.go {
            Some(GoType::String | GoType::Bytes) => json!(""),
            Some(GoType::Bool) => json!(false),
            Some(GoType::Int32 | GoType::Int64 | GoType::Float64 | GoType::IntOrString) => json!(0),
            Some(GoType::Quantity) => json!("0"),
            Some(GoType::Time | GoType::MicroTime) => json!("0001-01-01T00:00:00Z"),
            Some(GoType::Struct) => json!({}),
            Some(GoType::List | GoType::Strings) => {
                values.push((Some(name), json!([null])));
                json!([])
            }
            Some(GoType::Map) => {
                values.push((Some(name), json!({"cpu": null})));
                json!({})
            }
            _ => continue,
        };
        let is_time = matches!(of.go, Some(GoType::Time | GoType::MicroTime));
        let is_untold = UNTOLD.contains(&(place.of.name, name));
        // A pointer to Go's zero time is present, and is encoded as null.
        let is_instant = is_time && member.is_pointer;
        if !(is_untold || is_instant) {
            values.push((Some(name), zero));
        }
    }
    values
}

/// Sets a field of the struct at the path to this value.
fn put(
    object: &mut Map<String, Value>,
    path: &[(&str, Container)],
    field: Option<&str>,
    value: Value,
) {
    let Some(((name, container), rest)) = path.split_first() else {
        if let Some(field) = field {
            object.insert(field.to_owned(), value);
        }
        return;
    };
    let inner = object.entry((*name).to_owned()).or_insert(Value::Null);
    let inner = match container {
        Container::None => inner,
        Container::List => {
            if inner.as_array().is_none_or(|items| items.is_empty()) {
                *inner = json!([{}]);
            }
            &mut inner[0]
        }
        Container::Map => &mut inner["a"],
    };
    if !inner.is_object() {
        *inner = json!({});
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, field, value);
    }
}

/// Builds a request. Returns `None` if a Go client cannot send it.
fn request(method: &str, path: &str, body: &str, in_protobuf: bool) -> Option<Sent> {
    let content_type = match in_protobuf {
        true => "application/vnd.kubernetes.protobuf",
        false => "application/json",
    };
    let protobuf = match in_protobuf {
        true => Some(encode(body).ok()?.protobuf),
        false => None,
    };
    Some(Sent {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("Content-Type".to_owned(), content_type.to_owned())],
        body: Some(body.to_owned()),
        protobuf,
        ..Sent::default()
    })
}

/// Returns the comparable parts of a response: the status, with the object on success, or with the invalid fields and
/// reasons on an error.
fn told(answer: Answer) -> (u16, Value) {
    let Answer { status, mut body, .. } = answer;
    if status < 300 {
        body["metadata"] = Value::Null;
        if body["kind"] == "CertificateSigningRequest" {
            // The servers authenticate their administrators in different ways.
            body["spec"]["username"] = Value::Null;
            body["spec"]["extra"] = Value::Null;
        }
        hide_uids(&mut body);
        if body["status"]["lastPhaseTransitionTime"].is_string() {
            body["status"]["lastPhaseTransitionTime"] = Value::Null;
        }
        return (status, body);
    }
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let causes: BTreeSet<String> = causes
        .iter()
        .map(|cause| {
            let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("field"), text("reason"))
        })
        .collect();
    if causes.is_empty() {
        return (status, body["message"].take());
    }
    (status, json!(causes))
}

/// Clears uids, which are random.
fn hide_uids(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(hide_uids),
        Value::Array(items) => items.iter_mut().for_each(hide_uids),
        Value::String(text) if text.len() == 36 && text.split('-').count() == 5 => text.clear(),
        _ => {}
    }
}

/// Formats the response of one side, without the fields that are equal on the other side.
fn shown(one: &(u16, Value), other: &(u16, Value)) -> String {
    match (&one.1, &other.1) {
        (Value::Object(one_body), Value::Object(other_body)) => {
            let parts: Map<String, Value> = one_body
                .iter()
                .filter(|(name, value)| other_body.get(*name) != Some(value))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            format!("{} {}", one.0, Value::Object(parts))
        }
        (Value::Object(_), _) => one.0.to_string(),
        (body, _) => format!("{} {body}", one.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_type_and_places() {
        for kind in all().unwrap() {
            let (package, name) = kind.of.split_once(' ').unwrap();
            let of = TYPES.named(package, name).unwrap();
            assert!(!places(of, true).is_empty(), "{}", kind.of);
        }
    }

    #[test]
    fn a_value_is_put_into_lists_and_maps() {
        let path = [("a", Container::None), ("b", Container::List), ("c", Container::Map)];
        let mut object = json!({"a": {"b": [{"d": 1}]}}).as_object().unwrap().clone();
        put(&mut object, &path, Some("e"), Value::Null);
        assert_eq!(Value::Object(object), json!({"a": {"b": [{"d": 1, "c": {"a": {"e": null}}}]}}));
    }
}
