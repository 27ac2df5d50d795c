//! The names of a kind.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionNames;

use crate::object::names::check_dns_1035_label;

/// The names of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The kind, such as `Llama`.
    pub kind: String,
    /// The kind of lists, such as `LlamaList`.
    pub list_kind: String,
    /// The plural name in paths and permissions, such as `llamas`.
    pub plural: String,
    /// The singular name, such as `llama`.
    pub singular: String,
    /// Short names, such as `ll`.
    pub short_names: Vec<String>,
    /// Groups of kinds, as `kubectl get all` uses them.
    pub categories: Vec<String>,
}

impl Names {
    /// Parses the names of a definition and fills in omitted ones.
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
        // These two names may contain capital letters.
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
