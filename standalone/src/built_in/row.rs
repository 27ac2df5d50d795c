//! A row: everything that is said about a kind of Kubernetes, and how it becomes a kind
//! of the server.

use std::any::TypeId;

use aggregated_apiserver::{Cells, Kinds, Rules, Strategy, age};
use jiff::Timestamp;
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
    pub(crate) columns: Vec<Column<K>>,
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
            columns: vec![Column::age()],
            rules: Rules::none(),
            strategy,
        }
    }

    pub(crate) fn add(self, kinds: Kinds) -> Kinds {
        let Self { short_names, categories, parts, columns, rules, strategy } = self;
        let mut version = version_of::<K>();
        version["additionalPrinterColumns"] = columns.iter().map(Column::definition).collect();
        version["subresources"] = match parts {
            Parts::None => json!({}),
            Parts::Status => json!({"status": {}}),
            Parts::StatusAndScale => json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            }}),
        };
        let cells = columns.into_iter().fold(Cells::none(), Column::add_to);
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

/// A column of the table that kubectl shows.
pub(crate) struct Column<K> {
    heading: &'static str,
    column_type: &'static str,
    cells: ColumnCells<K>,
    is_wide: bool,
}

/// Where the cells of a column come from.
enum ColumnCells<K> {
    JsonPath(&'static str),
    Computed(Compute<K>),
}

type Compute<K> = Box<dyn Fn(&K, Timestamp) -> Value + Send + Sync>;

impl<K: 'static> Column<K> {
    /// A column of texts that a JSONPath finds.
    pub(crate) fn path(heading: &'static str, path: &'static str) -> Self {
        Self { heading, column_type: "string", cells: ColumnCells::JsonPath(path), is_wide: false }
    }

    /// A column of texts that code computes from an object, at a time.
    pub(crate) fn computed<V: Into<Value>>(
        heading: &'static str,
        compute: impl Fn(&K, Timestamp) -> V + Send + Sync + 'static,
    ) -> Self {
        let compute = move |object: &K, now| compute(object, now).into();
        let cells = ColumnCells::Computed(Box::new(compute));
        Self { heading, column_type: "string", cells, is_wide: false }
    }

    /// The age of an object, which every table of Kubernetes shows as a text.
    pub(crate) fn age() -> Self
    where
        K: Metadata<Ty = ObjectMeta>,
    {
        Self::computed("Age", |object: &K, now| {
            let made = object.metadata().creation_timestamp.as_ref();
            made.map_or_else(|| "<unknown>".to_owned(), |made| age(made.0, now))
        })
    }

    /// The same column of another type than `string`.
    pub(crate) fn of_type(self, column_type: &'static str) -> Self {
        Self { column_type, ..self }
    }

    /// The same column, shown only by `kubectl get -o wide`.
    pub(crate) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// The column as a definition has it.
    fn definition(&self) -> Value {
        let path = match &self.cells {
            ColumnCells::JsonPath(path) => path,
            // Every column needs a path; this one is not evaluated.
            ColumnCells::Computed(_) => ".metadata.name",
        };
        json!({
            "name": self.heading, "type": self.column_type, "jsonPath": path,
            "format": if self.heading == "Name" { "name" } else { "" },
            "priority": i32::from(self.is_wide),
        })
    }

    fn add_to(cells: Cells<K>, column: Self) -> Cells<K> {
        match column.cells {
            ColumnCells::JsonPath(_) => cells,
            ColumnCells::Computed(compute) => cells.cell(column.heading, compute),
        }
    }
}

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
