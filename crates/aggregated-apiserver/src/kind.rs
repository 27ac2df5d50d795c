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
mod parse;
mod pruned_json;
mod questions;
mod quota_usage;
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
pub use filled_fields::{FilledField, SentValues};
pub use names::Names;
pub use null_fields::drop_null_fields;
pub use pruned_json::PrunedJson;
pub use questions::{Conversion, Conversions, Question, is_incomplete};
pub use quota_usage::{ObjectScopes, ObjectUsage, QuotaEvaluator, QuotaUsage};
pub use redaction::{MOST_RIGHTS, MissingRights, ProtectedFields, Redaction};
pub use review_handler::{Review, ReviewError, ReviewHandler};
pub use scale::scale;
pub use shown::ShownObjects;
pub use strategy::{NameRule, Routing, RowCondition, StoragePrefix, Strategy};
pub use subresource_handler::{
    SubresourceError, SubresourceHandler, SubresourceOutcome, SubresourceRequest,
};
pub use subresources::{FieldPath, ScalePaths, Subresources};
pub use unconvertible::Unconvertible;
pub use version::{Version, compare as compare_versions};
pub use view::View;
pub use visibility::{
    ErasedVisibility, FollowingRule, IdentityJudge, NumberedRule, ObjectIdentity,
};
pub use webhook_conversion::{CallWebhooks, WebhookConversion, checked};
pub use webhook_conversion_errors::{check_webhook_service, check_webhook_url};

use conversion::Converter;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::error::quote;
use crate::object::selector::SelectableFields;
use crate::object::{Shape, Tree};
use crate::schema::coerce;
use crate::subresource::Subresource;

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
    /// The subresources of built-in kinds that are handled by code.
    pub subresource_handlers: Vec<Arc<SubresourceHandler>>,
    /// The subresources that are handled by code of the user.
    pub subresources: Vec<Arc<Subresource>>,
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

    /// Sets the subresources that are handled by code: those of built-in kinds, and those of the user.
    #[must_use]
    pub fn with_subresources(
        self,
        subresource_handlers: Vec<Arc<SubresourceHandler>>,
        subresources: Vec<Arc<Subresource>>,
    ) -> Self {
        Self { subresource_handlers, subresources, ..self }
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
