//! The validation of CustomResourceDefinitions.

use std::collections::BTreeSet;

use aggregated_apiserver::{FieldError, RuntimeKinds, names};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};

use super::approval;
use super::fault_paths::hoisted;
use crate::built_in::checks::{
    FieldErrors, check_immutable, check_one_of, check_with, quote, to_json,
};
use crate::controllers::definitions::is_established;

/// Validates a definition: its names, its versions and their schemas.
pub(crate) fn validate(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &definition.spec;
    if old.is_none() {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        if name != format!("{}.{}", spec.names.plural, spec.group) {
            let why = "must be spec.names.plural+\".\"+spec.group";
            faults.push(FieldError::invalid("metadata.name", quote(name), why));
        }
    }
    check_change(definition, old, &mut faults);
    if faults.is_empty() {
        check(spec, &mut faults);
    }
    check_ca_bundle(definition, old, &mut faults);
    faults.extend(approval::check(definition, old));
    if faults.is_empty() {
        let of_schemas = RuntimeKinds::check(definition, old).into_iter();
        faults.extend(of_schemas.filter_map(|fault| {
            let at = hoisted(spec, fault.field())?;
            let is_hoisted = at != fault.field();
            let fault = fault.with_field(|_| at);
            // Some name a place in their words, too.
            let hoist = |words: &str| {
                words.replace(" within spec.versions[0].schema.", " within spec.validation.")
            };
            Some(if is_hoisted { fault.with_words(hoist) } else { fault })
        }));
    }
    faults
}

/// A new definition whose webhook's certificates cannot be read is not served; one that is served may not come
/// to that.
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
    let is_established = old.is_some_and(is_established);
    check_immutable("spec.group", &new.group, &old_spec.group, faults);
    check_immutable("spec.names.plural", &new.names.plural, &old_spec.names.plural, faults);
    if is_established {
        check_immutable("spec.names.kind", &new.names.kind, &old_spec.names.kind, faults);
        check_immutable("spec.scope", &new.scope, &old_spec.scope, faults);
    }
    // Objects may still be stored in these versions.
    let stored = old.and_then(|old| old.status.as_ref()?.stored_versions.as_ref());
    for (index, stored) in stored.into_iter().flatten().enumerate() {
        if !new.versions.iter().any(|version| version.name == *stored) {
            let why = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
            );
            let at = format!("status.storedVersions[{index}]");
            faults.push(FieldError::invalid(at, quote(stored), &why));
        }
    }
}

fn check(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    if spec.group.is_empty() {
        faults.push(FieldError::required("spec.group", ""));
    } else {
        check_with("spec.group", &spec.group, names::check_dns_1123_subdomain, faults);
        if !spec.group.contains('.') {
            let why = "should be a domain with at least one dot";
            faults.push(FieldError::invalid("spec.group", quote(&spec.group), why));
        }
    }
    check_one_of("spec.scope", Some(&spec.scope), &["Cluster", "Namespaced"], faults);
    let names: BTreeSet<&str> = spec.versions.iter().map(|version| version.name.as_str()).collect();
    let mut check_versions = |is_right: bool, why: &str| {
        if !is_right {
            faults.push(FieldError::invalid("spec.versions", to_json(&spec.versions), why));
        }
    };
    check_versions(names.len() == spec.versions.len(), "must contain unique version names");
    let stored = spec.versions.iter().filter(|version| version.storage).count();
    check_versions(stored == 1, "must have exactly one version marked as storage version");
    if stored == 0 {
        let why = "must have at least one stored version";
        faults.push(FieldError::invalid("status.storedVersions", "null", why));
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        if schema.is_none() {
            let at = format!("spec.versions[{index}].schema.openAPIV3Schema");
            faults.push(FieldError::required(at, ""));
        }
    }
    check_names(spec, faults);
}

fn check_names(spec: &CustomResourceDefinitionSpec, faults: &mut FieldErrors) {
    let names = &spec.names;
    let label = |text: &str| names::check_dns_1035_label(text);
    let mixed = |text: &str| {
        let faults = names::check_dns_1035_label(&text.to_lowercase());
        let why = "may have mixed case, but should otherwise match";
        faults.iter().map(|fault| format!("{why}: {fault}")).collect::<Vec<_>>()
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    type Check<'a> = &'a dyn Fn(&str) -> Vec<String>;
    let checks: [(&str, String, Check<'_>); 4] = [
        ("plural", names.plural.clone(), &label),
        ("singular", text(&names.singular), &label),
        ("kind", names.kind.clone(), &mixed),
        ("listKind", text(&names.list_kind), &mixed),
    ];
    for (field, name, check) in checks {
        let at = format!("spec.names.{field}");
        match name.as_str() {
            "" => faults.push(FieldError::required(at, "")),
            name => check_with(&at, name, check, faults),
        }
    }
    if !names.kind.is_empty() && names.list_kind.as_ref() == Some(&names.kind) {
        let why = "kind and listKind may not be the same";
        faults.push(FieldError::invalid("spec.names.listKind", quote(&names.kind), why));
    }
    for (list, given) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        for (index, name) in given.iter().flatten().enumerate() {
            check_with(
                &format!("spec.names.{list}[{index}]"),
                name,
                names::check_dns_1035_label,
                faults,
            );
        }
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
        json!({"metadata": {"name": "llamas.example.com"}, "spec": spec})
    }

    #[test]
    fn faults() {
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
    fn one_version_is_stored_and_each_name_is_there_once() {
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
    fn what_an_update_may_not_change() {
        let established = |status: &str| {
            let mut old = definition(json!({}));
            old["status"] = json!({
                "conditions": [{"type": "Established", "status": status}], "storedVersions": ["v1"],
            });
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
        let faults = faults_of_update(
            validate,
            established("True"),
            definition(json!({"versions": [other]})),
        );
        assert_eq!(faults.len(), 1);
        let start = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; ";
        assert!(faults[0].starts_with(start), "{faults:?}");
    }
}
