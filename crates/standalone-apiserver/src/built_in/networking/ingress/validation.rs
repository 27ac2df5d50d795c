//! The validation of Ingresses.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS,
};

use super::{CLASS_ANNOTATION, points};
use crate::built_in::checks::{FieldErrors, check_with, quote, to_json};
use crate::built_in::networks::{check_address, parse_address, warning_of_address};
use crate::built_in::pod_template::ports;

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NO_ADDRESS: &str = "must be a DNS name, not an IP address";
const NAME_LIMIT: usize = 253;

pub(super) fn validate(ingress: &Ingress, old: Option<&Ingress>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = IngressSpec::default();
    let spec = ingress.spec.as_ref().unwrap_or(&nothing);
    let rules = spec.rules.as_deref().unwrap_or_default();
    if rules.is_empty() && spec.default_backend.is_none() {
        let why = "either `defaultBackend` or `rules` must be specified";
        faults.push(FieldError::invalid("spec", to_json(&spec.rules), why));
    }
    if let Some(backend) = &spec.default_backend {
        check_backend(backend, "spec.defaultBackend", &mut faults);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule, &format!("spec.rules[{index}]"), &mut faults);
    }
    for (index, tls) in spec.tls.iter().flatten().enumerate() {
        check_tls(tls, &format!("spec.tls[{index}]"), &mut faults);
    }
    let class = spec.ingress_class_name.as_deref();
    if let Some(class) = class {
        check_with("spec.ingressClassName", class, names::check_dns_1123_subdomain, &mut faults);
    }
    if let (None, Some(annotation), Some(class)) = (old, annotation(ingress), class)
        && annotation != class
    {
        let why = "must match `ingressClassName` when both are specified";
        let at = format!("annotations.{CLASS_ANNOTATION}");
        faults.push(FieldError::invalid(at, quote(annotation), why));
    }
    faults
}

fn annotation(ingress: &Ingress) -> Option<&str> {
    let annotations = ingress.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(CLASS_ANNOTATION)).map(String::as_str)
}

/// A warning about the annotation that a field has replaced.
pub(super) fn warnings(ingress: &Ingress, old: Option<&Ingress>) -> Vec<String> {
    let has_class = ingress.spec.as_ref().is_some_and(|spec| spec.ingress_class_name.is_some());
    let is_old_fashioned = old.is_none() && annotation(ingress).is_some() && !has_class;
    let warning = format!(
        "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
    );
    is_old_fashioned.then_some(warning).into_iter().collect()
}

pub(super) fn validate_status(ingress: &Ingress, old: Option<&Ingress>) -> FieldErrors {
    let mut faults = Vec::new();
    let known: Vec<_> = old.map(points).unwrap_or_default().iter().map(|one| &one.ip).collect();
    for (index, point) in points(ingress).iter().enumerate() {
        let at = format!("status.loadBalancer.ingress[{index}]");
        if let Some(address) = point.ip.as_ref().filter(|address| !address.is_empty())
            && !known.contains(&&point.ip)
        {
            check_address(&format!("{at}.ip"), address, &mut faults);
        }
        if let Some(host) = point.hostname.as_ref().filter(|host| !host.is_empty()) {
            let at = format!("{at}.hostname");
            check_with(&at, host, names::check_dns_1123_subdomain, &mut faults);
            if parse_address(host).is_some() {
                faults.push(FieldError::invalid(at, quote(host), NO_ADDRESS));
            }
        }
    }
    faults
}

/// Warnings about addresses that are not in canonical form.
pub(super) fn warnings_of_status(ingress: &Ingress) -> Vec<String> {
    let points = points(ingress).iter().enumerate();
    let warnings = points.filter_map(|(index, point)| {
        let at = format!("status.loadBalancer.ingress[{index}]");
        warning_of_address(&at, point.ip.as_ref()?)
    });
    warnings.collect()
}

fn check_rule(rule: &IngressRule, at: &str, faults: &mut FieldErrors) {
    if let Some(host) = rule.host.as_deref().filter(|host| !host.is_empty()) {
        let at = format!("{at}.host");
        if parse_address(host).is_some() {
            faults.push(FieldError::invalid(&at, quote(host), NO_ADDRESS));
        }
        check_host(&at, host, faults);
    }
    let Some(http) = &rule.http else { return };
    if http.paths.is_empty() {
        faults.push(FieldError::required(format!("{at}.http.paths"), ""));
    }
    for (index, path) in http.paths.iter().enumerate() {
        check_path(path, &format!("{at}.http.paths[{index}]"), faults);
    }
}

fn check_tls(tls: &IngressTLS, at: &str, faults: &mut FieldErrors) {
    for (index, host) in tls.hosts.iter().flatten().enumerate() {
        check_host(&format!("{at}.hosts[{index}]"), host, faults);
    }
    if let Some(secret) = tls.secret_name.as_deref().filter(|secret| !secret.is_empty()) {
        check_with(&format!("{at}.secretName"), secret, names::check_dns_1123_subdomain, faults);
    }
}

/// Checks a host, or a wildcard for hosts.
fn check_host(at: &str, host: &str, faults: &mut FieldErrors) {
    if host.contains('*') {
        check_with(at, host, faults_of_wildcard, faults);
    } else {
        check_with(at, host, names::check_dns_1123_subdomain, faults);
    }
}

fn faults_of_wildcard(host: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if host.len() > NAME_LIMIT {
        faults.push(format!("must be no more than {NAME_LIMIT} characters"));
    }
    // The length limit applies to the whole host.
    let is_domain = |rest: &str| rest.split('.').all(is_label);
    if !host.strip_prefix("*.").is_some_and(is_domain) {
        faults.push(WILDCARD.to_owned());
    }
    faults
}

fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.bytes().all(|byte| is_inner(byte) || byte == b'-')
        && label.bytes().next().is_some_and(is_inner)
        && label.bytes().last().is_some_and(is_inner)
}

fn check_path(path: &HTTPIngressPath, at: &str, faults: &mut FieldErrors) {
    let text = path.path.as_deref().unwrap_or_default();
    let at_path = format!("{at}.path");
    let invalid = |why: &str| FieldError::invalid(&at_path, quote(text), why);
    const ABSOLUTE: &str = "must be an absolute path";
    match path.path_type.as_str() {
        "" => {
            let why = "pathType must be specified";
            return faults.push(FieldError::required(format!("{at}.pathType"), why));
        }
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                faults.push(invalid(ABSOLUTE));
            }
            let held = ["//", "/./", "/../", "%2f", "%2F"].into_iter();
            let held = held.filter(|part| text.contains(part));
            faults.extend(held.map(|part| invalid(&format!("must not contain '{part}'"))));
            let ends = ["/..", "/."].into_iter().filter(|end| text.ends_with(end));
            faults.extend(ends.map(|end| invalid(&format!("cannot end with '{end}'"))));
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                faults.push(invalid(ABSOLUTE));
            }
        }
        other => {
            let all = ["Exact", "ImplementationSpecific", "Prefix"];
            faults.push(FieldError::not_supported(format!("{at}.pathType"), quote(other), &all));
        }
    }
    check_backend(&path.backend, &format!("{at}.backend"), faults);
}

fn check_backend(backend: &IngressBackend, at: &str, faults: &mut FieldErrors) {
    let invalid = |why: &str| FieldError::invalid(at, "\"\"", why);
    match (&backend.resource, &backend.service) {
        (Some(_), Some(_)) => {
            faults.push(invalid("cannot set both resource and service backends"));
        }
        (Some(resource), None) => check_resource(resource, &format!("{at}.resource"), faults),
        (None, Some(service)) => check_service(service, at, faults),
        (None, None) => faults.push(invalid("resource or service backend is required")),
    }
}

fn check_resource(resource: &TypedLocalObjectReference, at: &str, faults: &mut FieldErrors) {
    if let Some(group) = &resource.api_group {
        check_with(&format!("{at}.apiGroup"), group, names::check_dns_1123_subdomain, faults);
    }
    for (field, value) in [("kind", &resource.kind), ("name", &resource.name)] {
        let at = format!("{at}.{field}");
        if value.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else {
            check_with(&at, value, names::check_path_segment, faults);
        }
    }
}

fn check_service(service: &IngressServiceBackend, at: &str, faults: &mut FieldErrors) {
    if service.name.is_empty() {
        faults.push(FieldError::required(format!("{at}.service.name"), ""));
    } else {
        let at = format!("{at}.service.name");
        check_with(&at, &service.name, names::check_dns_1123_label, faults);
    }
    let port = service.port.as_ref();
    let name = port.and_then(|port| port.name.as_deref()).filter(|name| !name.is_empty());
    let number = port.and_then(|port| port.number).filter(|number| *number != 0);
    match (name, number) {
        (Some(_), Some(_)) => {
            let why = "cannot set both port name & port number";
            faults.push(FieldError::invalid(at, "\"\"", why));
        }
        (Some(name), None) => {
            let at = format!("{at}.service.port.name");
            check_with(&at, name, ports::faults_of_port_name, faults);
        }
        (None, Some(number)) => {
            let at = format!("{at}.service.port.number");
            ports::check_port_number(&at, i64::from(number), faults);
        }
        (None, None) => {
            faults.push(FieldError::required(at, "port name or number is required"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object, texts};
    use serde_json::{Value, json};

    fn backend(name: &str) -> Value {
        json!({"service": {"name": name, "port": {"number": 80}}})
    }

    fn ingress(host: &str, path: Value) -> Value {
        json!({"spec": {"rules": [{"host": host, "http": {"paths": [path]}}]}})
    }

    #[test]
    fn hosts_and_paths() {
        const AT: &str = "spec.rules[0]";
        let path = |path_type: &str, path: &str| json!({"pathType": path_type, "path": path, "backend": backend("a")});
        for (host, path, expected) in [
            ("a.example.com", path("Prefix", "/"), vec![]),
            ("*.example.com", path("ImplementationSpecific", ""), vec![]),
            (
                "192.0.2.1",
                path("ImplementationSpecific", "x"),
                vec![
                    format!("{AT}.host: Invalid value: \"192.0.2.1\": {NO_ADDRESS}"),
                    format!(
                        "{AT}.http.paths[0].path: Invalid value: \"x\": must be an absolute path"
                    ),
                ],
            ),
            (
                "*.*.com",
                path("Exact", "x//y/.."),
                vec![
                    format!("{AT}.host: Invalid value: \"*.*.com\": {WILDCARD}"),
                    format!(
                        "{AT}.http.paths[0].path: Invalid value: \"x//y/..\": must be an absolute path"
                    ),
                    format!(
                        "{AT}.http.paths[0].path: Invalid value: \"x//y/..\": must not contain '//'"
                    ),
                    format!(
                        "{AT}.http.paths[0].path: Invalid value: \"x//y/..\": cannot end with '/..'"
                    ),
                ],
            ),
            (
                "",
                json!({"path": "/"}),
                vec![format!(
                    "{AT}.http.paths[0].pathType: Required value: pathType must be specified"
                )],
            ),
        ] {
            assert_eq!(faults_of_new(validate, ingress(host, path)), expected, "{host}");
        }
    }

    #[test]
    fn backends() {
        const AT: &str = "spec.defaultBackend";
        for (backend, expected) in [
            (backend("a"), vec![]),
            (json!({"resource": {"apiGroup": "x.io", "kind": "X", "name": "a"}}), vec![]),
            (
                json!({}),
                vec![format!("{AT}: Invalid value: \"\": resource or service backend is required")],
            ),
            (
                json!({"service": {"name": "", "port": {}}}),
                vec![
                    format!("{AT}.service.name: Required value"),
                    format!("{AT}: Required value: port name or number is required"),
                ],
            ),
            (
                json!({"service": {"name": "a", "port": {"name": "a", "number": 1}}}),
                vec![format!("{AT}: Invalid value: \"\": cannot set both port name & port number")],
            ),
            (
                json!({"resource": {"kind": "", "name": "a/b"}}),
                vec![
                    format!("{AT}.resource.kind: Required value"),
                    format!("{AT}.resource.name: Invalid value: \"a/b\": may not contain '/'"),
                ],
            ),
        ] {
            let ingress = json!({"spec": {"defaultBackend": backend}});
            assert_eq!(faults_of_new(validate, ingress), expected, "{backend}");
        }
        assert_eq!(
            faults_of_new(validate, json!({})),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
    }

    #[test]
    fn the_annotation_names_the_same_class() {
        let ingress = json!({
            "metadata": {"annotations": {CLASS_ANNOTATION: "a"}},
            "spec": {"defaultBackend": backend("a"), "ingressClassName": "b"},
        });
        assert_eq!(
            faults_of_new(validate, ingress.clone()),
            [
                "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified"
            ]
        );
        assert_eq!(faults_of_update(validate, ingress.clone(), ingress.clone()), [] as [&str; 0]);
        let mut unnamed = ingress;
        unnamed["spec"]["ingressClassName"] = Value::Null;
        let unnamed = object(unnamed);
        assert_eq!(warnings(&unnamed, None).len(), 1);
        assert!(warnings(&unnamed, Some(&unnamed)).is_empty());
    }

    #[test]
    fn a_status() {
        let of = |points: Value| json!({"status": {"loadBalancer": {"ingress": points}}});
        let bad = of(json!([{"ip": "1.2.3"}, {"hostname": "1.2.3.4"}]));
        assert_eq!(
            texts(&validate_status(&object(bad.clone()), None)),
            [
                "status.loadBalancer.ingress[0].ip: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "status.loadBalancer.ingress[1].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            ]
        );
        // An unchanged invalid address is allowed.
        let again = validate_status(&object(bad.clone()), Some(&object(bad)));
        assert_eq!(again.len(), 1);
        let loud = object(of(json!([{"ip": "2001:DB8::1"}])));
        assert_eq!(warnings_of_status(&loud).len(), 1);
    }
}
