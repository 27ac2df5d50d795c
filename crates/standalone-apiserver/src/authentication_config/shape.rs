//! The types of the fields of an AuthenticationConfiguration, and strict checks with the messages of Go's decoder.

use serde_json::{Map, Value};

/// The type of a field.
enum Shape {
    Bool,
    Text,
    Texts,
    Object(&'static Object),
    Objects(&'static Object),
}

/// A Go struct: its name and its fields.
struct Object {
    name: &'static str,
    fields: &'static [(&'static str, Shape)],
}

static CONFIGURATION: Object = Object {
    name: "AuthenticationConfiguration",
    fields: &[
        ("apiVersion", Shape::Text),
        ("kind", Shape::Text),
        ("jwt", Shape::Objects(&AUTHENTICATOR)),
        ("anonymous", Shape::Object(&ANONYMOUS)),
    ],
};
static AUTHENTICATOR: Object = Object {
    name: "JWTAuthenticator",
    fields: &[
        ("issuer", Shape::Object(&ISSUER)),
        ("claimValidationRules", Shape::Objects(&CLAIM_RULE)),
        ("claimMappings", Shape::Object(&MAPPINGS)),
        ("userValidationRules", Shape::Objects(&USER_RULE)),
    ],
};
static ISSUER: Object = Object {
    name: "Issuer",
    fields: &[
        ("url", Shape::Text),
        ("discoveryURL", Shape::Text),
        ("certificateAuthority", Shape::Text),
        ("audiences", Shape::Texts),
        ("audienceMatchPolicy", Shape::Text),
        ("egressSelectorType", Shape::Text),
    ],
};
static CLAIM_RULE: Object = Object {
    name: "ClaimValidationRule",
    fields: &[
        ("claim", Shape::Text),
        ("requiredValue", Shape::Text),
        ("expression", Shape::Text),
        ("message", Shape::Text),
    ],
};
static MAPPINGS: Object = Object {
    name: "ClaimMappings",
    fields: &[
        ("username", Shape::Object(&PREFIXED)),
        ("groups", Shape::Object(&PREFIXED)),
        ("uid", Shape::Object(&UNPREFIXED)),
        ("extra", Shape::Objects(&EXTRA)),
    ],
};
static PREFIXED: Object = Object {
    name: "PrefixedClaimOrExpression",
    fields: &[("claim", Shape::Text), ("prefix", Shape::Text), ("expression", Shape::Text)],
};
static UNPREFIXED: Object = Object {
    name: "ClaimOrExpression",
    fields: &[("claim", Shape::Text), ("expression", Shape::Text)],
};
static EXTRA: Object = Object {
    name: "ExtraMapping",
    fields: &[("key", Shape::Text), ("valueExpression", Shape::Text)],
};
static USER_RULE: Object = Object {
    name: "UserValidationRule",
    fields: &[("expression", Shape::Text), ("message", Shape::Text)],
};
static ANONYMOUS: Object = Object {
    name: "AnonymousAuthConfig",
    fields: &[("enabled", Shape::Bool), ("conditions", Shape::Objects(&CONDITION))],
};
static CONDITION: Object =
    Object { name: "AnonymousAuthCondition", fields: &[("path", Shape::Text)] };

/// Checks the types and the names of all fields of a document of this version.
///
/// # Errors
/// Go's message about the first field of another type; otherwise kube-apiserver's message with all unknown fields.
pub(super) fn check(document: &Value, version: &str) -> Result<(), String> {
    let mut found = Found { version, wrong_type: None, unknown: Vec::new() };
    if let Value::Object(fields) = document {
        found.check_fields(fields, &CONFIGURATION, "", "");
    }
    match (found.wrong_type, found.unknown) {
        (Some(why), _) => Err(why),
        (None, unknown) if unknown.is_empty() => Ok(()),
        (None, unknown) => Err(format!("strict decoding error: {}", unknown.join(", "))),
    }
}

/// Go's name for the type of a JSON value.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The problems of a document.
struct Found<'v> {
    version: &'v str,
    wrong_type: Option<String>,
    unknown: Vec<String>,
}

impl Found<'_> {
    /// Checks the fields of an object. `path` has the indexes of lists, and `names` has not.
    fn check_fields(
        &mut self,
        fields: &Map<String, Value>,
        object: &Object,
        path: &str,
        names: &str,
    ) {
        let below = |parent: &str, name: &str| match parent {
            "" => name.to_owned(),
            parent => format!("{parent}.{name}"),
        };
        let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        for (name, value) in sorted {
            let path = below(path, name);
            let Some((_, shape)) = object.fields.iter().find(|(known, _)| known == name) else {
                self.unknown.push(format!("unknown field {path:?}"));
                continue;
            };
            let names = below(names, name);
            let at = format!("{}.{names}", object.name);
            self.check_value(value, shape, (&path, &names, &at));
        }
    }

    fn check_value(&mut self, value: &Value, shape: &Shape, (path, names, at): (&str, &str, &str)) {
        match (shape, value) {
            (_, Value::Null) | (Shape::Bool, Value::Bool(_)) | (Shape::Text, Value::String(_)) => {}
            (Shape::Texts, Value::Array(elements)) => {
                for element in elements {
                    self.check_value(element, &Shape::Text, (path, names, at));
                }
            }
            (Shape::Object(object), Value::Object(fields)) => {
                self.check_fields(fields, object, path, names);
            }
            (Shape::Objects(object), Value::Array(elements)) => {
                for (index, element) in elements.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.check_value(element, &Shape::Object(object), (&path, names, at));
                }
            }
            (shape, value) => {
                let expected = match shape {
                    Shape::Bool => "bool".to_owned(),
                    Shape::Text => "string".to_owned(),
                    Shape::Texts => "[]string".to_owned(),
                    Shape::Object(object) => format!("{}.{}", self.version, object.name),
                    Shape::Objects(object) => format!("[]{}.{}", self.version, object.name),
                };
                let given = json_type(value);
                self.wrong_type.get_or_insert(format!(
                    "json: cannot unmarshal {given} into Go struct field {at} of type {expected}"
                ));
            }
        }
    }
}
