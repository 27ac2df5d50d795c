//! Schemas of Kubernetes' own kinds: as their types describe themselves, in the
//! words of kube-apiserver, and with what strategic merge patches need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::schemas::V3;
use crate::kind::OpenApiSchemas;
use crate::schema::{ListMerge, MergeKeys};

/// The schemas of a kind and of everything in it, by their names.
pub(super) fn schemas(
    own: &OpenApiSchemas,
    merge_keys: Option<&MergeKeys>,
) -> BTreeMap<String, Value> {
    let all = (own.all)();
    let mut found = BTreeMap::new();
    let mut wanted = vec![own.root.clone()];
    while let Some(name) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let Some(schema) = all.get(&name) else { continue };
        let mut references = BTreeSet::new();
        let schema = one(&name, schema, merge_keys, &mut references);
        found.insert(name, schema);
        wanted.extend(references);
    }
    found
}

/// The schema of the kind alone.
pub(super) fn root(own: &OpenApiSchemas, merge_keys: Option<&MergeKeys>) -> Value {
    let schema = (own.all)().get(&own.root);
    schema
        .map(|schema| one(&own.root, schema, merge_keys, &mut BTreeSet::new()))
        .unwrap_or_default()
}

fn one(
    name: &str,
    schema: &Value,
    merge_keys: Option<&MergeKeys>,
    references: &mut BTreeSet<String>,
) -> Value {
    let mut schema = published(schema, references);
    if let Some(merge_keys) = merge_keys {
        add_merge_keys(name, &mut schema, merge_keys);
    }
    schema
}

/// A schema in the words of kube-apiserver; takes note of what it refers to.
fn published(schema: &Value, references: &mut BTreeSet<String>) -> Value {
    let Value::Object(given) = schema else { return schema.clone() };
    let mut published = Map::new();
    for (key, value) in given {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties = properties
                    .iter()
                    .map(|(name, one)| (name.clone(), self::published(one, references)));
                Value::Object(properties.collect())
            }
            ("items" | "additionalProperties", one) => self::published(one, references),
            // It is never asked for.
            ("required", Value::Array(names)) => {
                let left: Vec<Value> =
                    names.iter().filter(|name| *name != "metadata").cloned().collect();
                if left.is_empty() {
                    continue;
                }
                left.into()
            }
            ("x-kubernetes-int-or-string", _) => {
                published.insert("format".to_owned(), "int-or-string".into());
                published
                    .insert("oneOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
                continue;
            }
            ("$ref", Value::String(path)) => {
                let name = path.strip_prefix(V3).unwrap_or(path);
                references.insert(name.to_owned());
                // A reference stands alone.
                if given.len() > 1 {
                    published.insert("allOf".to_owned(), json!([{"$ref": path}]));
                    continue;
                }
                value.clone()
            }
            (_, other) => other.clone(),
        };
        published.insert(key.clone(), value);
    }
    Value::Object(published)
}

/// How the lists of a type are merged.
fn add_merge_keys(name: &str, schema: &mut Value, merge_keys: &MergeKeys) {
    let of = name.rsplit('.').next();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        let Some(how) = merge_keys.field(of, field) else { continue };
        let strategy = match (&how.list, how.retain_keys) {
            (ListMerge::Replace, false) => continue,
            (ListMerge::Replace, true) => "retainKeys",
            (ListMerge::Union | ListMerge::By(_), false) => "merge",
            (ListMerge::Union | ListMerge::By(_), true) => "merge,retainKeys",
        };
        property["x-kubernetes-patch-strategy"] = strategy.into();
        if let ListMerge::By(key) = &how.list {
            property["x-kubernetes-patch-merge-key"] = key.as_str().into();
        }
    }
}
