//! Checks whether a schema is structural, with the messages of kube-apiserver.
//!
//! Outside of `anyOf`, `oneOf`, `allOf` and `not`, each node declares its type. Inside of them, there are only
//! constraints on values, and only for values that are declared outside too.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::definition::{EMBEDDED, PRESERVE};
use super::node::JsonType;
use super::rules::{RULES, check_shape};
use super::{ERRORS_LIMIT, Pattern};
use crate::error::{FieldError, quote};

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";

type Node = Map<String, Value>;

/// Checks the schema of a whole object. `path` is the path of the schema.
pub fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let Some(root) = schema.as_object() else {
        return vec![FieldError::invalid(path, schema, "must be an object")];
    };
    let mut errors = Vec::new();
    if is_true(root, "nullable") {
        let field = format!("{path}.nullable");
        errors.push(FieldError::forbidden(field, "nullable cannot be true at the root"));
    }
    let mut keywords = Vec::new();
    check_keywords(root, path, &Place { is_root: true, ..Place::default() }, &mut keywords);
    // A schema with unsupported keywords is not checked further.
    if !has_unsupported(root) {
        let mut structure = Vec::new();
        check_structure(root, Level::Root, path, &mut structure);
        check_complete(root, Some(root), path, path, &mut structure);
        structure.sort_by_cached_key(ToString::to_string);
        errors.append(&mut structure);
    }
    errors.append(&mut keywords);
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn is_true(node: &Node, key: &str) -> bool {
    node.get(key) == Some(&Value::Bool(true))
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn child<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.get(key).and_then(Value::as_object)
}

fn properties(node: &Node) -> impl Iterator<Item = (&String, &Node)> {
    let properties = child(node, "properties").into_iter().flatten();
    properties.filter_map(|(name, property)| Some((name, property.as_object()?)))
}

fn branches<'a>(node: &'a Node, key: &str) -> impl Iterator<Item = (usize, &'a Node)> {
    let branches = node.get(key).and_then(Value::as_array).into_iter().flatten();
    branches.enumerate().filter_map(|(index, branch)| Some((index, branch.as_object()?)))
}

/// Whether `anyOf` allows integers and strings: the only form in which it can contain types.
fn is_int_or_string(node: &Node) -> bool {
    let any_of: Vec<_> = branches(node, "anyOf").collect();
    let says = |index: usize, name: &str| {
        let (_, branch): (usize, &Node) = any_of[index];
        branch.len() == 1 && text(branch, "type") == name
    };
    any_of.len() == 2 && says(0, "integer") && says(1, "string")
}

fn check_structure(node: &Node, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let type_name = text(node, "type");
    if type_name == "array" && child(node, "items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = child(node, "items") {
        check_structure(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(node) {
        let path = format!("{path}.properties[{name}]");
        check_structure(property, Level::Field, &path, errors);
    }
    let additional = format!("{path}.additionalProperties");
    if node.contains_key("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(&additional, "must not be used at the root"));
        }
        if let Some(schema) = child(node, "additionalProperties") {
            check_structure(schema, Level::Field, &additional, errors);
        }
    }
    for key in [PRESERVE, EMBEDDED] {
        if is_true(node, INT_OR_STRING) && is_true(node, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{key}"), true, detail));
        }
    }
    let skip_any_of = is_int_or_string(node);
    let first = branches(node, "allOf").next();
    let skip_first = first.is_some_and(|(_, first)| is_int_or_string(first));
    check_values(node, skip_any_of, skip_first, path, errors);
    check_type(node, level, path, errors);
    if is_true(node, EMBEDDED) {
        if node.contains_key("additionalProperties") {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(&additional, detail));
        }
        if !is_true(node, PRESERVE) && properties(node).next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(format!("{path}.properties"), detail));
        }
    }
    if level == Level::Root || is_true(node, EMBEDDED) {
        check_meta(node, level, path, errors);
    }
}

fn check_type(node: &Node, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let type_name = text(node, "type");
    let field = format!("{path}.type");
    if is_true(node, EMBEDDED) && type_name != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(required_or_invalid(field, type_name, detail));
    } else if type_name.is_empty() && !is_true(node, INT_OR_STRING) && !is_true(node, PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field, detail));
    } else if level == Level::Root && !type_name.is_empty() && type_name != "object" {
        errors.push(FieldError::invalid(field, quote(type_name), "must be object at the root"));
    }
}

/// Checks the declarations of `kind`, `apiVersion` and `metadata`, which exist without a declaration.
fn check_meta(node: &Node, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    for (name, property) in properties(node) {
        let path = format!("{path}.properties[{name}]");
        let type_name = text(property, "type");
        let must = match name.as_str() {
            "kind" | "apiVersion" => "string",
            "metadata" => "object",
            _ => continue,
        };
        if type_name != must {
            let field = format!("{path}.type");
            errors.push(FieldError::invalid(field, quote(type_name), &format!("must be {must}")));
        }
        if name == "metadata" && level == Level::Root && says_more_than_names(property) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

fn says_more_than_names(metadata: &Node) -> bool {
    let mut names = properties(metadata).map(|(name, _)| name.as_str());
    let only_names = names.all(|name| ["name", "generateName"].contains(&name));
    let known = ["type", "properties", "default"];
    !only_names || metadata.keys().any(|key| !known.contains(&key.as_str()))
}

/// Checks constraints on values: the schemas of `anyOf`, `allOf`, `oneOf` and `not`, and the pattern.
fn check_values(
    node: &Node,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (index, branch) in branches(node, "anyOf").filter(|_| !skip_any_of) {
        check_nested(branch, false, &format!("{path}.anyOf[{index}]"), errors);
    }
    for (index, branch) in branches(node, "allOf") {
        let skip = skip_first_all_of && index == 0;
        check_nested(branch, skip, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in branches(node, "oneOf") {
        check_nested(branch, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(not) = child(node, "not") {
        check_nested(not, false, &format!("{path}.not"), errors);
    }
    let pattern = text(node, "pattern");
    if let Err(why) = Pattern::check(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), quote(pattern), &detail));
    }
}

fn check_nested(node: &Node, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (PRESERVE, "must be false to be structural"),
        (EMBEDDED, "must be false to be structural"),
        (INT_OR_STRING, "must be false to be structural"),
        (LIST_KEYS, "must be empty to be structural"),
        (LIST_TYPE, "must be undefined to be structural"),
        (MAP_TYPE, "must be undefined to be structural"),
    ];
    check_values(node, skip_any_of, false, path, errors);
    if let Some(items) = child(node, "items") {
        check_nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(node) {
        check_nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    for (key, detail) in FORBIDDEN {
        let is_said = match node.get(key) {
            None | Some(Value::Null) => false,
            // `additionalProperties: false` is a constraint on the value.
            Some(Value::Bool(said)) => *said,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        if is_said {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if node.get(RULES).and_then(Value::as_array).is_some_and(|rules| !rules.is_empty()) {
        let detail = "must be empty to be structural";
        errors.push(FieldError::forbidden(format!("{path}.{RULES}"), detail));
    }
    if properties(node).any(|(name, _)| name == "metadata") {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Checks that everything in `anyOf`, `oneOf`, `allOf` and `not` is also declared outside of them. The check starts at
/// the root and follows only these keywords, as in kube-apiserver.
fn check_complete(
    values: &Node,
    described: Option<&Node>,
    at: &str,
    because: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = child(values, "not") {
        check_described(not, described, at, &format!("{because}.not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in branches(values, key) {
            check_described(branch, described, at, &format!("{because}.{key}[{index}]"), errors);
        }
    }
}

fn check_described(
    values: &Node,
    described: Option<&Node>,
    at: &str,
    because: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(described) = described else {
        errors.push(FieldError::required(at, &format!("because it is defined in {because}")));
        return;
    };
    check_complete(values, Some(described), at, because, errors);
    if let Some(items) = child(values, "items") {
        let because = format!("{because}.items");
        check_described(items, child(described, "items"), &format!("{at}.items"), &because, errors);
    }
    let known = child(described, "properties");
    for (name, property) in properties(values) {
        let (at, because) =
            (format!("{at}.properties[{name}]"), format!("{because}.properties[{name}]"));
        check_described(
            property,
            known.and_then(|known| child(known, name)),
            &at,
            &because,
            errors,
        );
    }
}

/// Keywords that a definition must not contain.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

fn has_unsupported(node: &Node) -> bool {
    let own = UNSUPPORTED.iter().any(|key| node.contains_key(*key))
        || text(node, "type") == "null"
        || node.get("items").is_some_and(|items| !items.is_object());
    own || nested(node).into_iter().any(|(_, node)| has_unsupported(node))
}

/// Returns all schemas directly below a schema, with their paths.
fn nested(node: &Node) -> Vec<(String, &Node)> {
    let mut nested = Vec::new();
    for key in ["additionalProperties", "not", "items"] {
        nested.extend(child(node, key).map(|schema| (key.to_owned(), schema)));
    }
    for (name, property) in properties(node) {
        nested.push((format!("properties[{name}]"), property));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        nested.extend(branches(node, key).map(|(index, one)| (format!("{key}[{index}]"), one)));
    }
    nested
}

/// The position of a schema.
#[derive(Clone, Default)]
struct Place {
    is_root: bool,
    /// Whether the schema is below `metadata`, `kind` or `apiVersion` of an object.
    in_meta: bool,
    /// The reason why defaults are forbidden here, if they are.
    no_default: Option<String>,
}

/// Checks single keywords, at every node.
fn check_keywords(node: &Node, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    let type_name = text(node, "type");
    let mut forbid = |key: &str, detail: &str| {
        errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
    };
    if let Some(why) = place.no_default.as_ref().filter(|_| node.contains_key("default")) {
        forbid("default", &format!("must not be set {why}"));
    }
    for key in UNSUPPORTED {
        if node.contains_key(key) {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    if type_name == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if node.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_meta && is_true(node, EMBEDDED) {
        forbid(EMBEDDED, "must not be used inside of resource meta");
    }
    if is_true(node, "uniqueItems") {
        forbid(
            "uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let additional = node.get("additionalProperties");
    if additional.is_some_and(|given| *given != Value::Bool(true))
        && properties(node).next().is_some()
    {
        forbid("additionalProperties", "additionalProperties and properties are mutual exclusive");
    }
    if !type_name.is_empty() && JsonType::parse(type_name).is_none() {
        let supported = ["array", "boolean", "integer", "number", "object", "string"];
        let field = format!("{path}.type");
        errors.push(FieldError::not_supported(field, quote(type_name), &supported));
    }
    for (key, schema) in nested(node) {
        let place = place_of(node, &key, place);
        check_keywords(schema, &format!("{path}.{key}"), &place, errors);
    }
    if node.get(PRESERVE) == Some(&Value::Bool(false)) {
        let field = format!("{path}.{PRESERVE}");
        errors.push(FieldError::invalid(field, false, "must be true or undefined"));
    }
    check_map_type(node, path, errors);
    check_list_type(node, path, errors);
    check_shape(node, path, errors);
}

fn place_of(node: &Node, key: &str, place: &Place) -> Place {
    let mut below = Place { is_root: false, ..place.clone() };
    if key == "additionalProperties" && place.in_meta {
        let why = "inside additionalProperties applying to object metadata";
        below.no_default = Some(why.to_owned());
    }
    let name = key.strip_prefix("properties[").and_then(|key| key.strip_suffix(']'));
    let is_meta = name.is_some_and(|name| ["metadata", "kind", "apiVersion"].contains(&name));
    if is_meta && (place.is_root || is_true(node, EMBEDDED)) {
        below.in_meta = true;
        if place.is_root {
            below.no_default = Some(format!("in top-level {}", name.unwrap_or_default()));
        }
    }
    below
}

fn check_map_type(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map_type) = node.get(MAP_TYPE).and_then(Value::as_str) else { return };
    let type_name = text(node, "type");
    if type_name != "object" {
        let detail = "must be object if x-kubernetes-map-type is specified";
        errors.push(required_or_invalid(format!("{path}.type"), type_name, detail));
    }
    let supported = ["atomic", "granular"];
    if !supported.contains(&map_type) {
        let field = format!("{path}.{MAP_TYPE}");
        errors.push(FieldError::not_supported(field, quote(map_type), &supported));
    }
}

fn check_list_type(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    // An empty string counts as given, but is not a list type.
    let is_given = node.get(LIST_TYPE).is_some_and(Value::is_string);
    let list_type = text(node, LIST_TYPE);
    let type_name = text(node, "type");
    let items = child(node, "items");
    let keys: Vec<&str> = node
        .get(LIST_KEYS)
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |keys| keys.iter().filter_map(Value::as_str).collect());
    let field = format!("{path}.{LIST_TYPE}");
    if is_given && type_name != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        errors.push(required_or_invalid(format!("{path}.type"), type_name, detail));
    } else if let ("set", Some(items)) = (list_type, items) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let key = match text(items, "type") {
            "array" if !["", "atomic"].contains(&text(items, LIST_TYPE)) => Some(LIST_TYPE),
            "object" if text(items, MAP_TYPE) != "atomic" => Some(MAP_TYPE),
            _ => None,
        };
        if let Some(key) = key {
            let shown = items.get(LIST_TYPE).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("{path}.items.{key}"), shown, detail));
        }
    }
    let supported = ["atomic", "set", "map"];
    if is_given && !supported.contains(&list_type) {
        errors.push(FieldError::not_supported(field.clone(), quote(list_type), &supported));
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(required_or_invalid(field, list_type, detail));
    }
    if list_type == "map" {
        check_list_keys(items, &keys, path, errors);
    }
    let is_nullable = items.is_some_and(|items| is_true(items, "nullable"));
    if is_nullable && ["map", "set"].contains(&list_type) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &detail));
    }
}

fn check_list_keys(items: Option<&Node>, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.{LIST_KEYS}");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&field, detail));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let type_name = text(items, "type");
    if type_name != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), quote(type_name), detail));
        return;
    }
    let shown = Value::from(keys.to_vec()).to_string();
    let known = child(items, "properties");
    let required = items.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
    let mut seen = HashSet::new();
    for key in keys {
        // Each error shows all keys.
        if errors.len() >= ERRORS_LIMIT {
            return;
        }
        match known.and_then(|known| child(known, key)) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&field, &shown, detail));
            }
            Some(property) => {
                if ["array", "object"].contains(&text(property, "type")) {
                    let field = format!("{path}.items.properties[{key}].type");
                    let detail =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(field, quote(type_name), detail));
                }
                if is_true(property, "nullable") {
                    let field = format!("{path}.items.properties[{key}].nullable");
                    let detail =
                        "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.push(FieldError::forbidden(field, detail));
                }
                if !required.contains(key) && !property.contains_key("default") {
                    let field = format!("{path}.items.properties[{key}].default");
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(field, detail));
                }
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(&field, &shown, "must not contain duplicate entries"));
        }
    }
}

fn required_or_invalid(field: String, value: &str, detail: &str) -> FieldError {
    if value.is_empty() {
        FieldError::required(field, detail)
    } else {
        FieldError::invalid(field, quote(value), detail)
    }
}
