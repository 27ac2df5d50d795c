//! The validation of CustomResourceDefinitions.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::strategy::names;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, JSONSchemaProps,
};

use super::approval;
use super::error_paths::hoisted;
use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, quote, to_json};
use crate::controllers::definitions::is_established;

/// Validates a definition: its names, its versions and their schemas. All errors are reported together, in the order of
/// kube-apiserver.
pub(crate) fn validate(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
) -> FieldErrors {
    let spec = &definition.spec;
    let (mut faults, mut of_versions, mut of_names) = (Vec::new(), Vec::new(), Vec::new());
    if old.is_none() {
        check_name(definition, &mut faults);
    }
    check_head(spec, &mut faults);
    check_version_names(spec, &mut of_versions);
    check_versions(spec, &mut of_names);
    check_names(spec, &mut of_names);
    let known = || faults.iter().chain(&of_versions).chain(&of_names);
    let is_broken = known().next().is_some();
    let is_known = |at: &str| known().any(|fault| fault.field() == at);
    let of_schemas = match is_broken {
        true => RuntimeKinds::check(&repaired(definition), old),
        false => RuntimeKinds::check(definition, old),
    };
    // This function validates the names.
    let is_of_name = |at: &str| {
        ["metadata.name", "spec.group", "spec.scope"].contains(&at) || at.starts_with("spec.names.")
    };
    let of_schemas = of_schemas.into_iter();
    let of_schemas = of_schemas.filter(|one| !is_known(one.field()) && !is_of_name(one.field()));
    let (in_versions, others): (Vec<_>, Vec<_>) = of_schemas
        .filter_map(|fault| reported(spec, fault))
        .partition(|fault| version_index(fault).is_some());
    of_versions.extend(in_versions);
    of_versions.sort_by_key(version_index);
    faults.extend(of_versions);
    faults.extend(of_names);
    faults.extend(others);
    check_ca_bundle(definition, old, &mut faults);
    check_change(definition, old, &mut faults);
    check_stored_versions(definition, &mut faults);
    faults.extend(approval::check(definition, old));
    faults
}

/// The index of the version that an error is in.
fn version_index(fault: &FieldError) -> Option<usize> {
    let (index, _) = fault.field().strip_prefix("spec.versions[")?.split_once(']')?;
    index.parse().ok()
}

/// An error in a version in the format of kube-apiserver: errors in parts that all versions share are reported once.
fn reported(spec: &CustomResourceDefinitionSpec, fault: FieldError) -> Option<FieldError> {
    let at = hoisted(spec, fault.field())?;
    let is_hoisted = at != fault.field();
    let fault = fault.with_field(|_| at);
    // Some errors name a path in their message, too.
    let hoist =
        |words: &str| words.replace(" within spec.versions[0].schema.", " within spec.validation.");
    Some(if is_hoisted { fault.with_words(hoist) } else { fault })
}

/// The definition with valid names and flags instead of missing or invalid ones, so that the rest of it can be
/// validated.
fn repaired(definition: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut repaired = definition.clone();
    repaired.metadata.name = Some("foos.example.com".to_owned());
    let spec = &mut repaired.spec;
    spec.group = "example.com".to_owned();
    spec.scope = "Namespaced".to_owned();
    spec.names = CustomResourceDefinitionNames {
        plural: "foos".to_owned(),
        singular: Some("foo".to_owned()),
        kind: "Foo".to_owned(),
        list_kind: Some("FooList".to_owned()),
        ..CustomResourceDefinitionNames::default()
    };
    if spec.versions.is_empty() {
        spec.versions.push(CustomResourceDefinitionVersion::default());
    }
    let mut seen = BTreeSet::new();
    let is_served = spec.versions.iter().any(|version| version.served);
    for (index, version) in spec.versions.iter_mut().enumerate() {
        version.storage = index == 0;
        version.served |= !is_served;
        let is_invalid = !names::check_dns_1035_label(&version.name).is_empty();
        if is_invalid || !seen.insert(version.name.clone()) {
            version.name = format!("unnamed{index}");
        }
        let schema = version.schema.get_or_insert_default();
        schema.open_api_v3_schema.get_or_insert_with(|| JSONSchemaProps {
            type_: Some("object".to_owned()),
            ..JSONSchemaProps::default()
        });
    }
    repaired
}

fn check_name(definition: &CustomResourceDefinition, faults: &mut FieldErrors) {
    let spec = &definition.spec;
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    if name != format!("{}.{}", spec.names.plural, spec.group) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        faults.push(FieldError::invalid("metadata.name", quote(name), why));
    }
}

/// Checks the CA bundle of the webhook. A new definition with an invalid bundle is not served; an update must not make
/// the bundle of a served definition invalid.
fn check_ca_bundle(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
    faults: &mut FieldErrors,
) {
    let may_be_wrong = |old: &CustomResourceDefinition| {
        !is_established(old) || RuntimeKinds::ca_bundle_fault(old).is_some()
    };
    let conversion = definition.spec.conversion.as_ref();
    if old.is_none_or(may_be_wrong) || conversion.is_none_or(|one| one.strategy != "Webhook") {
        return;
    }
    if let Some(why) = RuntimeKinds::ca_bundle_fault(definition) {
        let config = conversion.and_then(|one| one.webhook.as_ref()?.client_config.as_ref());
        let bundle = to_json(&config.and_then(|config| config.ca_bundle.as_ref()));
        let at = "spec.conversion.webhookClientConfig.caBundle";
        faults.push(FieldError::invalid(at, bundle, &why));
    }
}

fn check_change(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
    faults: &mut FieldErrors,
) {
    let Some(old_spec) = old.map(|old| &old.spec) else { return };
    let new = &definition.spec;
    // Until a definition is established, nothing depends on its kind and scope.
    if old.is_some_and(is_established) {
        check_immutable("spec.scope", &new.scope, &old_spec.scope, faults);
        check_immutable("spec.names.kind", &new.names.kind, &old_spec.names.kind, faults);
    }
    check_immutable("spec.group", &new.group, &old_spec.group, faults);
    check_immutable("spec.names.plural", &new.names.plural, &old_spec.names.plural, faults);
}

/// Checks the stored versions, because objects may still be stored in them.
fn check_stored_versions(definition: &CustomResourceDefinition, faults: &mut FieldErrors) {
    const AT: &str = "status.storedVersions";
    let versions = &definition.spec.versions;
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.as_deref());
    let stored = stored.unwrap_or_default();
    let mut invalid = |why: &str| {
        let value = if stored.is_empty() { "null".to_owned() } else { to_json(&stored) };
        faults.push(FieldError::invalid(AT, value, why));
    };
    if stored.is_empty() {
        return invalid("must have at least one stored version");
    }
    // Each stored version is found once, even if several versions have its name.
    let mut listed: BTreeSet<&str> = stored.iter().map(String::as_str).collect();
    for version in versions {
        let is_listed = listed.remove(version.name.as_str());
        if version.storage && !is_listed {
            invalid(&format!("must have the storage version {}", version.name));
        }
    }
    for (index, stored) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version.name == *stored) {
            let why = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
            );
            faults.push(FieldError::invalid(format!("{AT}[{index}]"), quote(stored), &why));
        }
    }
}

/// Checks the group, the scope, and that each version has a schema.
fn check_head(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    const GROUP: &str = "spec.group";
    let of_group = names::check_dns_1123_subdomain(&spec.group);
    if spec.group.is_empty() {
        faults.push(FieldError::required(GROUP, ""));
    } else if !of_group.is_empty() {
        faults.push(FieldError::invalid(GROUP, quote(&spec.group), &of_group.join(",")));
    } else if !spec.group.contains('.') {
        let why = "should be a domain with at least one dot";
        faults.push(FieldError::invalid(GROUP, quote(&spec.group), why));
    }
    match spec.scope.as_str() {
        "" => faults.push(FieldError::required("spec.scope", "")),
        _ => check_one_of("spec.scope", Some(&spec.scope), &["Cluster", "Namespaced"], faults),
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        if schema.is_none() {
            let at = format!("spec.versions[{index}].schema.openAPIV3Schema");
            faults.push(FieldError::required(at, ""));
        }
    }
}

fn check_version_names(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    for (index, version) in spec.versions.iter().enumerate() {
        check_label(&format!("spec.versions[{index}].name"), &version.name, faults);
    }
}

fn check_label(at: &str, label: &str, faults: &mut FieldErrors) {
    let why = names::check_dns_1035_label(label);
    if !why.is_empty() {
        faults.push(FieldError::invalid(at, quote(label), &why.join(",")));
    }
}

fn check_versions(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    let names: BTreeSet<&str> = spec.versions.iter().map(|version| version.name.as_str()).collect();
    let mut check = |is_right: bool, why: &str| {
        if !is_right {
            let value = match spec.versions.as_slice() {
                [] => "null".to_owned(),
                versions => to_json(&versions),
            };
            faults.push(FieldError::invalid("spec.versions", value, why));
        }
    };
    check(names.len() == spec.versions.len(), "must contain unique version names");
    let stored = spec.versions.iter().filter(|version| version.storage).count();
    check(stored == 1, "must have exactly one version marked as storage version");
    // kube-apiserver also reports the first version under the field `spec.version`.
    if let Some(first) = spec.versions.first() {
        check_label("spec.version", &first.name, faults);
    }
}

fn check_names(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    let names = &spec.names;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mixed = "may have mixed case, but should otherwise match: ";
    let fields = [
        ("spec.names.plural", names.plural.clone(), ""),
        ("spec.names.singular", text(&names.singular), ""),
        ("spec.names.kind", names.kind.clone(), mixed),
        ("spec.names.listKind", text(&names.list_kind), mixed),
    ];
    let missing = fields.iter().filter(|(_, name, _)| name.is_empty());
    faults.extend(missing.map(|(at, ..)| FieldError::required(*at, "")));
    let mut check = |at: &str, name: &str, words: &str| {
        let checked = if words.is_empty() { name.to_owned() } else { name.to_lowercase() };
        let why = names::check_dns_1035_label(&checked);
        if !why.is_empty() {
            let why = format!("{words}{}", why.join(","));
            faults.push(FieldError::invalid(at, quote(name), &why));
        }
    };
    for (at, name, words) in fields.iter().filter(|(_, name, _)| !name.is_empty()) {
        check(at, name, words);
    }
    for (index, name) in names.short_names.iter().flatten().enumerate() {
        check(&format!("spec.names.shortNames[{index}]"), name, "");
    }
    for (index, name) in names.categories.iter().flatten().enumerate() {
        check(&format!("spec.names.categories[{index}]"), name, "");
    }
    if !names.kind.is_empty() && names.list_kind.as_ref() == Some(&names.kind) {
        let why = "kind and listKind may not be the same";
        faults.push(FieldError::invalid("spec.names.listKind", quote(&names.kind), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn definition(more: Value) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let mut spec = json!({
            "group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "llamas", "singular": "llama", "kind": "Llama", "listKind": "LlamaList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let versions = spec["versions"].as_array().unwrap();
        let stored = versions.iter().find(|version| version["storage"] == true);
        let stored: Vec<_> = stored.iter().map(|version| version["name"].clone()).collect();
        json!({
            "metadata": {"name": "llamas.example.com"}, "spec": spec,
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn custom_resource_definition_validation_reports_invalid_fields() {
        let names = json!({"plural": "llamas", "kind": "Llama", "listKind": "Llama"});
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"group": "a.b"}),
                vec![
                    "metadata.name: Invalid value: \"llamas.example.com\": must be spec.names.plural+\".\"+spec.group",
                ],
            ),
            (
                json!({"group": "", "scope": "", "names": {"plural": "a_b"}, "versions": []}),
                vec![
                    "metadata.name: Invalid value: \"llamas.example.com\": must be spec.names.plural+\".\"+spec.group",
                    "spec.group: Required value",
                    "spec.scope: Required value",
                    "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
                    "spec.names.singular: Required value",
                    "spec.names.kind: Required value",
                    "spec.names.listKind: Required value",
                    "spec.names.plural: Invalid value: \"a_b\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                    "status.storedVersions: Invalid value: null: must have at least one stored version",
                ],
            ),
            (
                json!({"scope": "X"}),
                vec![
                    "spec.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespaced\"",
                ],
            ),
            (
                json!({"names": names}),
                vec![
                    "spec.names.singular: Required value",
                    "spec.names.listKind: Invalid value: \"Llama\": kind and listKind may not be the same",
                ],
            ),
            (
                json!({"versions": [{"name": "v1", "served": true, "storage": true}]}),
                vec!["spec.versions[0].schema.openAPIV3Schema: Required value"],
            ),
        ] {
            assert_eq!(faults_of_new(validate, definition(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn a_definition_needs_one_storage_version_and_unique_version_names() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        let ends = |versions: Value| {
            let faults = faults_of_new(validate, definition(json!({"versions": versions})));
            let ends = faults.iter().filter_map(|fault| fault.rsplit_once(": "));
            ends.map(|(_, end)| end.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ends(json!([version("v1", true), version("v2", false)])), [] as [&str; 0]);
        assert_eq!(
            ends(json!([version("v1", true), version("v1", true)])),
            [
                "must contain unique version names",
                "must have exactly one version marked as storage version",
                "must have the storage version v1",
            ]
        );
        assert_eq!(
            ends(json!([version("v1", false)])),
            [
                "must have exactly one version marked as storage version",
                "must have at least one stored version",
            ]
        );
    }

    #[test]
    fn definition_updates_cannot_change_scope_group_or_stored_versions() {
        let established = |status: &str| {
            let mut old = definition(json!({}));
            old["status"]["conditions"] = json!([{"type": "Established", "status": status}]);
            old
        };
        let cluster = definition(json!({"scope": "Cluster"}));
        assert_eq!(
            faults_of_update(validate, established("False"), cluster.clone()),
            [] as [&str; 0]
        );
        assert_eq!(
            faults_of_update(validate, established("True"), cluster),
            ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
        );
        assert_eq!(
            faults_of_update(validate, established("False"), definition(json!({"group": "a.b"}))),
            ["spec.group: Invalid value: \"a.b\": field is immutable"]
        );
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let other = json!({"name": "v2", "served": true, "storage": true, "schema": schema});
        let mut without = definition(json!({"versions": [other]}));
        without["status"]["storedVersions"] = json!(["v1", "v2"]);
        let faults = faults_of_update(validate, established("True"), without);
        assert_eq!(faults.len(), 1);
        let start = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; ";
        assert!(faults[0].starts_with(start), "{faults:?}");
    }
}
