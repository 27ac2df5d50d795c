//! Kind: the parsed definition of a kind.
//!
//! A kind is parsed once from a CustomResourceDefinition; kube's derive generates one too. This module is the only
//! source of names for routes, discovery, columns, messages and manifests.
mod age;
mod columns;
mod conversion;
mod converted;
mod direct_conversion;
mod erased_columns;
mod erased_conversion;
mod erased_validation;
mod filled_fields;
pub mod go_reader;
mod json_path;
mod names;
mod null_fields;
mod pruned_json;
mod questions;
mod redaction;
mod review_handler;
mod scale;
mod selectable_fields;
mod shape;
mod shown;
mod strategy;
mod subresource_handler;
mod subresources;
mod unconvertible;
mod version;
mod view;
mod visibility;
mod webhook_conversion;
mod webhook_conversion_errors;

pub use crate::schema::{PatternCache, patterns_limit};
pub use age::age;
pub use columns::Columns;
pub use converted::converted_limit;
pub use erased_columns::ErasedColumns;
pub use erased_conversion::{DirectCode, ErasedConversion, Hub, VersionCode};
pub use erased_validation::{ErasedValidation, Judge, Prepared, RuleContext, Verdict};
pub use filled_fields::{FilledField, Said};
pub use names::Names;
pub use null_fields::drop_null_fields;
pub use pruned_json::PrunedJson;
pub use questions::{Conversion, Conversions, Question, is_incomplete};
pub use redaction::{MOST_RIGHTS, MissingRights, ProtectedFields, Redaction};
pub use review_handler::{ReviewError, ReviewHandler};
pub use scale::scale;
pub use shown::ShownObjects;
pub use strategy::{NameRule, QuotaUsage, Routing, RowCondition, StoragePrefix, Strategy};
pub use subresource_handler::{
    SubresourceError, SubresourceHandler, SubresourceOutcome, SubresourceRequest,
};
pub use subresources::{FieldPath, ScalePaths, Subresources};
pub use unconvertible::Unconvertible;
pub use version::{Version, compare as compare_versions};
pub use view::View;
pub use visibility::{ErasedVisibility, IdentityJudge, ObjectIdentity};
pub use webhook_conversion::{CallWebhooks, WebhookConversion, checked};
pub use webhook_conversion_errors::{check_webhook_service, check_webhook_url};

use conversion::Converter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};

use serde_json::Value;

use crate::error::{StartError, quote};
use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};
use crate::object::selector::SelectableFields;
use crate::object::{Shape, Tree};
use crate::schema::{Types, coerce};

/// The largest number of character classes (`\pL`) in the patterns of a definition, counted before the patterns are
/// parsed: each class can be hundreds of ranges.
const PATTERN_CLASSES: usize = 20_000;
/// The largest size of the compiled patterns of a definition in bytes; equal patterns are counted once. It is about the
/// memory that one object may use, which contains a string for each pattern. A typical pattern uses 3 kB.
const PATTERN_BYTES: usize = 8 << 20;

/// Whether the kind is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// Each object has a namespace.
    Namespaced,
    /// Objects are cluster-scoped.
    Cluster,
}

/// The parsed definition of a kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API group, such as `farm.example.com`.
    pub group: String,
    /// The names of the kind.
    pub names: Names,
    /// Whether the kind is namespaced.
    pub scope: ResourceScope,
    /// Versions of the group with identical objects, which are read as the kind's own.
    pub equivalent_versions: &'static [&'static str],
    /// The served versions, preferred version first.
    pub versions: Vec<Arc<Version>>,
    /// The storage version, served or not.
    pub storage: Arc<Version>,
    /// Versions that are not served. Objects may have been stored in them.
    unserved: Vec<Arc<Version>>,
    /// A hash of those parts of the definition that determine the content of objects.
    shape: Shape,
    /// The conversion between versions, if more changes than `apiVersion`.
    conversion: Option<Converter>,
    /// Rules of a user, which admission calls.
    pub admission_rules: Option<Arc<ErasedValidation>>,
    /// The rules for naming, writing and deleting objects of the kind.
    pub strategy: Strategy,
    /// The subresources that are handled by code.
    pub subresource_handlers: Vec<Arc<SubresourceHandler>>,
    /// Code of the strategy that sets defaults and validates what no type can express.
    strategy_rules: Option<Arc<ErasedValidation>>,
    /// The kind whose objects this kind shows, if it is a view.
    pub view: Option<View>,
    /// The filter of the objects that are visible to each reader; `None` if all are.
    visibility: Option<Arc<ErasedVisibility>>,
    /// Caches of the converted and redacted objects.
    shown: ShownObjects,
}

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
        let scope = match spec.scope.as_str() {
            "Namespaced" => ResourceScope::Namespaced,
            "Cluster" => ResourceScope::Cluster,
            _ => {
                faults.push("spec.scope: must be Namespaced or Cluster".to_owned());
                ResourceScope::Cluster
            }
        };
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
        if let Some((served, unserved, storage)) = &versions {
            let all = served.iter().chain(unserved).chain([storage]);
            let patterns: BTreeMap<String, usize> =
                all.flat_map(|version| version.schema.patterns()).collect();
            let bytes: usize = patterns.values().sum();
            if bytes > PATTERN_BYTES {
                faults.push(format!(
                    "spec.versions: Forbidden: must have fewer or smaller patterns: compiled they take {bytes} bytes, and may take {PATTERN_BYTES}"
                ));
            }
        }
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
                strategy_rules: None,
                view: None,
                visibility: None,
                shown: ShownObjects::default(),
            }),
            _ => Err(StartError::Kind { kind: qualified, faults }),
        }
    }

    /// Sets rules that are written in Rust. Rules of built-in kinds become part of their strategy; rules of users
    /// become part of admission.
    #[must_use]
    pub fn with_rules(self, rules: Option<Arc<ErasedValidation>>) -> Self {
        match self.is_typed() {
            true => Self { strategy_rules: rules, ..self },
            false => Self { admission_rules: rules, ..self },
        }
    }

    /// Sets the code that converts between versions.
    #[must_use]
    pub fn with_conversion(self, conversion: Option<Arc<ErasedConversion>>) -> Self {
        let conversion = conversion.map(Converter::Code).or(self.conversion);
        Self { conversion, ..self }
    }

    /// Sets the strategy.
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Sets the subresources that are handled by code.
    #[must_use]
    pub fn with_subresources(self, subresource_handlers: Vec<Arc<SubresourceHandler>>) -> Self {
        Self { subresource_handlers, ..self }
    }

    /// Makes the kind a view of another kind.
    #[must_use]
    pub fn with_view(self, view: Option<View>) -> Self {
        Self { view, ..self }
    }

    /// Sets the filter of the objects that are visible to each reader.
    #[must_use]
    pub fn with_visibility(self, visibility: Option<Arc<ErasedVisibility>>) -> Self {
        Self { visibility, ..self }
    }

    /// The collection in which the objects are stored.
    pub fn collection(&self) -> String {
        self.view.as_ref().map_or_else(|| self.qualified(), View::collection)
    }

    /// The fields by which objects of a version can be selected, besides name and namespace.
    pub fn selectable<'a>(&'a self, version: &'a Version) -> &'a SelectableFields {
        if self.is_typed() { &self.strategy.selectable } else { &version.selectable }
    }

    /// Fills in `apiVersion` and `kind` of an object of a built-in kind if they are missing.
    ///
    /// # Errors
    /// If the object states another type; the message is that of Go's decoder.
    pub fn complete_type(&self, tree: &mut Tree, version: &Version) -> Result<(), String> {
        let expected = self.api_version(&version.name);
        // Go treats an empty group as none.
        if let Some(Value::String(given)) = tree.get_mut("apiVersion")
            && let Some(rest) = given.strip_prefix('/')
        {
            *given = rest.to_owned();
        }
        let is_same =
            |given: &str| self.equivalent_versions.iter().any(|one| self.api_version(one) == given);
        if tree.get("apiVersion").and_then(Value::as_str).is_some_and(is_same) {
            tree.insert("apiVersion".to_owned(), expected.as_str().into());
        }
        for (field, value) in [("apiVersion", &expected), ("kind", &self.names.kind)] {
            let is_said = |said: &Value| !said.is_null() && *said != "";
            if !tree.get(field).is_some_and(is_said) {
                tree.insert(field.to_owned(), value.as_str().into());
            }
        }
        let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
        let (given, kind) = (text("apiVersion"), text("kind"));
        if given == expected && kind == self.names.kind {
            return Ok(());
        }
        let (group, name) = given.split_once('/').unwrap_or(("", given));
        let is_known =
            given == expected && version.schema.types().kind(group, name, kind).is_some();
        let own = &self.names.kind;
        let why = if is_known {
            let package = match self.group.split('.').next() {
                None | Some("") => "core",
                Some(package) => package,
            };
            format!("converting ({name}.{kind}) to ({package}.{own}): unknown conversion")
        } else {
            let (kind, given) = (quote(kind), quote(given));
            format!(
                "no kind {kind} is registered for version {given} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Err(format!("{kind} in version {} cannot be handled as a {own}: {why}", quote(name)))
    }

    /// Whether objects are decoded in the same way as Go decodes them. That is so for built-in kinds.
    pub fn is_typed(&self) -> bool {
        self.storage.schema.is_typed()
    }

    /// Normalizes an object of a built-in kind in the same way as Go decodes it, after code has changed it. This cannot
    /// fail, because the code has read the object as its type.
    pub fn coerce_again(&self, version: &Version, tree: &mut Tree) {
        if version.schema.is_typed() {
            let _ = coerce(version.schema.root(), tree);
        }
    }

    /// The rules for objects of a version: those of a user, or else those of the strategy.
    pub fn rules_of(&self, version: &Version) -> Option<&ErasedValidation> {
        let rules = self.admission_rules.as_deref().filter(|rules| rules.is_about(&version.name));
        rules.or_else(|| self.strategy_rules(version))
    }

    /// The code of the strategy for objects of a version.
    pub fn strategy_rules(&self, version: &Version) -> Option<&ErasedValidation> {
        self.strategy_rules.as_deref().filter(|rules| rules.is_about(&version.name))
    }

    /// A served version whose objects the rules do not check, because no code converts them to the version of the
    /// rules.
    pub fn version_without_rules(&self) -> Option<&str> {
        if matches!(self.conversion, Some(Converter::Code(_))) {
            return None;
        }
        let rules = self.admission_rules.as_ref().or(self.strategy_rules.as_ref())?;
        let names = self.versions.iter().map(|version| version.name.as_str());
        names.into_iter().find(|name| !rules.is_about(name))
    }

    /// Errors in the definition of a kind whose objects are stored.
    pub fn faults_of_stored(&self, definition: &CustomResourceDefinition) -> Vec<String> {
        let of_conversion = webhook_conversion_errors::faults(definition.spec.conversion.as_ref());
        let mut faults: Vec<String> = of_conversion.iter().map(ToString::to_string).collect();
        if self.is_converted_by_webhook() && self.hides() {
            let why = "of objects that are hidden from some users a webhook may not decide";
            faults.push(format!("spec.conversion.strategy: {why}"));
        }
        for (index, version) in definition.spec.versions.iter().enumerate() {
            let Some(parsed) = self.any_version(&version.name) else { continue };
            let fields = version.selectable_fields.as_deref().unwrap_or_default();
            let path = format!("spec.versions[{index}]");
            faults.extend(selectable_fields::faults_of_stored(fields, &parsed.schema, &path));
        }
        faults
    }

    /// The formats in the schemas of all versions that are not recognized and validate nothing.
    pub fn unrecognized_formats(&self) -> BTreeSet<String> {
        self.all_versions().flat_map(|version| version.unrecognized_formats()).collect()
    }

    /// The version with this name, served or not.
    pub fn any_version(&self, name: &str) -> Option<&Arc<Version>> {
        self.all_versions().chain([&self.storage]).find(|version| version.name == name)
    }

    /// All versions, served or not.
    pub fn all_versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.versions.iter().chain(&self.unserved)
    }

    /// The qualified name, such as `llamas.farm.example.com`.
    pub fn qualified(&self) -> String {
        crate::error::qualified(&self.group, &self.names.plural)
    }

    /// The `apiVersion` of a version: `farm.example.com/v1alpha`, or `v1` in the core group.
    pub fn api_version(&self, version: &str) -> String {
        api_version(&self.group, version)
    }

    /// Whether a string equals the [`api_version`](Self::api_version) of a version.
    pub fn is_api_version(&self, text: &str, version: &str) -> bool {
        match text.strip_suffix(version) {
            Some("") => self.group.is_empty(),
            Some(group) => group.strip_suffix('/') == Some(&self.group) && !self.group.is_empty(),
            None => false,
        }
    }

    /// The served version with this name.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Whether the kind is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == ResourceScope::Namespaced
    }
}

/// The `apiVersion` of a group and version: `farm.example.com/v1alpha`, or `v1` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The path of a group and version without a leading slash: `apis/farm.example.com/v1alpha`, or `api/v1` in the core
/// group.
pub fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The served versions, the versions that are not served, and the storage version.
type Versions = (Vec<Arc<Version>>, Vec<Arc<Version>>, Arc<Version>);

fn faults_of_group(definition: &CustomResourceDefinition) -> Vec<String> {
    let group = &definition.spec.group;
    let is_domain = check_dns_1123_subdomain(group).is_empty() && group.contains('.');
    let fault = "spec.group: must be a domain with at least one dot".to_owned();
    (!is_domain).then_some(fault).into_iter().collect()
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
    use serde_json::json;

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
