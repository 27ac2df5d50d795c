//! What a kind is called.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionNames;

use crate::object::names::check_dns_1035_label;

/// What a kind is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// `Llama`
    pub kind: String,
    /// `LlamaList`
    pub list_kind: String,
    /// `llamas`: what paths and permissions say.
    pub plural: String,
    /// `llama`
    pub singular: String,
    /// `ll`
    pub short_names: Vec<String>,
    /// Groups of kinds, as `kubectl get all` uses them.
    pub categories: Vec<String>,
}

impl Names {
    /// Parses the names of a definition, filling in what may be left out.
    pub(super) fn parse(names: &CustomResourceDefinitionNames, faults: &mut Vec<String>) -> Self {
        let or_else = |given: &Option<String>, default: String| match given {
            Some(given) if !given.is_empty() => given.clone(),
            _ => default,
        };
        let parsed = Self {
            kind: names.kind.clone(),
            list_kind: or_else(&names.list_kind, format!("{}List", names.kind)),
            plural: names.plural.clone(),
            singular: or_else(&names.singular, names.kind.to_lowercase()),
            short_names: names.short_names.clone().unwrap_or_default(),
            categories: names.categories.clone().unwrap_or_default(),
        };
        let mut check = |field: &str, name: &str| {
            if let Some(why) = check_dns_1035_label(name).first() {
                faults.push(format!("spec.names.{field}: {name:?}: {why}"));
            }
        };
        check("plural", &parsed.plural);
        check("singular", &parsed.singular);
        // These two may have capitals.
        check("kind", &parsed.kind.to_lowercase());
        check("listKind", &parsed.list_kind.to_lowercase());
        for (index, name) in parsed.short_names.iter().enumerate() {
            check(&format!("shortNames[{index}]"), name);
        }
        for (index, name) in parsed.categories.iter().enumerate() {
            check(&format!("categories[{index}]"), name);
        }
        if parsed.kind == parsed.list_kind {
            faults.push("spec.names.listKind: must not be the kind".to_owned());
        }
        parsed
    }
}
