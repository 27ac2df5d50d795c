//! Generates rows from a seed: a few managers write the same object of a built-in kind with all kinds of requests.
//!
//! The object is generated from a template (`crates/oracle/templates/`). A field whose name begins with `?` is
//! optional. From a list that begins with `$one` one element is chosen, and from a list that begins with `$some` at
//! least one, in any order. The value of a field whose name begins with `!` is chosen once per row: a rejected change
//! would print it in the order of Go's structs.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::row::{BUILT_IN, Request, Row};

/// The field managers.
const MANAGERS: &[&str] = &["a", "b", "c", "kubectl"];
/// The number of writes in a row.
const WRITES: std::ops::Range<usize> = 4..12;

/// A kind: the path of its collection, and the template of its objects.
struct Kind {
    collection: &'static str,
    template: &'static str,
    /// Whether most fields of the objects are immutable. Such objects are only created and applied, because the error
    /// of a rejected change prints the object in the order of Go's structs.
    is_fixed: bool,
}

const KINDS: &[Kind] = &[
    kind("$core/configmaps", include_str!("../templates/config_map.json")),
    kind("$core/secrets", include_str!("../templates/secret.json")),
    kind("$core/serviceaccounts", include_str!("../templates/service_account.json")),
    kind("$core/services", include_str!("../templates/service.json")),
    fixed("$core/pods", include_str!("../templates/pod.json")),
    kind("$core/resourcequotas", include_str!("../templates/resource_quota.json")),
    kind("$apps/deployments", include_str!("../templates/deployment.json")),
    kind("$apps/deployments", include_str!("../templates/deployment.json")),
    kind("$apps/replicasets", include_str!("../templates/replica_set.json")),
    kind("$apps/statefulsets", include_str!("../templates/stateful_set.json")),
    kind("$apps/daemonsets", include_str!("../templates/daemon_set.json")),
    kind("$policy/poddisruptionbudgets", include_str!("../templates/pod_disruption_budget.json")),
    fixed("$batch/jobs", include_str!("../templates/job.json")),
    kind("$batch/cronjobs", include_str!("../templates/cron_job.json")),
    kind(
        "/apis/coordination.k8s.io/v1/namespaces/$ns/leases",
        include_str!("../templates/lease.json"),
    ),
];

const fn kind(collection: &'static str, template: &'static str) -> Kind {
    Kind { collection, template, is_fixed: false }
}

const fn fixed(collection: &'static str, template: &'static str) -> Kind {
    Kind { collection, template, is_fixed: true }
}

/// Generates the row of a seed.
pub fn row(seed: u64) -> Row {
    let mut rng = Rng::with_seed(seed);
    let kind = &KINDS[rng.usize(..KINDS.len())];
    let template: Value = serde_json::from_str(kind.template).unwrap_or_default();
    let template = settled(&mut rng, &template);
    let mut requests: Vec<Request> =
        (0..rng.usize(WRITES)).map(|_| write(&mut rng, kind, &template)).collect();
    let object = format!("{}/a", kind.collection);
    requests.push(Request { method: "GET".to_owned(), path: object.clone(), ..Request::default() });
    let delete = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    requests.push(request("DELETE", object, None, delete));
    Row {
        topic: format!("{BUILT_IN} applies"),
        title: format!("from seed {seed}"),
        alone: false,
        aggregated: false,
        standalone: false,
        requests,
    }
}

fn write(rng: &mut Rng, kind: &Kind, template: &Value) -> Request {
    let manager = pick(rng, MANAGERS);
    let dry = if rng.u32(0..12) == 0 { "&dryRun=All" } else { "" };
    let query = format!("fieldManager={manager}{dry}");
    let object = format!("{}/a", kind.collection);
    let all = chosen(rng, template);
    let sort = if kind.is_fixed { rng.u32(0..8) } else { rng.u32(0..12) };
    match sort {
        0..7 => {
            let force = ["", "", "&force=true"][rng.usize(0..3)];
            let path = format!("{object}?{query}{force}");
            request("PATCH", path, Some("application/apply-patch+yaml"), all)
        }
        7 => request("POST", format!("{}?{query}", kind.collection), None, all),
        8 => request("PUT", format!("{object}?{query}"), None, all),
        9 => {
            let path = format!("{object}?{query}");
            request("PATCH", path, Some("application/merge-patch+json"), part(rng, all))
        }
        _ => {
            let path = format!("{object}?{query}");
            request("PATCH", path, Some("application/strategic-merge-patch+json"), part(rng, all))
        }
    }
}

/// Returns one field of an object, or one field of its metadata, as the content of a patch.
fn part(rng: &mut Rng, object: Value) -> Value {
    let Value::Object(object) = object else { return object };
    let members: Vec<(String, Value)> = object
        .into_iter()
        .filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str()))
        .collect();
    if members.is_empty() {
        return json!({});
    }
    let (name, value) = members[rng.usize(..members.len())].clone();
    match value {
        Value::Object(members) if !members.is_empty() && rng.bool() => {
            let members: Vec<(String, Value)> = members.into_iter().collect();
            let member = members[rng.usize(..members.len())].clone();
            json!({ name: Map::from_iter([member]) })
        }
        value => json!({ name: value }),
    }
}

/// Returns the template with the choices that stay fixed for a row.
fn settled(rng: &mut Rng, template: &Value) -> Value {
    let Value::Object(members) = template else { return template.clone() };
    let settled = members.iter().map(|(name, member)| match name.strip_prefix('!') {
        Some(name) => (name.to_owned(), chosen(rng, member)),
        None => (name.clone(), settled(rng, member)),
    });
    Value::Object(settled.collect())
}

/// Generates a value from a template.
fn chosen(rng: &mut Rng, template: &Value) -> Value {
    match template {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, member) in members {
                let name = match name.strip_prefix('?') {
                    Some(_) if rng.bool() => continue,
                    Some(name) => name,
                    None => name,
                };
                kept.insert(name.to_owned(), chosen(rng, member));
            }
            Value::Object(kept)
        }
        Value::Array(items) => match items.split_first() {
            Some((Value::String(first), rest)) if first == "$one" => {
                let one = &rest[rng.usize(..rest.len())];
                chosen(rng, one)
            }
            Some((Value::String(first), rest)) if first == "$some" => {
                // No list is empty: kube-apiserver stores an empty field of an apply request, and drops it with the
                // next write, which then changes the object.
                let sure = rng.usize(..rest.len());
                let is_taken = |place: usize, rng: &mut Rng| place == sure || rng.bool();
                let some = rest.iter().enumerate().filter(|(place, _)| is_taken(*place, rng));
                let mut some: Vec<&Value> = some.map(|(_, one)| one).collect();
                rng.shuffle(&mut some);
                some.into_iter().map(|one| chosen(rng, one)).collect()
            }
            _ => items.iter().map(|item| chosen(rng, item)).collect(),
        },
        other => other.clone(),
    }
}

fn request(method: &str, path: String, content_type: Option<&str>, body: Value) -> Request {
    let headers = content_type.into_iter();
    Request {
        method: method.to_owned(),
        path,
        headers: headers.map(|text| ("Content-Type".to_owned(), text.to_owned())).collect(),
        body: Some(body.to_string()),
        ..Request::default()
    }
}

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(..all.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_built_in_kinds_generate_different_objects() {
        for kind in KINDS {
            let template: Value = serde_json::from_str(kind.template).unwrap();
            let mut rng = Rng::with_seed(1);
            let template = settled(&mut rng, &template);
            let made: Vec<Value> = (0..20).map(|_| chosen(&mut rng, &template)).collect();
            assert!(made.iter().any(|one| *one != made[0]), "{}", kind.collection);
            let text = made[0].to_string();
            assert!(!["\"$", "\"?", "\"!"].iter().any(|mark| text.contains(mark)), "{text}");
        }
    }
}
