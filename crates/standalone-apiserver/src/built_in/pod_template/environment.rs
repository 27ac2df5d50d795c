//! Environment variables, and the sources of their values.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector,
    ResourceFieldSelector,
};

use super::paths::check_backsteps;
use crate::built_in::checks::{FieldErrors, check_given, check_with, quote};
use crate::built_in::core::check_key;

const VARIABLE: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
const ONE_SOURCE: &str = "may not have more than one field specified at a time";

/// The fields of a Pod that a variable can refer to.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a Pod that a file of a volume can contain.
pub(crate) const FIELDS_OF_VOLUMES: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// The fields of a Pod that have a field label, whether they can be referred to or not.
const LABELLED: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The resources of a container that can be referred to.
const AMOUNTS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates the environment of a container.
pub(crate) fn validate(container: &Container, at: &str, faults: &mut FieldErrors) {
    for (index, variable) in container.env.iter().flatten().enumerate() {
        check_variable(variable, &format!("{at}.env[{index}]"), faults);
    }
    let at = format!("{at}.envFrom");
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        check_source(source, &at, index, faults);
    }
}

/// Returns the errors in the name of a variable.
fn faults_of_name(name: &str) -> Vec<String> {
    let is_good = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if name.bytes().all(is_good) { Vec::new() } else { vec![VARIABLE.to_owned()] }
}

fn check_variable(variable: &EnvVar, at: &str, faults: &mut FieldErrors) {
    let name_at = format!("{at}.name");
    if check_given(&name_at, &variable.name, faults) {
        check_with(&name_at, &variable.name, faults_of_name, faults);
    }
    let Some(from) = &variable.value_from else { return };
    let at = format!("{at}.valueFrom");
    let sources = check_value_from(from, &at, faults);
    let why = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => ONE_SOURCE,
    };
    faults.push(FieldError::invalid(at, "\"\"", why));
}

/// Validates the sources of a value. Returns their number.
fn check_value_from(from: &EnvVarSource, at: &str, faults: &mut FieldErrors) -> usize {
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        check_field(field, &FIELDS, &format!("{at}.fieldRef"), faults);
    }
    if let Some(amount) = &from.resource_field_ref {
        sources += 1;
        check_amount(amount, false, &format!("{at}.resourceFieldRef"), faults);
    }
    let keys = [
        ("configMapKeyRef", from.config_map_key_ref.as_ref().map(|key| (&key.name, &key.key))),
        ("secretKeyRef", from.secret_key_ref.as_ref().map(|key| (&key.name, &key.key))),
    ];
    for (source, key) in keys {
        let Some((name, key)) = key else { continue };
        sources += 1;
        let name_at = format!("{at}.{source}.name");
        check_with(&name_at, name, |name| NameRule::Dns1123Subdomain.check(name), faults);
        let at = format!("{at}.{source}.key");
        if check_given(&at, key, faults) {
            check_with(&at, key, check_key, faults);
        }
    }
    if let Some(file) = &from.file_key_ref {
        sources += 1;
        check_file(file, &format!("{at}.fileKeyRef"), faults);
    }
    sources
}

/// Validates a reference to a field of the Pod, which must be one of `fields`.
pub(crate) fn check_field(
    field: &ObjectFieldSelector,
    fields: &[&str],
    at: &str,
    faults: &mut FieldErrors,
) {
    let version = field.api_version.as_deref().unwrap_or_default();
    let path = field.field_path.as_str();
    let path_at = format!("{at}.fieldPath");
    if !check_given(&format!("{at}.apiVersion"), version, faults)
        || !check_given(&path_at, path, faults)
    {
        return;
    }
    let (map, key) = match path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        Some((map, key)) if !map.is_empty() => (map, Some(key)),
        _ => (path, None),
    };
    let unknown = match key {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(_) if !matches!(map, "metadata.annotations" | "metadata.labels") => {
            Some(format!("field label does not support subscript: {path}"))
        }
        None if path != "spec.host" && !LABELLED.contains(&path) => {
            Some(format!("field label not supported: {path}"))
        }
        _ => None,
    };
    if let Some(why) = unknown {
        let why = format!("error converting fieldPath: {why}");
        return faults.push(FieldError::invalid(path_at, quote(path), &why));
    }
    match (map, key) {
        ("metadata.annotations", Some(key)) => {
            check_with(at, &key.to_lowercase(), names::check_label_key, faults);
        }
        (_, Some(key)) => check_with(at, key, names::check_label_key, faults),
        (_, None) => {
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !fields.contains(&path) {
                faults.push(FieldError::not_supported(path_at, quote(path), fields));
            }
        }
    }
}

/// Validates a reference to a resource of a container. In a volume, it must name the container.
pub(crate) fn check_amount(
    amount: &ResourceFieldSelector,
    is_of_volume: bool,
    at: &str,
    faults: &mut FieldErrors,
) {
    let name = amount.resource.as_str();
    let is_huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    let container = amount.container_name.as_deref().unwrap_or_default();
    let resource_at = format!("{at}.resource");
    if is_of_volume && container.is_empty() {
        faults.push(FieldError::required(format!("{at}.containerName"), ""));
    } else if check_given(&resource_at, name, faults) && !is_huge && !AMOUNTS.contains(&name) {
        faults.push(FieldError::not_supported(resource_at, quote(name), &AMOUNTS));
    }
    let divisor = amount.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok());
    let Some(divisor) = divisor.filter(|divisor| divisor.nanos() != 0) else { return };
    let divisor = divisor.to_string();
    let sizes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let of = match name {
        "limits.cpu" | "requests.cpu" => {
            if !["1m", "1"].contains(&divisor.as_str()) {
                let why = "only divisor's values 1m and 1 are supported with the cpu resource";
                faults.push(FieldError::invalid(format!("{at}.divisor"), quote(name), why));
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    if !sizes.contains(&divisor.as_str()) {
        let sizes = sizes.join(", ");
        let why = format!("only divisor's values {sizes} are supported with the {of} resource");
        faults.push(FieldError::invalid(format!("{at}.divisor"), quote(name), &why));
    }
}

fn check_file(file: &FileKeySelector, at: &str, faults: &mut FieldErrors) {
    let key_at = format!("{at}.key");
    if check_given(&key_at, &file.key, faults) {
        check_with(&key_at, &file.key, faults_of_name, faults);
    }
    let volume_at = format!("{at}.volumeName");
    if check_given(&volume_at, &file.volume_name, faults) {
        check_with(&volume_at, &file.volume_name, names::check_dns_1123_label, faults);
    }
    let path_at = format!("{at}.path");
    if check_given(&path_at, &file.path, faults) {
        check_backsteps(&path_at, &file.path, faults);
    }
}

/// Validates a source of several variables. An error about the number of sources has the path of the list.
fn check_source(source: &EnvFromSource, list: &str, index: usize, faults: &mut FieldErrors) {
    let at = format!("{list}[{index}]");
    let prefix = source.prefix.as_deref().unwrap_or_default();
    check_with(&format!("{at}.prefix"), prefix, faults_of_name, faults);
    let sources = [
        ("configMapRef", source.config_map_ref.as_ref().map(|source| &source.name)),
        ("secretRef", source.secret_ref.as_ref().map(|source| &source.name)),
    ];
    let mut count = 0;
    for (field, name) in sources {
        let Some(name) = name else { continue };
        count += 1;
        let at = format!("{at}.{field}.name");
        if check_given(&at, name, faults) {
            // A trailing hyphen and the character before it are not validated, because a suffix may complete the name.
            let before =
                name.strip_suffix('-').and_then(|rest| rest.get(..rest.len().checked_sub(1)?));
            let judged = before.map_or_else(|| name.clone(), |before| format!("{before}a"));
            let check = |_: &str| NameRule::Dns1123Subdomain.check(&judged);
            check_with(&at, name, check, faults);
        }
    }
    let why = match count {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => ONE_SOURCE,
    };
    faults.push(FieldError::invalid(list, "\"\"", why));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use serde_json::{Value, json};

    fn faults(env: Value, env_from: Value) -> Vec<String> {
        let container = object(json!({"name": "c", "env": env, "envFrom": env_from}));
        let mut faults = Vec::new();
        validate(&container, "c", &mut faults);
        texts(&faults)
    }

    #[test]
    fn variables() {
        let field = |path: &str| json!({"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
        let invalid = |why: &str| format!("c.env[0].valueFrom: Invalid value: \"\": {why}");
        let key = json!({"name": "s", "key": "k"});
        for (variable, expected) in [
            (json!({"name": "A", "value": "b"}), vec![]),
            (json!({"name": ""}), vec!["c.env[0].name: Required value".to_owned()]),
            (
                json!({"name": "A=B"}),
                vec![format!("c.env[0].name: Invalid value: \"A=B\": {VARIABLE}")],
            ),
            (field("metadata.name"), vec![]),
            (field("spec.host"), vec![]),
            (field("metadata.labels['a']"), vec![]),
            (
                field("spec.x"),
                vec![
                    "c.env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x"
                        .to_owned(),
                ],
            ),
            (
                json!({"name": "A", "valueFrom": {}}),
                vec![invalid(
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                )],
            ),
            (
                json!({"name": "A", "value": "b", "valueFrom": {"secretKeyRef": key}}),
                vec![invalid("may not be specified when `value` is not empty")],
            ),
            (
                json!({"name": "A", "valueFrom": {"secretKeyRef": key, "configMapKeyRef": {"name": "m", "key": ""}}}),
                vec![
                    "c.env[0].valueFrom.configMapKeyRef.key: Required value".to_owned(),
                    invalid(ONE_SOURCE),
                ],
            ),
        ] {
            assert_eq!(faults(json!([variable]), json!([])), expected, "{variable}");
        }
    }

    #[test]
    fn sources() {
        let none =
            "c.envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`";
        for (source, expected) in [
            (json!({"configMapRef": {"name": "m-"}}), vec![]),
            (json!({}), vec![none]),
            (json!({"secretRef": {}}), vec!["c.envFrom[0].secretRef.name: Required value"]),
        ] {
            assert_eq!(faults(json!([]), json!([source])), expected, "{source}");
        }
    }
}
