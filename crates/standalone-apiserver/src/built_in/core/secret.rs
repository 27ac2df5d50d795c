//! Secrets.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::QuotaUsage;
use aggregated_apiserver::{FieldError, SelectableFields, Strategy, Validation};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::data::{IMMUTABLE_DATA, SIZE_LIMIT, check_key, none_if_empty};
use crate::built_in::checks::{FieldErrors, IMMUTABLE, check_with, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::common;

/// The prefix of a PEM block.
const PEM: &[u8] = b"-----BEGIN";

const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(crate) fn row() -> Row<Secret> {
    let rules = Validation::new()
        .prepare(|secret, _| prepare(secret))
        .validate(|secret, old, _| validate(secret, old))
        .warn(|secret, _, _| warnings(secret));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    let selectable = SelectableFields::default().with_field("type", "");
    Strategy {
        has_generation: false,
        selectable,
        kept_if_omitted: &["/type"],
        quota_usage: QuotaUsage::CountAs("secrets"),
        ..common()
    }
}

fn columns() -> Vec<Column<Secret>> {
    let data = |secret: &Secret, _| secret.data.as_ref().map_or(0, BTreeMap::len);
    vec![Column::path("Type", ".type"), Column::computed("Data", data), Column::age()]
}

fn prepare(secret: &mut Secret) {
    set_default(&mut secret.type_, "Opaque");
    if let Some(texts) = secret.string_data.take() {
        let bytes = texts.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes())));
        secret.data.get_or_insert_default().extend(bytes);
    }
}

fn validate(secret: &Secret, old: Option<&Secret>) -> FieldErrors {
    let mut faults = Vec::new();
    let data = secret.data.clone().unwrap_or_default();
    for key in data.keys() {
        check_with(&format!("data[{key}]"), key, check_key, &mut faults);
    }
    if data.values().map(|value| value.0.len()).sum::<usize>() > SIZE_LIMIT {
        faults.push(FieldError::too_long("data", SIZE_LIMIT as u64));
    }
    check_type(secret, &data, &mut faults);
    let Some(old) = old else { return faults };
    if secret.type_ != old.type_ {
        let value = quote(secret.type_.as_deref().unwrap_or_default());
        faults.push(FieldError::invalid("type", value, IMMUTABLE));
    }
    if old.immutable == Some(true) {
        if secret.immutable != Some(true) {
            faults.push(FieldError::forbidden("immutable", IMMUTABLE_DATA));
        }
        if none_if_empty(&secret.data) != none_if_empty(&old.data) {
            faults.push(FieldError::forbidden("data", IMMUTABLE_DATA));
        }
    }
    faults
}

fn warnings(secret: &Secret) -> Vec<String> {
    let data = secret.data.clone().unwrap_or_default();
    let is_tls = secret.type_.as_deref() == Some("kubernetes.io/tls")
        && data.contains_key("tls.key")
        && data.contains_key("tls.crt");
    let certificate = data.get("tls.crt");
    let is_pem = certificate
        .is_some_and(|certificate| certificate.0.windows(PEM.len()).any(|bytes| bytes == PEM));
    let why = "tls: failed to find any PEM data in certificate input";
    (is_tls && !is_pem).then(|| why.to_owned()).into_iter().collect()
}

/// Checks that a Secret has the data of its type.
fn check_type(secret: &Secret, data: &BTreeMap<String, ByteString>, faults: &mut FieldErrors) {
    // A private key for SSH must not be empty.
    let has = |key: &str| {
        data.get(key).is_some_and(|value| key != "ssh-privatekey" || !value.0.is_empty())
    };
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            faults.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    match secret.type_.as_deref().unwrap_or_default() {
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => need(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth"
            if !data.contains_key("username") && !data.contains_key("password") =>
        {
            need(&["username", "password"]);
        }
        "kubernetes.io/dockercfg" => check_json(".dockercfg", data, faults),
        "kubernetes.io/dockerconfigjson" => check_json(".dockerconfigjson", data, faults),
        "kubernetes.io/service-account-token" => {
            let annotations = secret.metadata.annotations.as_ref();
            let name = annotations.and_then(|annotations| annotations.get(ACCOUNT));
            if name.is_none_or(String::is_empty) {
                let at = format!("metadata.annotations[{ACCOUNT}]");
                faults.push(FieldError::required(at, ""));
            }
        }
        _ => {}
    }
}

fn check_json(key: &str, data: &BTreeMap<String, ByteString>, faults: &mut FieldErrors) {
    let at = format!("data[{key}]");
    let Some(value) = data.get(key) else {
        return faults.push(FieldError::required(at, ""));
    };
    if let Err(error) = serde_json::from_slice::<serde_json::Value>(&value.0) {
        let why = match error.is_eof() {
            true => "unexpected end of JSON input".to_owned(),
            false => error.to_string(),
        };
        faults.push(FieldError::invalid(at, "\"<secret contents redacted>\"", &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::json;

    /// The base64 of `-----BEGIN`.
    const PEM_TEXT: &str = "LS0tLS1CRUdJTg==";

    #[test]
    fn defaults() {
        let filled = prepared(prepare, json!({}));
        assert_eq!(filled["type"], "Opaque");
        let filled = prepared(
            prepare,
            json!({"type": "a/b", "data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "y"}}),
        );
        assert_eq!(filled["type"], "a/b");
        assert_eq!(filled["data"], json!({"a": "eA==", "b": "eQ=="}));
        assert_eq!(filled["stringData"], json!(null));
    }

    #[test]
    fn invalid_secrets_are_rejected() {
        for (secret, expected) in [
            (json!({"type": "Opaque"}), vec![]),
            (
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                vec!["data[tls.key]: Required value"],
            ),
            (json!({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}), vec![]),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]: Required value", "data[password]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "ew=="}}),
                vec![
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": \
                     unexpected end of JSON input",
                ],
            ),
            (json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}), vec![]),
            (
                json!({"type": "kubernetes.io/service-account-token"}),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
        ] {
            assert_eq!(faults_of_new(validate, secret.clone()), expected, "{secret}");
        }
    }

    #[test]
    fn secret_type_and_data_of_immutable_secrets_cannot_be_updated() {
        let old = json!({"type": "Opaque", "immutable": true, "data": {"a": "eA=="}});
        assert_eq!(faults_of_update(validate, old.clone(), old.clone()), [] as [&str; 0]);
        let new = json!({"type": "other", "data": {"a": "eQ=="}});
        assert_eq!(
            faults_of_update(validate, old, new.clone()),
            [
                "type: Invalid value: \"other\": field is immutable".to_owned(),
                format!("immutable: Forbidden: {IMMUTABLE_DATA}"),
                format!("data: Forbidden: {IMMUTABLE_DATA}"),
            ]
        );
        let mutable = json!({"type": "other", "data": {"a": "eA=="}});
        assert_eq!(faults_of_update(validate, mutable, new), [] as [&str; 0]);
    }

    #[test]
    fn a_tls_secret_without_pem_certificate_causes_a_warning() {
        let warnings = |certificate: &str| {
            let data = json!({"tls.crt": certificate, "tls.key": ""});
            warnings(&object(json!({"type": "kubernetes.io/tls", "data": data})))
        };
        assert_eq!(warnings(PEM_TEXT), [] as [&str; 0]);
        assert_eq!(warnings("eA=="), ["tls: failed to find any PEM data in certificate input"]);
    }

    #[test]
    fn secret_table_row_counts_data_keys() {
        let secret = json!({"data": {"a": "", "b": ""}});
        assert_eq!(cells(columns(), secret), json!({"Data": 2, "Age": "<unknown>"}));
    }
}
