//! Validation of the conversion in a definition, with kube-apiserver's messages and field paths. The paths are those of
//! an older version of definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, ServiceReference, WebhookClientConfig,
};

use serde_json::json;

use super::webhook_conversion::REVIEW_VERSIONS;
use crate::error::{FieldError, quote};
use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};

const CONFIG: &str = "spec.conversion.webhookClientConfig";
const VERSIONS: &str = "spec.conversion.conversionReviewVersions";
const FORM: &str = "; desired format: https://host[/path]";

/// The errors in a conversion.
pub fn faults(conversion: Option<&CustomResourceConversion>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let Some(conversion) = conversion else { return faults };
    let webhook = conversion.webhook.as_ref();
    let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
    let versions = webhook.map_or(&[][..], |webhook| &webhook.conversion_review_versions);
    match conversion.strategy.as_str() {
        "Webhook" => {
            match config {
                None => {
                    faults.push(FieldError::required(
                        CONFIG,
                        "required when strategy is set to Webhook",
                    ));
                }
                Some(config) => check_config(config, &mut faults),
            }
            check_versions(versions, &mut faults);
            return faults;
        }
        "None" => {}
        "" => faults.push(FieldError::required("spec.conversion.strategy", "")),
        other => {
            let known = ["None", "Webhook"];
            faults.push(FieldError::not_supported(
                "spec.conversion.strategy",
                quote(other),
                &known,
            ));
        }
    }
    let why = "should not be set when strategy is not set to Webhook";
    if config.is_some() {
        faults.push(FieldError::forbidden(CONFIG, why));
    }
    if !versions.is_empty() {
        faults.push(FieldError::forbidden(VERSIONS, why));
    }
    faults
}

fn check_config(config: &WebhookClientConfig, faults: &mut Vec<FieldError>) {
    match (&config.url, &config.service) {
        (Some(url), None) => faults.extend(check_webhook_url(url, &format!("{CONFIG}.url"))),
        (None, Some(service)) => {
            let ServiceReference { name, namespace, path, port } = service;
            let at = format!("{CONFIG}.service");
            faults.extend(check_webhook_service(namespace, name, path.as_deref(), *port, &at));
        }
        _ => faults.push(FieldError::required(CONFIG, "exactly one of url or service is required")),
    }
    // An invalid CA bundle is reported by a caller that knows the old definition.
}

/// The errors in the URL of a webhook, with kube-apiserver's messages. `at` is the path of the field.
pub fn check_webhook_url(url: &str, at: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if url.chars().any(char::is_control) {
        let url = quote(url);
        let why = format!(
            "url must be a valid URL: parse {url}: net/url: invalid control character in URL{FORM}"
        );
        faults.push(FieldError::required(at, &why));
        return faults;
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let mut wrong = |value: &str, why: &str| {
        faults.push(FieldError::invalid(at, quote(value), why));
    };
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" {
        wrong(&scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        wrong(host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
    faults
}

/// The errors in the Service of a webhook, with kube-apiserver's messages. `at` is the path of the field.
pub fn check_webhook_service(
    namespace: &str,
    name: &str,
    path: Option<&str>,
    port: Option<i32>,
    at: &str,
) -> Vec<FieldError> {
    let mut faults = Vec::new();
    // kube-apiserver swaps the two field names here.
    for (value, named) in [(namespace, "name"), (name, "namespace")] {
        if value.is_empty() {
            faults.push(FieldError::required(format!("{at}.{named}"), ""));
        }
    }
    if let Some(port) = port.filter(|port| !(1..=65_535).contains(port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        faults.push(FieldError::invalid(format!("{at}.port"), port, why));
    }
    let path = path.unwrap_or_default();
    let mut wrong = |why: &str| {
        faults.push(FieldError::invalid(format!("{at}.path"), quote(path), why));
    };
    match path {
        "" | "/" => return faults,
        "//" => {
            wrong("segment[0] may not be empty");
            return faults;
        }
        _ => {}
    }
    if !path.starts_with('/') {
        wrong("must start with a '/'");
    }
    let mut steps = path.chars();
    steps.next();
    let steps = steps.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (index, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            wrong(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in check_dns_1123_subdomain(step) {
            wrong(&format!("segment[{index}]: {why}"));
        }
    }
    faults
}

fn check_versions(versions: &[String], faults: &mut Vec<FieldError>) {
    if versions.is_empty() {
        faults.push(FieldError::required(VERSIONS, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let at = format!("{VERSIONS}[{index}]");
        if versions[..index].contains(version) {
            faults.push(FieldError::invalid(at, quote(version), "duplicate version"));
            continue;
        }
        for why in check_dns_1035_label(version) {
            faults.push(FieldError::invalid(at.as_str(), quote(version), &why));
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.contains(&version.as_str())) {
        let why = "must include at least one of v1, v1beta1";
        faults.push(FieldError::invalid(VERSIONS, json!(versions), why));
    }
}
