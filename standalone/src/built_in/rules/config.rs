//! ConfigMaps and Secrets.

use std::collections::BTreeMap;

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::{Faults, IMMUTABLE, check_with, quote};

/// All values together; as kube-apiserver.
const SIZE_LIMIT: usize = 1 << 20;
const KEY_LIMIT: usize = 253;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
/// What a certificate begins with.
const PEM: &[u8] = b"-----BEGIN";
const SEALED: &str = "field is immutable when `immutable` is set";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(in super::super) fn config_maps() -> Rules<ConfigMap> {
    Rules::none().validate(|map: &ConfigMap, old, _| {
        let mut faults = Vec::new();
        let binary = map.binary_data.clone().unwrap_or_default();
        let mut size = 0;
        for (key, value) in map.data.iter().flatten() {
            let at = format!("data[{key}]");
            check_with(&at, key, check_key, &mut faults);
            if binary.contains_key(key) {
                let why = "duplicate of key present in binaryData";
                faults.push(FieldError::invalid(at, quote(key), why));
            }
            size += value.len();
        }
        for (key, value) in &binary {
            check_with(&format!("binaryData[{key}]"), key, check_key, &mut faults);
            size += value.0.len();
        }
        if size > SIZE_LIMIT {
            faults.push(FieldError::too_long("", SIZE_LIMIT as u64));
        }
        let Some(old) = old.filter(|old| old.immutable == Some(true)) else { return faults };
        for (field, is_kept) in [
            ("immutable", map.immutable == Some(true)),
            ("data", filled(&map.data) == filled(&old.data)),
            ("binaryData", filled(&map.binary_data) == filled(&old.binary_data)),
        ] {
            if !is_kept {
                faults.push(FieldError::forbidden(field, SEALED));
            }
        }
        faults
    })
}

pub(in super::super) fn secrets(rules: Rules<Secret>) -> Rules<Secret> {
    rules
        .validate(|secret: &Secret, old, _| {
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
                    faults.push(FieldError::forbidden("immutable", SEALED));
                }
                if filled(&secret.data) != filled(&old.data) {
                    faults.push(FieldError::forbidden("data", SEALED));
                }
            }
            faults
        })
        .warn(|secret: &Secret, _, _| {
            let data = secret.data.clone().unwrap_or_default();
            let is_tls = secret.type_.as_deref() == Some("kubernetes.io/tls")
                && data.contains_key("tls.key")
                && data.contains_key("tls.crt");
            let certificate = data.get("tls.crt");
            let is_pem = certificate.is_some_and(|certificate| {
                certificate.0.windows(PEM.len()).any(|bytes| bytes == PEM)
            });
            let why = "tls: failed to find any PEM data in certificate input";
            (is_tls && !is_pem).then(|| why.to_owned()).into_iter().collect()
        })
}

/// What a Secret of a type of Kubernetes must hold.
fn check_type(secret: &Secret, data: &BTreeMap<String, ByteString>, faults: &mut Faults) {
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !data.contains_key(**key)) {
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

fn check_json(key: &str, data: &BTreeMap<String, ByteString>, faults: &mut Faults) {
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

fn check_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > KEY_LIMIT {
        faults.push(format!("must be no more than {KEY_LIMIT} characters"));
    }
    if key.is_empty()
        || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        faults.push(KEY.to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// What is empty is nothing.
fn filled<V>(map: &Option<BTreeMap<String, V>>) -> Option<&BTreeMap<String, V>> {
    map.as_ref().filter(|map| !map.is_empty())
}
