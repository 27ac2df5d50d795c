//! The types that a CustomResourceDefinition describes: its structural schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes_cel::escape;
use serde_json::{Map, Value};

use super::formats::is_recognized;
use super::node::{
    Additional, Constraints, JsonType, Junctors, ListType, Member, Node, PatchStrategy, Presence,
    Schema, Subtree, Type, TypeRef,
};
use super::rules::{NodeRules, RULES, Reach};
use super::{Pattern, Types};

/// Keywords that this server evaluates, and keywords that only describe.
const KNOWN: [&str; 36] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    EMBEDDED,
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    PRESERVE,
    RULES,
];
pub const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

impl Schema {
    /// Parses a schema that was found to be structural. Other schemas have no effect.
    pub fn of_definition(schema: &Value) -> Self {
        Self::new(Arc::clone(Types::meta()), reference(Place::ROOT, schema))
    }

    /// Returns the paths of keywords that constrain objects but are not enforced by this server yet.
    pub fn unenforced(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect_unenforced(self.root(), &mut found);
        found
    }

    /// Returns each pattern of the schema once, with its size in bytes when it is compiled.
    pub fn patterns(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        collect_patterns(self.root(), &mut found);
        found
    }
}

fn collect_patterns(of: Type<'_>, found: &mut BTreeMap<String, usize>) {
    if of.go.is_some() {
        return;
    }
    if let Some(pattern) = of.constraints().and_then(|more| more.pattern.as_ref()) {
        found.insert(pattern.to_string(), pattern.size());
    }
    for inner in inner_types(of) {
        collect_patterns(of.at(inner), found);
    }
}

fn collect_unenforced(of: Type<'_>, found: &mut Vec<String>) {
    // Go types have no such keywords, and can refer back to themselves.
    if of.go.is_some() {
        return;
    }
    let constraints = of.constraints();
    found.extend(constraints.into_iter().flat_map(|more| more.unenforced.iter().cloned()));
    for inner in inner_types(of) {
        collect_unenforced(of.at(inner), found);
    }
}

/// Returns the types that a type of a definition refers to.
fn inner_types<'a>(of: Type<'a>) -> impl Iterator<Item = &'a TypeRef> {
    let node = of.node();
    let members = node.members.iter().map(|(_, member)| &member.of);
    let additional = match &node.additional {
        Additional::Of(inner) => Some(inner),
        _ => None,
    };
    let judging = of.constraints().into_iter().flat_map(|more| more.junctors.iter());
    members.chain(&node.items).chain(additional).chain(judging)
}

/// The position of a node in a schema.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The path for warnings.
    path: &'a str,
    reach: Reach,
}

impl<'a> Place<'a> {
    const ROOT: Place<'static> = Place { path: "", reach: Reach::Declared };

    fn at(self, path: &'a str) -> Self {
        Self { path, ..self }
    }

    /// Returns the place of the elements of a node: of its `items` and its `additionalProperties`. Both have the
    /// element type of the node, if the node has elements.
    fn of_elements(self, holder: Holder) -> Self {
        let reach = match (self.reach, holder) {
            (Reach::Declared, Holder::Elements) => Reach::Declared,
            (Reach::Declared | Reach::Undeclared, _) => Reach::Undeclared,
            (Reach::Unseen, _) => Reach::Unseen,
        };
        Self { reach, ..self }
    }

    /// Returns the place of a property of a node. If expressions cannot use the name of the property, its type does not
    /// depend on the type of the node.
    fn of_member(self, holder: Holder, name: &str) -> Self {
        let reach = match (self.reach, holder) {
            (Reach::Unseen, _) => Reach::Unseen,
            _ if escape(name).is_none() => Reach::Declared,
            (Reach::Declared, Holder::Members) => Reach::Declared,
            _ => Reach::Unseen,
        };
        Self { reach, ..self }
    }
}

/// The kind of parts that the declared type of a node has.
#[derive(Clone, Copy)]
enum Holder {
    Elements,
    Members,
    Nothing,
}

impl Holder {
    fn of(schema: &Map<String, Value>, json_type: Option<JsonType>) -> Self {
        let has = |key: &str| schema.get(key).is_some_and(Value::is_object);
        match json_type {
            _ if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) => {
                Self::Nothing
            }
            Some(JsonType::Array) if has("items") => Self::Elements,
            Some(JsonType::Object) if has("additionalProperties") => Self::Elements,
            Some(JsonType::Object) => Self::Members,
            _ => Self::Nothing,
        }
    }
}

/// Parses a node of a schema.
fn reference(place: Place<'_>, schema: &Value) -> TypeRef {
    let nothing = Map::new();
    TypeRef::Own(Arc::new(node(place, schema.as_object().unwrap_or(&nothing))))
}

/// Parses a node, and adds its summary to `subtree`.
fn inner(place: Place<'_>, schema: &Value, subtree: &mut Subtree) -> TypeRef {
    let reference = reference(place, schema);
    if let TypeRef::Own(node) = &reference {
        subtree.add(node.subtree);
    }
    reference
}

fn node(place: Place<'_>, schema: &Map<String, Value>) -> Node {
    let path = place.path;
    let json_type = schema.get("type").and_then(Value::as_str).and_then(JsonType::parse);
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let texts = |key: &str| -> Vec<String> {
        let list = schema.get(key).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let holder = Holder::of(schema, json_type);
    let mut subtree = Subtree::default();
    let required = texts("required");
    let given = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let members = given.map(|(name, property)| {
        let member_path = format!("{path}.properties[{name}]");
        let place = place.of_member(holder, name);
        let of = inner(place.at(&member_path), property, &mut subtree);
        let default = property.get("default").cloned();
        subtree.defaults |= default.is_some();
        let member = Member {
            of,
            default,
            presence: Presence::Optional,
            is_pointer: false,
            number: 0,
            go_type: Box::default(),
            embedded_structs: Box::default(),
            patch: PatchStrategy::default(),
        };
        (name.as_str().into(), member)
    });
    let members = members.collect();
    let preserve = flag(PRESERVE);
    let additional = match schema.get("additionalProperties") {
        Some(Value::Bool(true)) => Additional::Unspecified,
        Some(Value::Bool(false)) => Additional::Forbidden,
        Some(more @ Value::Object(_)) => {
            let values = place.of_elements(holder);
            let path = format!("{path}.additionalProperties");
            Additional::Of(inner(values.at(&path), more, &mut subtree))
        }
        _ if preserve || json_type.is_none() => Additional::Any,
        _ => Additional::Pruned,
    };
    let items = schema.get("items").map(|items| {
        let elements = place.of_elements(holder);
        inner(elements.at(&format!("{path}.items")), items, &mut subtree)
    });
    let others = [schema.get("items"), schema.get("additionalProperties")];
    let default_of_element = others.into_iter().flatten().find_map(|one| one.get("default"));
    subtree.defaults |= default_of_element.is_some();
    let list_type = match text("x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts("x-kubernetes-list-map-keys")),
        Some("atomic") => ListType::Atomic,
        _ => ListType::Unset,
    };
    subtree.embedded |= flag(EMBEDDED);
    subtree.list_types |= !matches!(list_type, ListType::Unset | ListType::Atomic);
    let may_be_object = json_type.is_none_or(|json_type| json_type == JsonType::Object);
    let holds_anything = matches!(additional, Additional::Any | Additional::Unspecified);
    subtree.correlation |=
        matches!(list_type, ListType::Map(_)) || (may_be_object && holds_anything);
    let constraints = constraints(place, schema, required);
    let steps = constraints.as_ref().map_or(0, |constraints| constraints.steps());
    subtree.steps = subtree.steps.max(steps);
    let is_resource = path.is_empty() || flag(EMBEDDED);
    let rules = NodeRules::compile(schema, is_resource, place.reach);
    subtree.rules |= rules.is_some();
    Node {
        json_type,
        nullable: flag("nullable"),
        members,
        additional,
        preserves: preserve,
        items,
        default_of_element: default_of_element.cloned(),
        list_type,
        is_atomic: text("x-kubernetes-map-type") == Some("atomic"),
        format: text("format")
            .filter(|format| !format.is_empty() && is_recognized(format, text("type")))
            .map(Into::into),
        int_or_string: flag("x-kubernetes-int-or-string"),
        embedded: flag(EMBEDDED),
        constraints,
        rules,
        subtree,
        ..Node::default()
    }
}

/// Returns the constraints besides types, if there are any.
fn constraints(
    place: Place<'_>,
    schema: &Map<String, Value>,
    required: Vec<String>,
) -> Option<Box<Constraints>> {
    const NONE: [&str; 18] = [
        "additionalProperties",
        "default",
        "description",
        "example",
        "externalDocs",
        "format",
        "items",
        "nullable",
        "properties",
        "title",
        "type",
        EMBEDDED,
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        PRESERVE,
        RULES,
    ];
    if schema.keys().all(|key| NONE.contains(&key.as_str())) {
        return None;
    }
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    Some(Box::new(Constraints {
        enumeration: schema.get("enum").and_then(Value::as_array).cloned(),
        minimum: number("minimum").map(|bound| (bound, flag("exclusiveMinimum"))),
        maximum: number("maximum").map(|bound| (bound, flag("exclusiveMaximum"))),
        length: (count("minLength"), count("maxLength")),
        pattern: schema.get("pattern").and_then(Value::as_str).and_then(Pattern::parse),
        multiple_of: number("multipleOf"),
        required,
        member_count: (count("minProperties"), count("maxProperties")),
        item_count: (count("minItems"), count("maxItems")),
        junctors: junctors(place, schema),
        unenforced: unenforced(place.path, schema),
    }))
}

fn junctors(place: Place<'_>, schema: &Map<String, Value>) -> Junctors {
    let path = place.path;
    let list = |key: &str| -> Vec<TypeRef> {
        let given = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        let numbered = given.enumerate();
        let read = |(at, given)| reference(place.at(&format!("{path}.{key}[{at}]")), given);
        numbered.map(read).collect()
    };
    let not = schema.get("not").map(|not| reference(place.at(&format!("{path}.not")), not));
    Junctors { all_of: list("allOf"), any_of: list("anyOf"), one_of: list("oneOf"), not }
}

fn unenforced(path: &str, schema: &Map<String, Value>) -> Vec<String> {
    schema
        .iter()
        .filter(|(key, _)| match key.as_str() {
            "pattern" => {
                let pattern = schema.get("pattern").and_then(Value::as_str);
                pattern.is_some_and(|pattern| Pattern::parse(pattern).is_none())
            }
            key => !KNOWN.contains(&key),
        })
        .map(|(key, _)| format!("{path}.{key}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn enforced_constraints_are_read_from_a_definition() {
        let schema = Schema::of_definition(&json!({
            "type": "object",
            "properties": {"spec": {
                "type": "object",
                "required": ["weight"],
                "properties": {"weight": {"type": "number", "format": "double", "minimum": 0.0}},
            }},
        }));
        let (_, spec) = schema.root().member("spec").unwrap();
        assert_eq!(spec.constraints().unwrap().required, ["weight"]);
        let (member, weight) = spec.member("weight").unwrap();
        assert_eq!(member.presence, Presence::Optional);
        assert_eq!(weight.constraints().unwrap().minimum, Some((0.0, false)));
        assert!(schema.unenforced().is_empty());
    }

    #[test]
    fn rules_of_items_fail_under_a_type_without_items() {
        let ruled = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
        let list = json!({"type": "array", "items": ruled});
        let properties = json!({"type": "object", "properties": {"b": ruled}});
        for (property, value, expected) in [
            (list.clone(), json!([1]), None),
            (list.clone(), json!([0]), Some("failed rule: self > 0")),
            (json!({"type": "object", "items": ruled}), json!([1]), Some("declType")),
            (json!({"type": "object", "items": list}), json!([[1]]), Some("declType")),
            (json!({"type": "object", "items": properties}), json!([{"b": 0}]), None),
            (
                json!({"type": "object", "additionalProperties": ruled}),
                json!({"b": 0}),
                Some("failed rule: self > 0"),
            ),
        ] {
            let schema = json!({"type": "object", "properties": {"a": property}});
            let schema = Schema::of_definition(&schema);
            let Value::Object(object) = json!({"a": value}) else { return };
            let errors = crate::rules::judge(&schema, &object, None).errors;
            let told = errors.first().map(ToString::to_string).unwrap_or_default();
            match expected {
                None => assert!(errors.is_empty(), "{property}: {told}"),
                Some(part) => assert!(told.contains(part), "{property}: {told}"),
            }
        }
    }

    #[test]
    fn unenforced_parts_of_a_definition_are_listed() {
        let rows = [
            (json!({"type": "string", "pattern": "(?=a)"}), ".properties[a].pattern"),
            (
                json!({"type": "object", "oneOf": [{"x-more": false}]}),
                ".properties[a].oneOf[0].x-more",
            ),
        ];
        for (property, expected) in rows {
            let schema = json!({"type": "object", "properties": {"a": property}});
            assert_eq!(Schema::of_definition(&schema).unenforced(), [expected]);
        }
    }
}
