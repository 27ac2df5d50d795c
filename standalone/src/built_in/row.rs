//! A row: everything that is said about a kind of Kubernetes, and how it becomes a kind
//! of the server.

use std::any::TypeId;

use aggregated_apiserver::{Cells, Kinds, Rules, Strategy, age};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, ListableResource, Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TYPES;

/// Everything that is said about a kind here. What it is called, and where it
/// lives, its type says.
pub(crate) struct Row<K> {
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) parts: Parts,
    pub(crate) columns: &'static [Column],
    pub(crate) cells: Cells<K>,
    pub(crate) rules: Rules<K>,
    pub(crate) strategy: Strategy,
}

impl<K> Row<K>
where
    K: ListableResource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + 'static,
    K: kube::Resource<DynamicType = ()>,
    <K as Resource>::Scope: 'static,
{
    /// A kind of which nothing is said but its strategy.
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self {
            short_names: &[],
            categories: &[],
            parts: Parts::None,
            columns: &[AGE],
            cells: Cells::none(),
            rules: Rules::none(),
            strategy,
        }
    }

    pub(crate) fn add(self, kinds: Kinds) -> Kinds {
        let Self { short_names, categories, parts, columns, mut cells, rules, strategy } = self;
        let mut version = version_of::<K>();
        version["additionalPrinterColumns"] = columns
            .iter()
            .map(|(name, column_type, path, is_wide)| {
                let format = if *name == "Name" { "name" } else { "" };
                json!({
                    "name": name, "type": column_type, "format": format, "jsonPath": path,
                    "priority": i32::from(*is_wide),
                })
            })
            .collect();
        version["subresources"] = match parts {
            Parts::None => json!({}),
            Parts::Status => json!({"status": {}}),
            Parts::StatusAndScale => json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            }}),
        };
        if columns.contains(&AGE) {
            cells = cells.cell(AGE.0, |object: &K, now| {
                let made = Metadata::metadata(object).creation_timestamp.as_ref();
                made.map_or_else(|| "<unknown>".to_owned(), |made| age(made.0, now))
            });
        }
        match definition::<K>(short_names, categories, &version) {
            Ok(definition) => {
                let kinds = kinds.built_in(definition, cells, rules, &TYPES);
                kinds.with_strategy(strategy)
            }
            Err(error) => {
                // What is made here is made of constants; a test reads all of them.
                tracing::error!("{}: {error}", K::KIND);
                kinds
            }
        }
    }
}

/// What there is besides the object itself.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// Nothing.
    None,
    /// Its status.
    Status,
    /// Its status, and how many replicas it has.
    StatusAndScale,
}

/// A column: its heading, its type, the JSONPath of its cells, and whether it
/// is shown only to those who want it wide.
pub(crate) type Column = (&'static str, &'static str, &'static str, bool);

/// Every table of Kubernetes shows the age as a text.
pub(crate) const AGE: Column = ("Age", "string", CODE, false);

/// The cells of such a column are made by code.
pub(crate) const CODE: &str = ".metadata.name";

/// The definition of a kind that is a question.
pub(crate) fn review<K>() -> Result<CustomResourceDefinition, serde_json::Error>
where
    K: Resource,
    K::Scope: 'static,
{
    let names = json!({"plural": K::URL_PATH_SEGMENT, "kind": K::KIND});
    serde_json::from_value(tree::<K>(names, version_of::<K>()))
}

fn definition<K>(
    short_names: &[&str],
    categories: &[&str],
    version: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error>
where
    K: ListableResource,
    <K as Resource>::Scope: 'static,
{
    let names = json!({
        "plural": K::URL_PATH_SEGMENT, "kind": K::KIND, "listKind": K::LIST_KIND,
        "shortNames": short_names, "categories": categories,
    });
    serde_json::from_value(tree::<K>(names, version.clone()))
}

fn tree<K>(names: Value, version: Value) -> Value
where
    K: Resource,
    K::Scope: 'static,
{
    let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
    let scope = if is_of_cluster { "Cluster" } else { "Namespaced" };
    json!({
        "metadata": {},
        "spec": {"group": K::GROUP, "scope": scope, "names": names, "versions": [version]},
    })
}

/// What objects hold their types say, in Rust.
fn version_of<K: Resource>() -> Value {
    json!({
        "name": K::VERSION, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }},
    })
}
