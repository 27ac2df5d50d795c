//! The rules and selectors of policies and bindings (`matchConstraints` and `matchResources`).

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, RuleWithOperations,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::admission::matching::{Selectors, is_met, is_selected};
use crate::admission::{AdmissionError, AdmissionRequest, LazyNamespaces};
use crate::object::Tree;

/// The rules and selectors that a write must match.
#[derive(Debug)]
pub(super) struct Constraints {
    /// The rules, one of which must match; without rules every write matches.
    rules: Vec<NamedRule>,
    /// The rules of which none may match.
    excluded: Vec<NamedRule>,
    /// Whether `matchPolicy` is `Exact`: the rules do not match other versions of a kind.
    is_exact: bool,
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
}

/// A rule, and the names of the objects that it matches; without names it matches all.
#[derive(Debug)]
struct NamedRule {
    rule: RuleWithOperations,
    names: Vec<String>,
}

impl Constraints {
    pub(super) fn new(resources: &MatchResources) -> Self {
        let rules = |rules: &Option<Vec<NamedRuleWithOperations>>| {
            rules.iter().flatten().map(NamedRule::new).collect()
        };
        Self {
            rules: rules(&resources.resource_rules),
            excluded: rules(&resources.exclude_resource_rules),
            is_exact: resources.match_policy.as_deref() != Some("Equivalent"),
            namespace_selector: resources.namespace_selector.clone().unwrap_or_default(),
            object_selector: resources.object_selector.clone().unwrap_or_default(),
        }
    }

    /// The version in which expressions get the objects of a write, if the rules match the write.
    pub(super) fn version<'a>(&self, request: &'a AdmissionRequest<'_>) -> Option<&'a str> {
        if self.version_by(&self.excluded, request).is_some() {
            return None;
        }
        match self.rules.is_empty() {
            true => Some(request.version),
            false => self.version_by(&self.rules, request),
        }
    }

    fn version_by<'a>(
        &self,
        rules: &[NamedRule],
        request: &'a AdmissionRequest<'_>,
    ) -> Option<&'a str> {
        if rules.iter().any(|rule| rule.matches(request, request.version)) {
            return Some(request.version);
        }
        if self.is_exact {
            return None;
        }
        // Earlier rules take precedence.
        let other = |rule: &NamedRule| {
            request.other_versions().find(|version| rule.matches(request, version))
        };
        rules.iter().find_map(other)
    }

    /// The version in which expressions get the objects of a write, if the rules and the selectors match the write.
    ///
    /// # Errors
    /// If the namespace is missing or cannot be read.
    pub(super) async fn matched<'a>(
        &self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&Tree>,
        namespaces: Option<&LazyNamespaces>,
    ) -> Result<Option<&'a str>, AdmissionError> {
        let Some(version) = self.version(request) else { return Ok(None) };
        let selectors =
            Selectors { namespace: &self.namespace_selector, object: &self.object_selector };
        let is_selected = is_selected(selectors, request, object, namespaces).await?;
        Ok(is_selected.then_some(version))
    }
}

impl NamedRule {
    fn new(rule: &NamedRuleWithOperations) -> Self {
        let NamedRuleWithOperations {
            api_groups,
            api_versions,
            operations,
            resource_names,
            resources,
            scope,
        } = rule.clone();
        let rule = RuleWithOperations { api_groups, api_versions, operations, resources, scope };
        Self { rule, names: resource_names.unwrap_or_default() }
    }

    fn matches(&self, request: &AdmissionRequest<'_>, version: &str) -> bool {
        // The deletion of a collection has no name.
        let own = if request.is_of_collection() { "" } else { request.name };
        let has_name = || self.names.iter().any(|name| name == own);
        is_met(&self.rule, request, version) && (self.names.is_empty() || has_name())
    }
}
