//! The published schemas of kinds: they include the fields that every object has, and are adapted to the limits of
//! clients.

use serde_json::{Map, Value, json};

use super::{kubernetes, typed};
use crate::kind::{Kind, Version};
use crate::schema::normalize_numbers;

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The path of schemas in an OpenAPI 3 document, and in an OpenAPI 2 document.
pub(super) const V3: &str = "#/components/schemas/";
pub(super) const V2: &str = "#/definitions/";

/// The name of a schema: `com.example.farm.v1alpha.Llama`.
pub(super) fn name(kind: &Kind, version: &Version, name: &str) -> String {
    if let Some(id) = version.schema.root_name() {
        let published = version.schema.types().published_name(id);
        let package = published.rsplit_once('.').map_or("", |(package, _)| package);
        return format!("{package}.{name}");
    }
    let reversed: Vec<&str> = kind.group.rsplit('.').collect();
    format!("{}.{}.{name}", reversed.join("."), version.name)
}

/// The kind that a schema or an operation belongs to.
pub(super) fn group_version_kind(kind: &Kind, version: &Version, name: &str) -> Value {
    json!({"group": kind.group, "kind": name, "version": version.name})
}

/// The schema of an object.
pub(super) fn object(kind: &Kind, version: &Version) -> Value {
    if let Some(id) = version.schema.root_name() {
        let schema = typed::root(version.schema.types(), id);
        return finish(kind, version, &kind.names.kind, schema);
    }
    let mut schema = publish(&version.open_api_schema());
    add_properties(&mut schema, kubernetes::map("object"));
    finish(kind, version, &kind.names.kind, schema)
}

/// The schema of a list.
pub(super) fn list(kind: &Kind, version: &Version) -> Value {
    let names = &kind.names;
    let types = version.schema.types();
    if let Some(id) = types.kind(&kind.group, &version.name, &names.list_kind) {
        return finish(kind, version, &names.list_kind, typed::root(types, id));
    }
    let item = format!("{V3}{}", name(kind, version, &names.kind));
    let mut properties = kubernetes::map("list").clone();
    properties.insert(
        "items".to_owned(),
        json!({
            "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", names.plural),
            "type": "array",
            "items": {"$ref": item},
        }),
    );
    let schema = json!({
        "description": format!("{} is a list of {}", names.list_kind, names.kind),
        "type": "object",
        "required": ["items"],
        "properties": properties,
    });
    finish(kind, version, &names.list_kind, schema)
}

fn finish(kind: &Kind, version: &Version, name: &str, mut schema: Value) -> Value {
    schema[GROUP_VERSION_KIND] = json!([group_version_kind(kind, version, name)]);
    let selectable: Vec<Value> =
        version.selectable.paths().map(|path| json!({"fieldPath": path})).collect();
    if !selectable.is_empty() {
        schema["x-kubernetes-selectable-fields"] = selectable.into();
    }
    schema
}

fn is_true(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn add_properties(schema: &mut Value, more: &Map<String, Value>) {
    let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
    properties.extend(more.clone());
    schema["properties"] = properties.into();
}

/// The schema of a definition in OpenAPI. Facts that only an extension expresses are added as plain OpenAPI.
fn publish(schema: &Value) -> Value {
    let Value::Object(given) = schema else { return normalize_numbers(schema) };
    let mut published = Map::new();
    for (key, value) in given {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => Value::Object(
                properties.iter().map(|(name, one)| (name.clone(), publish(one))).collect(),
            ),
            ("items" | "additionalProperties", one @ Value::Object(_)) => publish(one),
            ("allOf" | "anyOf" | "oneOf" | "not", judging) => opened(&normalize_numbers(judging)),
            (_, other) => normalize_numbers(other),
        };
        published.insert(key.clone(), value);
    }
    let mut published = Value::Object(published);
    if is_true(given, INT_OR_STRING) {
        unfold_int_or_string(&mut published);
    }
    if is_true(given, EMBEDDED) {
        add_properties(&mut published, kubernetes::map("embedded"));
        let mut required = given.get("required").and_then(Value::as_array).cloned();
        let required = required.get_or_insert_default();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|one| one == name) {
                required.push(name.into());
            }
        }
        published["required"] = required.clone().into();
    }
    published
}

/// The branches of `allOf`, `anyOf`, `oneOf` and `not`, without `additionalProperties: false`, which is not published.
fn opened(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let is_published = |(key, value): &(&String, &Value)| {
                key.as_str() != "additionalProperties" || **value != Value::Bool(false)
            };
            let members = members.iter().filter(is_published);
            Value::Object(members.map(|(key, value)| (key.clone(), opened(value))).collect())
        }
        Value::Array(items) => items.iter().map(opened).collect(),
        other => other.clone(),
    }
}

fn unfold_int_or_string(schema: &mut Value) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    if schema["anyOf"] == both || schema["allOf"][0]["anyOf"] == both {
        return;
    }
    if schema["anyOf"].is_null() {
        schema["anyOf"] = both;
    } else {
        let mut all = vec![json!({"anyOf": both})];
        all.extend(schema["allOf"].as_array().cloned().unwrap_or_default());
        schema["allOf"] = all.into();
    }
}

/// Converts a schema to OpenAPI 2. Keywords that OpenAPI 2 lacks, or that its clients do not support, are omitted.
pub(super) fn to_v2(schema: &Value, is_root: bool) -> Value {
    let Value::Object(given) = schema else { return schema.clone() };
    if is_root && is_true(given, PRESERVE) {
        return json!({"type": "object", GROUP_VERSION_KIND: given.get(GROUP_VERSION_KIND)});
    }
    let is_nullable = is_true(given, "nullable");
    let preserves = is_true(given, PRESERVE);
    let is_list_of_nothing =
        given.get("type").is_some_and(|name| name == "array") && !given.contains_key("items");
    let is_object = given.get("type").is_some_and(|name| name == "object");
    let mut converted = Map::new();
    for (key, value) in given {
        let leaves_out = match key.as_str() {
            "anyOf" | "oneOf" | "allOf" | "not" | "default" | "nullable" => true,
            "type" => is_nullable || is_list_of_nothing || (preserves && is_object),
            "items" | "properties" => is_nullable || preserves,
            "required" => preserves && is_true(given, EMBEDDED),
            _ => false,
        };
        if leaves_out {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => Value::Object(
                properties.iter().map(|(name, one)| (name.clone(), to_v2(one, false))).collect(),
            ),
            ("items" | "additionalProperties", one @ Value::Object(_)) => to_v2(one, false),
            ("required", Value::Array(names)) => {
                let may_be_null = |name: &Value| {
                    let property = given.get("properties").zip(name.as_str());
                    property.is_some_and(|(all, name)| all[name]["nullable"] == true)
                };
                let left: Vec<Value> =
                    names.iter().filter(|name| !may_be_null(name)).cloned().collect();
                if left.is_empty() {
                    continue;
                }
                left.into()
            }
            ("$ref", Value::String(path)) => path.replace(V3, V2).into(),
            (_, other) => other.clone(),
        };
        converted.insert(key.clone(), value);
    }
    // In OpenAPI 2, a reference has no wrapper.
    if let Some(path) = given.get("allOf").and_then(|all| all[0]["$ref"].as_str()) {
        converted.insert("$ref".to_owned(), path.replace(V3, V2).into());
    }
    Value::Object(converted)
}
