//! The types of values in expressions, derived from a schema.

use std::sync::Arc;

use kubernetes_cel::{Declared, Field, ListKind};
use serde_json::{Map, Value};

use super::super::definition::EMBEDDED;

type Node = Map<String, Value>;

/// Returns the type of the values of a schema in expressions; `None` if expressions cannot access them. For a resource,
/// `apiVersion`, `kind` and the names in `metadata` are added, unless its schema declares all of them.
pub(super) fn declared(schema: &Node, is_resource: bool) -> Option<Declared> {
    let declared = plain(schema, is_resource)?;
    let is_nullable = schema.get("nullable") == Some(&Value::Bool(true));
    Some(if is_nullable { declared.nullable() } else { declared })
}

/// Whether the objects of a schema are embedded resources.
pub(super) fn is_resource(schema: &Node) -> bool {
    schema.get(EMBEDDED) == Some(&Value::Bool(true))
}

fn plain(schema: &Node, is_resource: bool) -> Option<Declared> {
    let count = |key: &str| match schema.get(key)?.as_i64()? {
        negative if negative < 0 => Some(0),
        count => u64::try_from(count).ok(),
    };
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Some(Declared::int_or_string(count("maxLength")));
    }
    match text("type") {
        "boolean" => Some(Declared::boolean()),
        "integer" => Some(Declared::integer()),
        "number" => Some(Declared::number()),
        "string" => {
            let allowed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            let allowed: Vec<&str> = allowed.filter_map(Value::as_str).collect();
            Some(Declared::string(text("format"), count("maxLength"), &allowed))
        }
        "array" => {
            let items = child(schema, "items")?;
            let kind = match text("x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => ListKind::Map(texts(schema, "x-kubernetes-list-map-keys")),
                _ => ListKind::Atomic,
            };
            Some(Declared::list(Arc::new(of_child(items)?), count("maxItems"), &kind))
        }
        "object" => match child(schema, "additionalProperties") {
            Some(values) if !is_resource => {
                Some(Declared::map(Arc::new(of_child(values)?), count("maxProperties")))
            }
            _ => Some(object(schema, is_resource)),
        },
        _ => None,
    }
}

fn of_child(schema: &Node) -> Option<Declared> {
    declared(schema, is_resource(schema))
}

fn object(schema: &Node, is_resource: bool) -> Declared {
    let is_resource = is_resource && !declares_meta(schema);
    let required = texts(schema, "required");
    let properties = child(schema, "properties").into_iter().flatten();
    let mut fields: Vec<Field> = properties
        .filter_map(|(name, property)| Some((name, property.as_object()?)))
        .filter(|(name, _)| !(is_resource && is_meta(name)))
        .map(|(name, property)| Field {
            name: name.clone(),
            of: of_child(property).map(Arc::new),
            is_required: required.contains(name),
            has_default: property.contains_key("default"),
        })
        .collect();
    if is_resource {
        let field = |name: &str, of: Declared| Field {
            name: name.to_owned(),
            of: Some(Arc::new(of)),
            is_required: required.iter().any(|one| one == name),
            has_default: false,
        };
        let name = || Declared::string("", None, &[]);
        let names = Declared::object(vec![field("name", name()), field("generateName", name())]);
        fields.push(field("metadata", names));
        fields.extend(["kind", "apiVersion"].map(|meta| field(meta, name())));
    }
    Declared::object(fields)
}

/// Whether a schema declares all fields that expressions can access in a resource. If it does, expressions use its
/// declarations.
fn declares_meta(schema: &Node) -> bool {
    let is = |of: Option<&Node>, name: &str, type_name: &str| {
        let property = of.and_then(|properties| child(properties, name));
        property.and_then(|property| property.get("type")?.as_str()) == Some(type_name)
    };
    let properties = child(schema, "properties");
    let metadata = properties.and_then(|properties| child(properties, "metadata"));
    let names = metadata.and_then(|metadata| child(metadata, "properties"));
    is(properties, "kind", "string")
        && is(properties, "apiVersion", "string")
        && is(properties, "metadata", "object")
        && is(names, "name", "string")
        && is(names, "generateName", "string")
}

fn is_meta(name: &str) -> bool {
    ["kind", "apiVersion", "metadata"].contains(&name)
}

pub(super) fn child<'a>(schema: &'a Node, key: &str) -> Option<&'a Node> {
    schema.get(key).and_then(Value::as_object)
}

fn texts(schema: &Node, key: &str) -> Vec<String> {
    let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
