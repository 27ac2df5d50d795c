//! The structural schema of a version: what objects may hold.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Pattern;

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// `{}`
    Object,
    /// `[]`
    Array,
    /// `""`
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// `true` and `false`
    Boolean,
}

impl JsonType {
    /// The word of JSON Schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// What an object may hold besides its `properties`.
#[derive(Clone, Debug)]
pub enum Additional {
    /// Nothing: further members are pruned.
    Pruned,
    /// Nothing: further members are a fault.
    Forbidden,
    /// Anything without members of its own, as kube-apiserver takes `true`.
    Unspecified,
    /// Anything.
    Any,
    /// Members of this schema.
    Of(Box<Schema>),
}

/// What is the same in a list, and so may not be there twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Nothing.
    Atomic,
    /// Equal items.
    Set,
    /// Items in which these members are equal.
    Map(Vec<String>),
}

/// Schemas that judge a value together.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    /// Each of them must be satisfied.
    pub all_of: Vec<Schema>,
    /// At least one must be.
    pub any_of: Vec<Schema>,
    /// Exactly one must be.
    pub one_of: Vec<Schema>,
    /// It must not be.
    pub not: Option<Box<Schema>>,
}

impl Junctors {
    fn parse(path: &str, schema: &Map<String, Value>) -> Self {
        let list = |key: &str| -> Vec<Schema> {
            let given = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            let numbered = given.enumerate();
            numbered.map(|(at, given)| Schema::at(&format!("{path}.{key}[{at}]"), given)).collect()
        };
        let not = schema.get("not").map(|not| Schema::at(&format!("{path}.not"), not));
        Self {
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: not.map(Box::new),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.schemas().next().is_none()
    }

    fn schemas(&self) -> impl Iterator<Item = &Schema> {
        self.all_of.iter().chain(&self.any_of).chain(&self.one_of).chain(self.not.as_deref())
    }
}

/// A node of the schema.
#[derive(Clone, Debug)]
pub struct Schema {
    /// `None` where anything goes.
    pub json_type: Option<JsonType>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// Members that are known.
    pub properties: BTreeMap<String, Schema>,
    /// Members that are not.
    pub additional: Additional,
    /// Members that must be there.
    pub required: Vec<String>,
    /// What a list holds.
    pub items: Option<Box<Schema>>,
    /// The only values allowed.
    pub enumeration: Option<Vec<Value>>,
    /// Lower and upper bound of a number; `true` excludes the bound itself.
    pub minimum: Option<(f64, bool)>,
    /// See `minimum`.
    pub maximum: Option<(f64, bool)>,
    /// Shortest and longest text, in characters.
    pub length: (Option<u64>, Option<u64>),
    /// A format, of a number or a text.
    pub format: Option<String>,
    /// What a text must match somewhere.
    pub pattern: Option<Pattern>,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// Fewest and most members.
    pub member_count: (Option<u64>, Option<u64>),
    /// Whether it is a whole number or a text.
    pub int_or_string: bool,
    /// Schemas that judge the same value together.
    pub junctors: Junctors,
    /// What is the same in a list.
    pub list_type: ListType,
    /// What is there if nothing else is.
    pub default: Option<Value>,
    /// Whether there is a default at or below it.
    pub has_defaults: bool,
    /// Whether there is a list that is not atomic at or below it.
    pub has_list_types: bool,
    /// Whether it is a resource of its own, with `apiVersion`, `kind` and
    /// `metadata`.
    pub embedded: bool,
    /// Whether there is such a resource at or below it.
    pub has_embedded: bool,
    /// Fewest and most items.
    pub item_count: (Option<u64>, Option<u64>),
    /// Keywords that say something which is not enforced here.
    unenforced: Vec<String>,
}

/// Keywords that this server reads or that only describe.
const KNOWN: [&str; 35] = [
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
];
pub const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

impl Schema {
    /// Reads a schema that was found to be structural; what is not, says nothing.
    pub fn parse(schema: &Value) -> Self {
        Self::at("", schema)
    }

    fn at(path: &str, schema: &Value) -> Self {
        let nothing = Map::new();
        let schema = schema.as_object().unwrap_or(&nothing);
        let json_type = schema.get("type").and_then(Value::as_str).and_then(JsonType::parse);
        let given = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let properties = given.map(|(name, property)| {
            (name.clone(), Self::at(&format!("{path}.properties[{name}]"), property))
        });
        let preserve = schema.get(PRESERVE) == Some(&Value::Bool(true));
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) if preserve => Additional::Any,
            Some(Value::Bool(true)) => Additional::Unspecified,
            Some(Value::Bool(false)) => Additional::Forbidden,
            Some(inner @ Value::Object(_)) => {
                Additional::Of(Box::new(Self::at(&format!("{path}.additionalProperties"), inner)))
            }
            _ if preserve || json_type.is_none() => Additional::Any,
            _ => Additional::Pruned,
        };
        let items = schema.get("items").map(|items| Self::at(&format!("{path}.items"), items));
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let texts = |key: &str| -> Vec<String> {
            let list = schema.get(key).and_then(Value::as_array);
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let properties: BTreeMap<String, Self> = properties.collect();
        let list_type = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(texts("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        };
        let default = schema.get("default").cloned();
        let below = |is: fn(&Self) -> bool| {
            let of_others = if let Additional::Of(inner) = &additional { is(inner) } else { false };
            properties.values().any(is) || items.as_ref().is_some_and(is) || of_others
        };
        let has_defaults = default.is_some() || below(|below| below.has_defaults);
        let has_embedded = flag(EMBEDDED) || below(|below| below.has_embedded);
        let has_list_types = list_type != ListType::Atomic || below(|below| below.has_list_types);
        Self {
            pattern: schema.get("pattern").and_then(Value::as_str).and_then(Pattern::parse),
            multiple_of: number("multipleOf"),
            member_count: (count("minProperties"), count("maxProperties")),
            int_or_string: flag("x-kubernetes-int-or-string"),
            junctors: Junctors::parse(path, schema),
            list_type,
            default,
            has_defaults,
            has_list_types,
            embedded: flag(EMBEDDED),
            has_embedded,
            json_type,
            nullable: flag("nullable"),
            properties,
            additional,
            required: texts("required"),
            items: items.map(Box::new),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned(),
            minimum: number("minimum").map(|bound| (bound, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|bound| (bound, flag("exclusiveMaximum"))),
            length: (count("minLength"), count("maxLength")),
            format: schema.get("format").and_then(Value::as_str).map(str::to_owned),
            item_count: (count("minItems"), count("maxItems")),
            unenforced: unenforced(path, schema),
        }
    }

    /// Keywords, with their paths, that bind objects and are not enforced by
    /// this server yet.
    pub fn unenforced(&self) -> Vec<&str> {
        let additional = match &self.additional {
            Additional::Of(schema) => Some(&**schema),
            _ => None,
        };
        let nested = self.properties.values().chain(self.items.as_deref()).chain(additional);
        let nested = nested.chain(self.junctors.schemas());
        let own = self.unenforced.iter().map(String::as_str);
        own.chain(nested.flat_map(Self::unenforced)).collect()
    }
}

fn unenforced(path: &str, schema: &Map<String, Value>) -> Vec<String> {
    schema
        .iter()
        .filter(|(key, _)| match key.as_str() {
            "pattern" => {
                let pattern = schema.get("pattern").and_then(Value::as_str);
                pattern.is_some_and(|pattern| Pattern::parse(pattern).is_none())
            }
            // Of a whole object nobody has asked for them.
            "minProperties" | "maxProperties" | "enum" => path.is_empty(),
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
    fn reads_what_is_enforced() {
        let schema = Schema::parse(&json!({
            "type": "object",
            "properties": {"spec": {
                "type": "object",
                "required": ["weight"],
                "properties": {"weight": {"type": "number", "format": "double", "minimum": 0.0}},
            }},
        }));
        let spec = &schema.properties["spec"];
        assert_eq!(spec.required, ["weight"]);
        assert_eq!(spec.properties["weight"].minimum, Some((0.0, false)));
        assert!(schema.unenforced().is_empty());
    }

    #[test]
    fn names_what_is_not_enforced() {
        let rows = [
            (json!({"type": "string", "pattern": "(?=a)"}), ".properties[a].pattern"),
            (
                json!({"type": "array", "items": {"type": "object", "x-kubernetes-validations": []}}),
                ".properties[a].items.x-kubernetes-validations",
            ),
            (
                json!({"type": "object", "oneOf": [{"x-more": false}]}),
                ".properties[a].oneOf[0].x-more",
            ),
        ];
        for (property, expected) in rows {
            let schema = json!({"type": "object", "properties": {"a": property}});
            assert_eq!(Schema::parse(&schema).unenforced(), [expected]);
        }
    }
}
