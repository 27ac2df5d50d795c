//! Parsing of the definition of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};

use super::conversion::Converter;
use super::{
    ErasedColumns, Kind, Names, ResourceScope, ShownObjects, Strategy, Version, WebhookConversion,
    compare_versions,
};
use crate::error::StartError;
use crate::object::Shape;
use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};
use crate::schema::Types;

/// The largest number of character classes (`\pL`) in the patterns of a definition, counted before the patterns are
/// parsed: each class can be hundreds of ranges.
const PATTERN_CLASSES: usize = 20_000;
/// The largest size of the compiled patterns of a definition in bytes; equal patterns are counted once. It is about the
/// memory that one object may use, which contains a string for each pattern. A typical pattern uses 3 kB.
const PATTERN_BYTES: usize = 8 << 20;

impl Kind {
    /// Parses a definition. `cells` are the columns whose cells are computed by code.
    ///
    /// # Errors
    /// If kube-apiserver would reject the definition, or if it lacks a column of `cells`. The error names each invalid
    /// field.
    pub fn parse(
        definition: &CustomResourceDefinition,
        cells: impl IntoIterator<Item = Arc<ErasedColumns>>,
    ) -> Result<Self, StartError> {
        Self::parse_in(definition, cells, None, faults_of_group(definition), None)
    }

    /// Parses a definition that was accepted when it was written, even if new definitions must meet more requirements.
    /// Errors that do not prevent serving are added to `lesser`.
    ///
    /// # Errors
    /// If the kind cannot be served.
    pub fn parse_kept(
        definition: &CustomResourceDefinition,
        lesser: &mut Vec<String>,
    ) -> Result<Self, StartError> {
        Self::parse_in(definition, [], None, faults_of_group(definition), Some(lesser))
    }

    /// Parses the definition of a built-in kind. Its group need not be a domain, and that of Pods is empty. Its types
    /// determine the content of objects.
    ///
    /// # Errors
    /// Same as for `parse`; also if there is no such type.
    pub fn parse_built_in(
        definition: &CustomResourceDefinition,
        cells: impl IntoIterator<Item = Arc<ErasedColumns>>,
        types: &Arc<Types>,
    ) -> Result<Self, StartError> {
        let group = &definition.spec.group;
        let is_named = group.is_empty() || check_dns_1123_subdomain(group).is_empty();
        let faults = (!is_named).then(|| "spec.group: must be a domain".to_owned());
        Self::parse_in(definition, cells, Some(types), faults.into_iter().collect(), None)
    }

    fn parse_in(
        definition: &CustomResourceDefinition,
        cells: impl IntoIterator<Item = Arc<ErasedColumns>>,
        types: Option<&Arc<Types>>,
        mut faults: Vec<String>,
        lesser: Option<&mut Vec<String>>,
    ) -> Result<Self, StartError> {
        let spec = &definition.spec;
        let qualified = crate::error::qualified(&spec.group, &spec.names.plural);
        if definition.metadata.name.as_ref().is_some_and(|name| *name != qualified) {
            faults.push(format!("metadata.name: must be {qualified:?}"));
        }
        let scope = parse_scope(spec, &mut faults);
        if spec.preserve_unknown_fields == Some(true) {
            faults.push("spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead".to_owned());
        }
        let names = Names::parse(&spec.names, &mut faults);
        if classes(spec) > PATTERN_CLASSES {
            faults.push(format!(
                "spec.versions: Forbidden: must have fewer patterns: they may have {PATTERN_CLASSES} classes of characters"
            ));
            return Err(StartError::Kind { kind: qualified, faults });
        }
        let cells: Vec<_> = cells.into_iter().collect();
        let versions = parse_versions(spec, &cells, types, (&mut faults, lesser));
        faults.extend(versions.as_ref().and_then(fault_of_patterns));
        match versions {
            Some((versions, unserved, storage)) if faults.is_empty() => Ok(Self {
                group: spec.group.clone(),
                names,
                scope,
                equivalent_versions: &[],
                versions,
                storage,
                unserved,
                shape: Shape::default(),
                conversion: WebhookConversion::of(&qualified, spec.conversion.as_ref())
                    .map(Converter::Webhook),
                admission_rules: None,
                strategy: Strategy::default(),
                subresource_handlers: Vec::new(),
                subresources: Vec::new(),
                strategy_rules: None,
                view: None,
                visibility: None,
                shown: ShownObjects::default(),
            }),
            _ => Err(StartError::Kind { kind: qualified, faults }),
        }
    }
}

/// The served versions, the versions that are not served, and the storage version.
type Versions = (Vec<Arc<Version>>, Vec<Arc<Version>>, Arc<Version>);

fn faults_of_group(definition: &CustomResourceDefinition) -> Vec<String> {
    let group = &definition.spec.group;
    let is_domain = check_dns_1123_subdomain(group).is_empty() && group.contains('.');
    let fault = "spec.group: must be a domain with at least one dot".to_owned();
    (!is_domain).then_some(fault).into_iter().collect()
}

fn parse_scope(spec: &CustomResourceDefinitionSpec, faults: &mut Vec<String>) -> ResourceScope {
    match spec.scope.as_str() {
        "Namespaced" => ResourceScope::Namespaced,
        "Cluster" => ResourceScope::Cluster,
        _ => {
            faults.push("spec.scope: must be Namespaced or Cluster".to_owned());
            ResourceScope::Cluster
        }
    }
}

/// Checks the size of the compiled patterns of all versions.
fn fault_of_patterns((served, unserved, storage): &Versions) -> Option<String> {
    let all = served.iter().chain(unserved).chain([storage]);
    let patterns: BTreeMap<String, usize> =
        all.flat_map(|version| version.schema.patterns()).collect();
    let bytes: usize = patterns.values().sum();
    (bytes > PATTERN_BYTES).then(|| {
        format!(
            "spec.versions: Forbidden: must have fewer or smaller patterns: compiled they take {bytes} bytes, and may take {PATTERN_BYTES}"
        )
    })
}

/// Parses the versions, preferred version first. With `lesser`, errors that do not prevent serving are added to it.
fn parse_versions(
    spec: &CustomResourceDefinitionSpec,
    cells: &[Arc<ErasedColumns>],
    types: Option<&Arc<Types>>,
    (faults, mut lesser): (&mut Vec<String>, Option<&mut Vec<String>>),
) -> Option<Versions> {
    let mut storage = None;
    let mut served: Vec<Arc<Version>> = Vec::new();
    let mut unserved: Vec<Arc<Version>> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (index, version) in spec.versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        if let Some(why) = check_dns_1035_label(&version.name).first() {
            faults.push(format!("{path}.name: {why}"));
        }
        if names.contains(&version.name.as_str()) {
            faults.push(format!("{path}.name: a second version of this name"));
        }
        names.push(&version.name);
        let cells = cells.iter().find(|cells| cells.version() == version.name).cloned();
        let before = faults.len();
        let parsed = Version::parse(spec, version, cells, types, &path, faults);
        let Some(parsed) = parsed.map(Arc::new) else { continue };
        if let Some(lesser) = &mut lesser {
            lesser.extend(faults.drain(before..));
        }
        if version.storage && storage.replace(Arc::clone(&parsed)).is_some() {
            faults.push(format!("{path}.storage: a second version is marked as stored"));
        }
        if version.served {
            served.push(parsed);
        } else {
            unserved.push(parsed);
        }
    }
    for version in cells.iter().map(|cells| cells.version()) {
        if names.contains(&version) {
            continue;
        }
        faults.push(format!(
            "spec.versions: must contain {version:?}, because cells of its columns are computed by code"
        ));
    }
    if !spec.versions.iter().any(|version| version.storage) {
        faults.push("spec.versions: no version is marked as stored".to_owned());
    }
    served.sort_by(|a, b| compare_versions(&a.name, &b.name));
    Some((served, unserved, storage?))
}

/// An upper limit for the number of character classes in the patterns; other strings are counted too. With a
/// case-insensitive flag, each bracketed class can become as large.
fn classes(spec: &CustomResourceDefinitionSpec) -> usize {
    let text = serde_json::to_string(&spec.versions).unwrap_or_default();
    let named = text.matches("\\\\p").count() + text.matches("\\\\P").count();
    let flags = text.split("(?").skip(1);
    let mut flags = flags.filter_map(|rest| rest.split([':', ')', '-', '<', '=']).next());
    let folds = flags.any(|flags| flags.contains('i'));
    named + if folds { text.matches('[').count() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn definition(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut tree = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        change(&mut tree["spec"]);
        serde_json::from_value(tree).unwrap()
    }

    fn check(change: impl FnOnce(&mut Value), expected: &str) {
        let error = Kind::parse(&definition(change), None).unwrap_err();
        assert_eq!(error.to_string(), format!("kind foos.example.com: {expected}"));
    }

    #[test]
    fn a_stored_kind_has_at_most_eight_selectable_fields() {
        for (count, expected) in [
            (8, vec![]),
            (9, vec!["spec.versions[0].selectableFields: Too many: 9: must have at most 8 items"]),
        ] {
            let names: Vec<String> = (0..count).map(|number| format!("f{number}")).collect();
            let properties: serde_json::Map<String, Value> =
                names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
            let fields = names.iter().map(|name| json!({"jsonPath": format!(".{name}")}));
            let fields: Vec<Value> = fields.collect();
            let definition = definition(|spec| {
                let version = &mut spec["versions"][0];
                version["schema"]["openAPIV3Schema"]["properties"] = properties.into();
                version["selectableFields"] = fields.into();
            });
            let kind = Kind::parse(&definition, None).unwrap();
            assert_eq!(kind.faults_of_stored(&definition), expected);
        }
    }

    #[test]
    fn names_have_defaults() {
        let kind = Kind::parse(&definition(|_| {}), None).unwrap();
        assert_eq!(kind.qualified(), "foos.example.com");
        assert_eq!(kind.names.list_kind, "FooList");
        assert_eq!(kind.names.singular, "foo");
        assert_eq!(kind.api_version("v1"), "example.com/v1");
    }

    #[test]
    fn definition_errors_name_the_invalid_field() {
        check(
            |spec| spec["versions"][0]["storage"] = json!(false),
            "spec.versions: no version is marked as stored",
        );
        check(|spec| spec["scope"] = json!("Galaxy"), "spec.scope: must be Namespaced or Cluster");
        check(
            |spec| spec["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("string"),
            "spec.versions[0].schema.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root",
        );
        check(
            |spec| spec["versions"][0]["schema"] = json!(null),
            "spec.versions[0].schema.openAPIV3Schema: is missing",
        );
        check(
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "string", "jsonPath": "spec.a"}]);
            },
            "spec.versions[0].additionalPrinterColumns[0].jsonPath: \"spec.a\" is not a JSONPath",
        );
        check(
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "colour", "jsonPath": ".spec.a"}]);
            },
            "spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"colour\": must be one of boolean,date,integer,number,string",
        );
        check(
            |spec| spec["names"]["listKind"] = json!("Foo"),
            "spec.names.listKind: must not be the kind",
        );
        check(
            |spec| {
                let version = spec["versions"][0].clone();
                spec["versions"].as_array_mut().unwrap().push(version);
            },
            "spec.versions[1].name: a second version of this name; spec.versions[1].storage: a second version is marked as stored",
        );
    }

    #[test]
    fn character_classes_in_schema_patterns_are_limited() {
        let of = |pattern: String| {
            definition(|spec| {
                let text = json!({"type": "string", "pattern": pattern});
                let spec = &mut spec["versions"][0]["schema"]["openAPIV3Schema"];
                spec["properties"]["text"] = text;
            })
        };
        for many in ["\\pL", "\\P{Greek}", "(?i)[a-z]"] {
            let refused = Kind::parse(&of(many.repeat(PATTERN_CLASSES + 1)), None);
            let why = refused.unwrap_err().to_string();
            assert!(why.ends_with("they may have 20000 classes of characters"), "{many}: {why}");
            assert!(Kind::parse(&of(many.to_owned()), None).is_ok(), "{many}");
        }
        assert!(Kind::parse(&of("[a-z]?".repeat(100)), None).is_ok());
    }

    #[test]
    fn versions_are_sorted_and_deprecated_ones_name_their_replacement() {
        let kind = Kind::parse(
            &definition(|spec| {
                let version = spec["versions"][0].clone();
                let another = |name: &str, served: bool, deprecated: bool| {
                    let mut version = version.clone();
                    version["name"] = name.into();
                    version["served"] = served.into();
                    version["deprecated"] = deprecated.into();
                    version["storage"] = false.into();
                    version
                };
                let more = [
                    another("v1alpha1", true, true),
                    another("v2", true, false),
                    another("v3", false, false),
                ];
                spec["versions"].as_array_mut().unwrap().extend(more);
            }),
            None,
        )
        .unwrap();
        let names: Vec<&str> = kind.versions.iter().map(|version| version.name.as_str()).collect();
        assert_eq!(names, ["v2", "v1", "v1alpha1"]);
        assert_eq!(kind.storage.name, "v1");
        assert_eq!(kind.version("v1").unwrap().deprecation, None);
        assert_eq!(
            kind.version("v1alpha1").unwrap().deprecation.as_deref(),
            Some("example.com/v1alpha1 Foo is deprecated; use example.com/v2 Foo")
        );
    }
}
