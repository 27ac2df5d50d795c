//! The keywords that the root of a schema can have if `status` is a subresource.

use serde_json::{Map, Value};

use super::rules::rule_as_go_shows;
use crate::error::{FieldError, quote};
use crate::object::to_html_json;

/// Keywords with their names in Go, in the order of the Go type. The flag is set if the keyword is allowed.
const KEYWORDS: [(&str, &str, bool); 44] = [
    ("ID", "id", false),
    ("Schema", "$schema", false),
    ("Ref", "$ref", false),
    ("Description", "description", true),
    ("Type", "type", true),
    ("Nullable", "nullable", false),
    ("Format", "format", true),
    ("Title", "title", true),
    ("Default", "default", false),
    ("Maximum", "maximum", true),
    ("ExclusiveMaximum", "exclusiveMaximum", true),
    ("Minimum", "minimum", true),
    ("ExclusiveMinimum", "exclusiveMinimum", true),
    ("MaxLength", "maxLength", true),
    ("MinLength", "minLength", true),
    ("Pattern", "pattern", true),
    ("MaxItems", "maxItems", true),
    ("MinItems", "minItems", true),
    ("UniqueItems", "uniqueItems", true),
    ("MultipleOf", "multipleOf", true),
    ("Enum", "enum", false),
    ("MaxProperties", "maxProperties", false),
    ("MinProperties", "minProperties", false),
    ("Required", "required", true),
    ("Items", "items", true),
    ("AllOf", "allOf", false),
    ("OneOf", "oneOf", false),
    ("AnyOf", "anyOf", false),
    ("Not", "not", false),
    ("Properties", "properties", true),
    ("AdditionalProperties", "additionalProperties", false),
    ("PatternProperties", "patternProperties", false),
    ("Dependencies", "dependencies", false),
    ("AdditionalItems", "additionalItems", false),
    ("Definitions", "definitions", false),
    ("ExternalDocs", "externalDocs", true),
    ("Example", "example", true),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", true),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", false),
    ("XIntOrString", "x-kubernetes-int-or-string", false),
    ("XListMapKeys", "x-kubernetes-list-map-keys", false),
    ("XListType", "x-kubernetes-list-type", false),
    ("XMapType", "x-kubernetes-map-type", false),
    ("XValidations", "x-kubernetes-validations", true),
];

/// Checks the root of a schema, which is at `path`, for a version whose `status` is a subresource. Returns an error for
/// the first keyword that would not apply to a status that is validated alone.
pub fn check_beside_status(schema: &Value, path: &str) -> Option<FieldError> {
    let root = schema.as_object()?;
    for (_, keyword, may_stand) in KEYWORDS {
        let given = root.get(keyword).filter(|given| !is_nothing(given));
        match given {
            Some(Value::String(given)) if keyword == "type" && given != "object" => {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                return Some(FieldError::invalid(format!("{path}.type"), quote(given), why));
            }
            Some(_) if !may_stand => {
                let names = KEYWORDS.iter().filter(|(_, _, may_stand)| *may_stand);
                let names: Vec<&str> = names.map(|(name, ..)| *name).collect();
                let why = format!(
                    "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                    names.join(" ")
                );
                return Some(FieldError::invalid(path, as_go_shows(root), &why));
            }
            _ => {}
        }
    }
    None
}

/// Whether Go decodes the value as a zero value.
fn is_nothing(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false)) || *value == ""
}

/// Formats a schema as Go's encoder formats its Go type.
fn as_go_shows(schema: &Map<String, Value>) -> String {
    let field = |(name, keyword, _): &(&str, &str, bool)| {
        format!("\"{name}\":{}", keyword_as_go_shows(name, schema.get(*keyword)))
    };
    object(KEYWORDS.iter().map(field))
}

fn keyword_as_go_shows(name: &str, value: Option<&Value>) -> String {
    let schema = |value: &Value| value.as_object().map_or("null".to_owned(), as_go_shows);
    let list = |show: &dyn Fn(&Value) -> String| {
        value.and_then(Value::as_array).map_or("null".to_owned(), |values| {
            format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(","))
        })
    };
    match (name, value) {
        ("Nullable" | "ExclusiveMaximum" | "ExclusiveMinimum" | "UniqueItems", None)
        | ("XEmbeddedResource" | "XIntOrString", None) => "false".to_owned(),
        ("ID" | "Schema" | "Description" | "Type" | "Format" | "Title" | "Pattern", None) => {
            "\"\"".to_owned()
        }
        ("AllOf" | "OneOf" | "AnyOf", _) => list(&schema),
        ("XValidations", _) => list(&rule_as_go_shows),
        (_, None) => "null".to_owned(),
        ("Items", Some(of)) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(of)),
        ("Not", Some(of)) => schema(of),
        ("Properties", Some(Value::Object(properties))) => {
            object(properties.iter().map(|(name, of)| format!("{}:{}", quote(name), schema(of))))
        }
        ("AdditionalProperties", Some(Value::Bool(allows))) => {
            format!("{{\"Allows\":{allows},\"Schema\":null}}")
        }
        ("AdditionalProperties", Some(of)) => {
            format!("{{\"Allows\":true,\"Schema\":{}}}", schema(of))
        }
        ("ExternalDocs", Some(docs)) => {
            let text = |key: &str| to_html_json(docs.get(key).unwrap_or(&Value::from("")));
            format!("{{\"Description\":{},\"URL\":{}}}", text("description"), text("url"))
        }
        (_, Some(value)) => to_html_json(value),
    }
}

fn object(fields: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
