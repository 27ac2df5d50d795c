//! The AuthenticationConfiguration document, and its decoder with kube-apiserver's messages.

use aggregated_apiserver::encoding::yaml_documents;
use serde::Deserialize;
use serde_json::Value;

use super::shape;

const KIND: &str = "AuthenticationConfiguration";
const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The fields of an AuthenticationConfiguration. The fields of its three versions are the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Document {
    pub jwt: Vec<JwtAuthenticator>,
    pub anonymous: Option<Anonymous>,
}

/// The configuration of the tokens of one issuer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct JwtAuthenticator {
    pub issuer: Issuer,
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    pub claim_mappings: ClaimMappings,
    pub user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Issuer {
    pub url: String,
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimMappings {
    pub username: ClaimMapping,
    pub groups: ClaimMapping,
    pub uid: ClaimMapping,
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression. The mapping of the uid has no prefix.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimMapping {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct UserValidationRule {
    pub expression: String,
    pub message: String,
}

/// The configuration of requests without credentials.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Anonymous {
    pub enabled: bool,
    pub conditions: Vec<Condition>,
}

/// A path that requests without credentials may use.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    pub path: String,
}

/// Decodes a document.
///
/// # Errors
/// The reason, if the document is malformed, has another kind, or has an unknown field or a field of another type.
pub(super) fn decode(text: &str) -> Result<Document, String> {
    if text.is_empty() {
        return Err("empty config data".to_owned());
    }
    let mut documents = yaml_documents(text).map_err(|why| match why.contains("already set") {
        true => format!("strict decoding error: yaml: unmarshal errors:\n  {why}"),
        false => format!("yaml: {why}"),
    })?;
    if documents.len() > 1 {
        return Err("the file has more than one document".to_owned());
    }
    let mut value = documents.pop().unwrap_or_default();
    if !value.is_null() && !value.is_object() {
        return Err(format!("expected {KIND}, got {}", shape::json_type(&value)));
    }
    let version = check_kind(&value, text)?;
    shape::check(&value, &version)?;
    remove_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Returns the version of the document.
fn check_kind(value: &Value, text: &str) -> Result<String, String> {
    let field = |name: &str| value[name].as_str().unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    for (given, name) in [(kind, "Kind"), (api_version, "apiVersion")] {
        if given.is_empty() {
            return Err(format!("Object '{name}' is missing in '{text}'"));
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if kind != KIND || group != GROUP || !VERSIONS.contains(&version) {
        return Err(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    Ok(version.to_owned())
}

/// Removes null fields, and replaces null elements of lists by empty objects, same as Go's decoder.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(elements) => {
            let is_text = elements.iter().any(Value::is_string);
            for element in elements {
                if element.is_null() {
                    *element = if is_text { "".into() } else { Value::Object(Default::default()) };
                }
                remove_nulls(element);
            }
        }
        _ => {}
    }
}
