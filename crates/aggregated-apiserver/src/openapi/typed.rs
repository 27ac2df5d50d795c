//! The schemas of Kubernetes' own types, in the format of kube-apiserver: generated from the graph of types, with the
//! descriptions of the types, if there are any.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schemas::V3;
use crate::schema::{GoType, ListMerge, ListType, Member, Presence, Type, TypeId, TypeRef, Types};

/// The schemas of a type and of all types that it references, by name.
pub(super) fn schemas(types: &Types, root: TypeId) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut wanted = vec![root];
    while let Some(id) = wanted.pop() {
        let name = types.published_name(id);
        found.entry(name).or_insert_with(|| named(types, id, &mut wanted));
    }
    found
}

/// The schema of a type, without those of the types that it references.
pub(super) fn root(types: &Types, id: TypeId) -> Value {
    named(types, id, &mut Vec::new())
}

fn named(types: &Types, id: TypeId, wanted: &mut Vec<TypeId>) -> Value {
    let of = types.get(id);
    let described = types.description(&types.published_name(id));
    let mut schema = match of.go {
        Some(GoType::Struct) => object(types, of, described, wanted),
        _ => special(of),
    };
    if let Some(text) = described.and_then(|described| described.get("description")) {
        schema["description"] = text.clone();
    }
    schema
}

fn object(
    types: &Types,
    of: Type<'_>,
    described: Option<&Value>,
    wanted: &mut Vec<TypeId>,
) -> Value {
    let mut schema = json!({"type": "object"});
    let mut properties = Map::new();
    for (name, member) in of.members.iter() {
        properties.insert(name.to_owned(), property(types, of, member, wanted));
    }
    for (name, property) in &mut properties {
        let text = described
            .and_then(|described| described.get("properties")?.get(name)?.get("description"));
        if let Some(text) = text {
            stand_beside(property);
            property["description"] = text.clone();
        }
    }
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    if let Some(constraints) = of.constraints() {
        schema["required"] = constraints.required.clone().into();
    }
    if of.is_atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    schema
}

fn property(types: &Types, of: Type<'_>, member: &Member, wanted: &mut Vec<TypeId>) -> Value {
    let mut schema = reference(types, &member.of, wanted);
    let default = member.default.clone().or_else(|| implied(of.at(&member.of), member));
    if let Some(default) = default.filter(|default| !default.is_null()) {
        stand_beside(&mut schema);
        schema["default"] = default;
    }
    let strategy = match (&member.patch.list, member.patch.retain_keys) {
        (ListMerge::Replace, false) if member.patch.replaces_object => "replace",
        (ListMerge::Replace, false) => return schema,
        (ListMerge::Replace, true) => "retainKeys",
        (ListMerge::Union | ListMerge::By(_), false) => "merge",
        (ListMerge::Union | ListMerge::By(_), true) => "merge,retainKeys",
    };
    stand_beside(&mut schema);
    schema["x-kubernetes-patch-strategy"] = strategy.into();
    if let ListMerge::By(key) = &member.patch.list {
        schema["x-kubernetes-patch-merge-key"] = (&**key).into();
    }
    schema
}

/// Wraps a reference in `allOf`, because a reference must not have other keywords beside it.
fn stand_beside(schema: &mut Value) {
    if let Some(reference) = schema.get("$ref").cloned() {
        *schema = json!({"allOf": [{"$ref": reference}]});
    }
}

fn reference(types: &Types, reference: &TypeRef, wanted: &mut Vec<TypeId>) -> Value {
    let of = types.at(reference);
    if let Some(id) = of.granular_of {
        wanted.push(id);
        let reference = format!("{V3}{}", types.published_name(id));
        return json!({"allOf": [{"$ref": reference}], "x-kubernetes-map-type": "granular"});
    }
    match (reference, of.go) {
        (_, Some(GoType::List)) => {
            let mut schema = json!({"type": "array", "items": element(types, of, wanted)});
            match &of.list_type {
                ListType::Unset => {}
                ListType::Atomic => schema["x-kubernetes-list-type"] = "atomic".into(),
                ListType::Set => schema["x-kubernetes-list-type"] = "set".into(),
                ListType::Map(keys) => {
                    schema["x-kubernetes-list-type"] = "map".into();
                    schema["x-kubernetes-list-map-keys"] = keys.clone().into();
                }
            }
            schema
        }
        (_, Some(GoType::Map)) => {
            let inner = element(types, of, wanted);
            let mut schema = json!({"type": "object", "additionalProperties": inner});
            if of.is_atomic {
                schema["x-kubernetes-map-type"] = "atomic".into();
            }
            schema
        }
        (_, Some(GoType::Strings)) => {
            json!({"type": "array", "items": {"type": "string", "default": ""}})
        }
        (TypeRef::Named(id), _) if !of.name.is_empty() => {
            wanted.push(*id);
            json!({"$ref": format!("{V3}{}", types.published_name(*id))})
        }
        _ => {
            let mut schema = special(of);
            // Bytes are a list in Go.
            if of.list_type == ListType::Atomic {
                schema["x-kubernetes-list-type"] = "atomic".into();
            }
            schema
        }
    }
}

/// The schema of the elements of a list or a map. An element is never null.
fn element(types: &Types, of: Type<'_>, wanted: &mut Vec<TypeId>) -> Value {
    let Some((inner, of)) = of.element() else { return json!({}) };
    let mut schema = reference(types, inner, wanted);
    if let Some(zero) = zero(of) {
        stand_beside(&mut schema);
        schema["default"] = zero;
    }
    schema
}

/// The default of a field that is required and no pointer in Go.
fn implied(of: Type<'_>, member: &Member) -> Option<Value> {
    zero(of).filter(|_| member.presence == Presence::Required && !member.is_pointer)
}

fn zero(of: Type<'_>) -> Option<Value> {
    match of.go? {
        GoType::String => Some("".into()),
        GoType::Bool => Some(false.into()),
        GoType::Int32 | GoType::Int64 | GoType::Float64 => Some(0.into()),
        GoType::Struct => Some(json!({})),
        _ => None,
    }
}

/// The schema of a type without fields.
fn special(of: Type<'_>) -> Value {
    match of.go {
        Some(GoType::Bool) => json!({"type": "boolean"}),
        Some(GoType::Int32) => json!({"type": "integer", "format": "int32"}),
        Some(GoType::Int64) => json!({"type": "integer", "format": "int64"}),
        Some(GoType::Float64) => json!({"type": "number", "format": "double"}),
        Some(GoType::String) => json!({"type": "string"}),
        Some(GoType::Bytes) => json!({"type": "string", "format": "byte"}),
        Some(GoType::Time | GoType::MicroTime) => json!({"type": "string", "format": "date-time"}),
        Some(GoType::Quantity) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Some(GoType::IntOrString) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        // The type `JSON` in a definition has an empty schema.
        Some(GoType::Json) if of.name != "JSON" => json!({"type": "object"}),
        _ => json!({}),
    }
}
