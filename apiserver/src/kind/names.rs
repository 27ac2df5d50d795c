//! What a kind is called.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionNames;

use crate::object::names::check_subdomain;

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
    pub(super) fn parse(
        names: &CustomResourceDefinitionNames,
    ) -> Result<Self, (&'static str, String)> {
        if names.kind.is_empty() {
            return Err(("kind", "must not be empty".to_owned()));
        }
        if names.plural.contains('.') || !check_subdomain(&names.plural).is_empty() {
            return Err(("plural", format!("{:?} is not a DNS-1123 label", names.plural)));
        }
        let or_else = |given: &Option<String>, default: String| match given {
            Some(given) if !given.is_empty() => given.clone(),
            _ => default,
        };
        Ok(Self {
            kind: names.kind.clone(),
            list_kind: or_else(&names.list_kind, format!("{}List", names.kind)),
            plural: names.plural.clone(),
            singular: or_else(&names.singular, names.kind.to_lowercase()),
            short_names: names.short_names.clone().unwrap_or_default(),
            categories: names.categories.clone().unwrap_or_default(),
        })
    }
}
