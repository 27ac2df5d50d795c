//! Generates rows from a seed about built-in kinds: random objects of a Go type are created and patched. They test the
//! decoder, the defaults and the strategic merge patches of Go with valid and invalid values. Therefore they use kinds,
//! and parts of kinds, with few validation rules of their own.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use aggregated_apiserver::types::{GoType, ListMerge, Type};

use crate::protobuf::TYPES;
use crate::row::{BUILT_IN, Request, Row};

/// The largest nesting depth of an object.
const DEPTH: usize = 6;

/// The target of the generated objects: a path, and the Go type of a field of the object there.
struct Place {
    collection: &'static str,
    name: &'static str,
    subresource: &'static str,
    member: &'static str,
    package: &'static str,
    of: &'static str,
    /// The object that is created first, without its metadata.
    first: &'static str,
}

const PLACES: &[Place] = &[
    Place {
        collection: "$core/pods",
        name: "a",
        subresource: "/status",
        member: "status",
        package: "core/v1",
        of: "PodStatus",
        first: r#"{"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
    },
    Place {
        collection: "/api/v1/nodes",
        name: "$ns-a",
        subresource: "/status",
        member: "status",
        package: "core/v1",
        of: "NodeStatus",
        first: "{}",
    },
    Place {
        collection: "$core/serviceaccounts",
        name: "a",
        subresource: "",
        member: "",
        package: "core/v1",
        of: "ServiceAccount",
        first: "{}",
    },
    Place {
        collection: "$core/configmaps",
        name: "a",
        subresource: "",
        member: "",
        package: "core/v1",
        of: "ConfigMap",
        first: "{}",
    },
];

/// Fields with validation rules beyond their types.
const RULED: &[&str] = &[
    "allocatedResources",
    "allocatedResourcesStatus",
    "declaredFeatures",
    "extendedResourceClaimStatus",
    "hostIP",
    "hostIPs",
    "immutable",
    "nodeAllocatableResourceClaimStatuses",
    "nominatedNodeName",
    // A change of its managers counts as a change of the field.
    "observedGeneration",
    "podIP",
    "podIPs",
    "qosClass",
    "resourceClaimStatuses",
    "terminated",
    "volumeStatus",
];

/// Generates the row of a seed.
pub fn row(seed: u64) -> Row {
    let mut rng = Rng::with_seed(seed);
    let place = &PLACES[rng.usize(..PLACES.len())];
    let object = format!("{}/{}", place.collection, place.name);
    let path = format!("{object}{}", place.subresource);
    let mut requests = vec![request("POST", place.collection, whole(place, first(place)), None)];
    for _ in 0..rng.usize(2..6) {
        let dry_run = ["", "", "", "dryRun=All&"][rng.usize(..4)];
        let query = |validation: &str| format!("?{dry_run}fieldValidation={validation}");
        // With `Strict`, the error of a rejected patch prints the object in the order of Go's structs.
        let validation = ["Warn", "Ignore"][rng.usize(..2)];
        let patched = |language: &str, rng: &mut Rng| {
            let sent =
                if language == "merge-patch" { Sent::Merged } else { Sent::StrategicallyMerged };
            let tree = Chance { rng, sent }.of(place);
            let path = format!("{path}{}", query(validation));
            request("PATCH", &path, Value::Object(tree), Some(language))
        };
        requests.push(match rng.u32(..8) {
            0..5 => patched("strategic-merge-patch", &mut rng),
            5 | 6 => patched("merge-patch", &mut rng),
            _ => {
                let tree = Chance { rng: &mut rng, sent: Sent::Put }.of(place);
                let mut object = whole(place, first(place));
                if let Value::Object(object) = &mut object {
                    object.extend(tree);
                }
                let validation = ["Strict", validation][rng.usize(..2)];
                request("PUT", &format!("{path}{}", query(validation)), object, None)
            }
        });
    }
    requests.push(Request { method: "GET".to_owned(), path: object.clone(), ..Request::default() });
    let delete = json!({"gracePeriodSeconds": 0});
    requests.push(request("DELETE", &object, delete, None));
    Row {
        topic: format!("{BUILT_IN} trees"),
        title: format!("from seed {seed}"),
        alone: false,
        aggregated: false,
        standalone: false,
        requests,
    }
}

fn request(method: &str, path: &str, body: Value, patch: Option<&str>) -> Request {
    let language = patch.map(|patch| format!("application/{patch}+json"));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: language.map(|one| ("Content-Type".to_owned(), one)).into_iter().collect(),
        body: Some(body.to_string()),
        ..Request::default()
    }
}

fn first(place: &Place) -> Map<String, Value> {
    serde_json::from_str(place.first).unwrap_or_default()
}

fn whole(place: &Place, mut object: Map<String, Value>) -> Value {
    object.insert("metadata".to_owned(), json!({"name": place.name}));
    Value::Object(object)
}

/// A generator of random objects.
struct Chance<'a> {
    rng: &'a mut Rng,
    sent: Sent,
}

/// The request that a generated object is sent with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// A PUT. Some values have wrong types. In a patch they are avoided, because the error of a rejected patch prints
    /// the object in the order of Go's structs.
    Put,
    /// A merge patch.
    Merged,
    /// A strategic merge patch, which may contain directives.
    StrategicallyMerged,
}

impl Chance<'_> {
    fn of(&mut self, place: &Place) -> Map<String, Value> {
        let Some(of) = TYPES.named(place.package, place.of) else { return Map::new() };
        let tree = self.message(of, 0);
        match place.member {
            "" => tree,
            member => Map::from_iter([(member.to_owned(), Value::Object(tree))]),
        }
    }

    fn one_of(&mut self, times: usize) -> bool {
        self.rng.usize(..times) == 0
    }

    fn message(&mut self, of: Type<'_>, depth: usize) -> Map<String, Value> {
        let mut members = Map::new();
        for (name, member) in of.members.iter() {
            // Names and versions come from the path.
            let is_of_path = depth == 0 && ["apiVersion", "kind", "metadata"].contains(&name);
            if is_of_path || RULED.contains(&name) || depth > DEPTH || !self.one_of(2 + depth) {
                continue;
            }
            let mut value = self.value(of.at(&member.of), depth);
            if let (ListMerge::By(key), Value::Array(items)) = (&member.patch.list, &mut value) {
                // Elements without the merge key, or with the same key twice, have known differences.
                for (item, name) in items.iter_mut().zip(["a", "b", "c", "d"]) {
                    if let Value::Object(item) = item {
                        item.insert(key.to_string(), name.into());
                    }
                }
            }
            members.insert(name.to_owned(), value);
        }
        // `$$` in a row stands for `$`.
        if self.sent == Sent::StrategicallyMerged && depth > 0 && self.one_of(15) {
            let directive = ["replace", "delete"][self.rng.usize(..2)];
            members.insert("$$patch".to_owned(), directive.into());
        }
        if self.one_of(12) {
            members.insert("unknown".to_owned(), json!({"a": [1]}));
        }
        members
    }

    fn value(&mut self, of: Type<'_>, depth: usize) -> Value {
        // Go reports an invalid time in several ways.
        let is_time = matches!(of.go, Some(GoType::Time | GoType::MicroTime));
        if self.sent == Sent::Put && !is_time && self.one_of(40) {
            let wrong = [json!(null), json!("x"), json!(1), json!(true), json!([]), json!({})];
            return wrong[self.rng.usize(..wrong.len())].clone();
        }
        let Some(go) = of.go else { return Value::Null };
        let rng = &mut *self.rng;
        match go {
            GoType::String => {
                ["", "a", "b", "True", "é\u{1f600}", "10.0.0.1"][rng.usize(..6)].into()
            }
            GoType::Bytes => ["", "eHl6", "/+8="][rng.usize(..3)].into(),
            GoType::Bool => rng.bool().into(),
            // A merge patch is converted to JSON, where `7.0` is not an integer.
            GoType::Int32 | GoType::Int64 if self.sent == Sent::Merged => rng.u8(..3).into(),
            GoType::Int32 | GoType::Int64 => {
                [json!(0), json!(1), json!(7.0)][rng.usize(..3)].clone()
            }
            GoType::Float64 => [0.0, 1.5, -2e-7, 1e21][rng.usize(..4)].into(),
            GoType::Time => {
                ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+02:00"][rng.usize(..2)].into()
            }
            GoType::MicroTime => "2026-01-02T03:04:05.678900Z".into(),
            GoType::Quantity => [
                json!("0"),
                json!("100m"),
                json!("1Gi"),
                json!("12e6"),
                json!(0.5),
                json!("1024Ki"),
            ][rng.usize(..6)]
            .clone(),
            GoType::IntOrString => {
                [json!(0), json!(8080), json!(""), json!("http")][rng.usize(..4)].clone()
            }
            GoType::Strings => json!(["a", "b"]),
            GoType::List => {
                let times = rng.usize(..4);
                let Some(of) = of.of_items() else { return json!([]) };
                let mut items: Vec<Value> = (0..times).map(|_| self.value(of, depth)).collect();
                if self.sent == Sent::StrategicallyMerged
                    && of.go == Some(GoType::Struct)
                    && self.one_of(6)
                {
                    // Our server rejects other directives with a different status than kube-apiserver.
                    let directive = ["replace", "delete"][self.rng.usize(..2)];
                    items.push(json!({"$$patch": directive, "type": "a", "name": "a"}));
                }
                items.into()
            }
            GoType::Map => {
                let times = rng.usize(..3);
                let Some(of) = of.of_member("any") else { return json!({}) };
                // Maps of quantities have well-known keys.
                let names = match of.go {
                    Some(GoType::Quantity) => ["cpu", "memory"],
                    _ => ["a", "b.c"],
                };
                let one = |n: usize| (names[n].to_owned(), self.value(of, depth));
                Value::Object((0..times).map(one).collect())
            }
            GoType::Struct => Value::Object(self.message(of, depth + 1)),
            GoType::Json
            | GoType::SchemaOrArray
            | GoType::SchemaOrBool
            | GoType::SchemaOrStrings => {
                json!({"a": [true]})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::parse;

    #[test]
    fn tree_rows_are_reproducible_from_a_seed_and_survive_encoding() {
        for seed in 0..200 {
            let made = row(seed);
            assert_eq!(made, row(seed));
            let read = parse(&made.topic, &made.to_text()).unwrap();
            assert_eq!(read, [made]);
        }
    }

    #[test]
    fn every_type_is_known() {
        for place in PLACES {
            assert!(TYPES.named(place.package, place.of).is_some(), "{}", place.of);
        }
    }
}
