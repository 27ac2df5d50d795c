//! Row: the properties of a built-in kind, and its conversion to a kind that a server serves.

use std::any::TypeId;

use aggregated_apiserver::strategy::age;
use aggregated_apiserver::strategy::{SubresourceError, SubresourceOutcome, SubresourceRequest};
use aggregated_apiserver::{Kind, PrinterColumns, Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, ListableResource, Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use super::TYPES;

/// A built-in kind that cannot be served, which prevents the start of the server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("built-in kind {kind} cannot be served: {why}")]
pub struct BuiltInKindError {
    kind: String,
    why: String,
}

impl BuiltInKindError {
    pub(crate) fn new(kind: &str, why: impl ToString) -> Self {
        Self { kind: kind.to_owned(), why: why.to_string() }
    }
}

/// The category of kinds that `kubectl get all` lists.
pub(crate) const ALL: &[&str] = &["all"];

/// The properties of a built-in kind. Its group, version, names and scope come from its Rust type.
pub(crate) struct Row<K> {
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    /// The warning for clients that use the kind, if it is deprecated.
    pub(crate) deprecation: Option<&'static str>,
    pub(crate) subresources: Subresources,
    /// Subresources that code handles.
    pub(crate) posted: Vec<PostedSubresource>,
    pub(crate) columns: Vec<Column<K>>,
    /// Defaulting, validation and warnings.
    pub(crate) rules: Validation<K>,
    pub(crate) strategy: Strategy,
}

impl<K> Row<K>
where
    K: ListableResource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + 'static,
    K: kube::Resource<DynamicType = ()>,
    <K as Resource>::Scope: 'static,
{
    /// A kind with this strategy, without subresources and rules, whose table has only the column for the age.
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self {
            short_names: &[],
            categories: &[],
            deprecation: None,
            subresources: Subresources::None,
            posted: Vec::new(),
            columns: vec![Column::age()],
            rules: Validation::new(),
            strategy,
        }
    }

    /// Converts the row to a kind for a server.
    ///
    /// # Errors
    /// The reason, if the row does not describe a kind that can be served.
    pub(crate) fn kind(self) -> Result<Kind, BuiltInKindError> {
        self.described().map_err(|why| BuiltInKindError::new(K::KIND, why))
    }

    fn described(self) -> Result<Kind, String> {
        let definition = self.definition().map_err(|error| error.to_string())?;
        let cells = self.columns.into_iter().fold(PrinterColumns::new(), Column::add_to);
        let kind = Kind::built_in(definition, cells, self.rules, &TYPES).strategy(self.strategy);
        self.posted.into_iter().try_fold(kind, |kind, posted| posted.add_to(kind))
    }

    fn definition(&self) -> Result<CustomResourceDefinition, serde_json::Error> {
        let mut version = version_of::<K>();
        let columns: Value = self.columns.iter().map(Column::definition).collect();
        version["additionalPrinterColumns"] = columns;
        version["subresources"] = self.subresources.definition();
        if let Some(deprecation) = self.deprecation {
            version["deprecated"] = true.into();
            version["deprecationWarning"] = deprecation.into();
        }
        let names = json!({
            "plural": K::URL_PATH_SEGMENT, "kind": K::KIND, "listKind": K::LIST_KIND,
            "shortNames": self.short_names, "categories": self.categories,
        });
        serde_json::from_value(tree::<K>(names, version))
    }
}

/// The subresources of a kind.
#[derive(Clone, Copy)]
pub(crate) enum Subresources {
    None,
    Status,
    StatusAndScale,
}

impl Subresources {
    /// The subresources in the format of a definition.
    fn definition(self) -> Value {
        match self {
            Self::None => json!({}),
            Self::Status => json!({"status": {}}),
            Self::StatusAndScale => json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            }}),
        }
    }
}

/// A subresource to which objects of another kind are posted. The objects are not stored.
pub(crate) struct PostedSubresource {
    name: &'static str,
    /// Further versions with the same fields.
    equivalent_versions: &'static [&'static str],
    definition: Result<CustomResourceDefinition, serde_json::Error>,
    handle: Handle,
}

type Handle = Box<
    dyn Fn(&SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError> + Send + Sync,
>;

impl PostedSubresource {
    /// Creates a subresource of this name, to which a `B` is posted.
    pub(crate) fn new<B>(
        name: &'static str,
        handle: impl Fn(&SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError>
        + Send
        + Sync
        + 'static,
    ) -> Self
    where
        B: Resource,
        B::Scope: 'static,
    {
        Self { name, equivalent_versions: &[], definition: review::<B>(), handle: Box::new(handle) }
    }

    /// Accepts objects of these versions, too.
    pub(crate) fn with_versions(self, equivalent_versions: &'static [&'static str]) -> Self {
        Self { equivalent_versions, ..self }
    }

    fn add_to(self, kind: Kind) -> Result<Kind, String> {
        let definition = self.definition.map_err(|error| error.to_string())?;
        let Self { name, equivalent_versions, handle, .. } = self;
        let kind =
            kind.built_in_subresource(name, &definition, &TYPES, equivalent_versions, handle);
        kind.map_err(|error| error.to_string())
    }
}

/// A column of the table that kubectl shows.
pub(crate) struct Column<K> {
    heading: &'static str,
    column_type: &'static str,
    format: &'static str,
    cells: ColumnCells<K>,
    is_wide: bool,
}

/// The source of the cells of a column.
enum ColumnCells<K> {
    JsonPath(&'static str),
    Computed(Compute<K>),
}

type Compute<K> = Box<dyn Fn(&K, Timestamp) -> Value + Send + Sync>;

impl<K: 'static> Column<K> {
    /// A column of strings at a JSONPath.
    pub(crate) fn path(heading: &'static str, path: &'static str) -> Self {
        Self::of_strings(heading, ColumnCells::JsonPath(path))
    }

    /// A column of strings that code computes from an object and the current time.
    pub(crate) fn computed<V: Into<Value>>(
        heading: &'static str,
        compute: impl Fn(&K, Timestamp) -> V + Send + Sync + 'static,
    ) -> Self {
        let compute = move |object: &K, now| compute(object, now).into();
        Self::of_strings(heading, ColumnCells::Computed(Box::new(compute)))
    }

    fn of_strings(heading: &'static str, cells: ColumnCells<K>) -> Self {
        let format = if heading == "Name" { "name" } else { "" };
        Self { heading, column_type: "string", format, cells, is_wide: false }
    }

    /// A column of counts; a missing count is 0.
    pub(crate) fn count(heading: &'static str, count: fn(&K) -> Option<i32>) -> Self {
        let count = move |object: &K, _| count(object).unwrap_or_default();
        Self::computed(heading, count).of_type("integer")
    }

    /// The column for the age of an object, which is a string in every table of Kubernetes.
    pub(crate) fn age() -> Self
    where
        K: Metadata<Ty = ObjectMeta>,
    {
        Self::computed("Age", |object: &K, now| {
            let made = object.metadata().creation_timestamp.as_ref();
            made.map_or_else(|| "<unknown>".to_owned(), |made| age(made.0, now))
        })
    }

    /// The column for the creation time, in the format of kube-apiserver for kinds without their own table.
    pub(crate) fn created_at() -> Self
    where
        K: Metadata<Ty = ObjectMeta>,
    {
        Self::computed("Created At", |object: &K, _| {
            object.metadata().creation_timestamp.as_ref().map(|made| made.0.to_string())
        })
        .of_type("date")
    }

    /// Sets another type than `string`.
    pub(crate) fn of_type(self, column_type: &'static str) -> Self {
        Self { column_type, ..self }
    }

    /// Sets the format, which the column `Name` has by default.
    pub(crate) fn with_format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }

    /// Shows the column only with `kubectl get -o wide`.
    pub(crate) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// Shows the column also without `-o wide`.
    pub(crate) fn always(self) -> Self {
        Self { is_wide: false, ..self }
    }

    /// The column in the format of a definition.
    fn definition(&self) -> Value {
        let path = match &self.cells {
            ColumnCells::JsonPath(path) => path,
            // Every column needs a path. This path is not evaluated.
            ColumnCells::Computed(_) => ".metadata.name",
        };
        json!({
            "name": self.heading, "type": self.column_type, "jsonPath": path,
            "format": self.format,
            "priority": i32::from(self.is_wide),
        })
    }

    /// The heading of the column and the cell of an object, if code computes it.
    #[cfg(test)]
    pub(crate) fn compute(&self, object: &K, now: Timestamp) -> Option<(&'static str, Value)> {
        match &self.cells {
            ColumnCells::JsonPath(_) => None,
            ColumnCells::Computed(compute) => Some((self.heading, compute(object, now))),
        }
    }

    fn add_to(cells: PrinterColumns<K>, column: Self) -> PrinterColumns<K> {
        match column.cells {
            ColumnCells::JsonPath(_) => cells,
            ColumnCells::Computed(compute) => cells.cell(column.heading, compute),
        }
    }
}

/// The definition of a review, such as a SubjectAccessReview: a kind whose objects are answered, but not stored.
pub(crate) fn review<K>() -> Result<CustomResourceDefinition, serde_json::Error>
where
    K: Resource,
    K::Scope: 'static,
{
    let names = json!({"plural": K::URL_PATH_SEGMENT, "kind": K::KIND});
    serde_json::from_value(tree::<K>(names, version_of::<K>()))
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

/// The only version of a kind. Its schema is empty, because `types.txt` defines the types of its objects.
fn version_of<K: Resource>() -> Value {
    json!({
        "name": K::VERSION, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::serving::ClusterClient;
    use aggregated_apiserver::{ApiServer, Kinds};
    use k8s_openapi::api::core::v1::{Binding, ConfigMap, Node, Pod};

    #[test]
    fn the_definition_of_a_column() {
        let definition = |column: Column<ConfigMap>| column.definition();
        assert_eq!(
            definition(Column::path("Name", ".a").wide()),
            json!({"name": "Name", "type": "string", "format": "name", "jsonPath": ".a", "priority": 1})
        );
        assert_eq!(
            definition(Column::computed("Data", |_, _| 5).of_type("integer")),
            json!({
                "name": "Data", "type": "integer", "format": "", "jsonPath": ".metadata.name",
                "priority": 0,
            })
        );
    }

    #[test]
    fn an_invalid_built_in_definition_fails_with_an_error_naming_the_kind() {
        let broken = PostedSubresource {
            definition: serde_json::from_value(json!("no definition")),
            ..PostedSubresource::new::<Binding>("binding", |_| unreachable!())
        };
        let row = Row::<Pod> { posted: vec![broken], ..Row::new(Strategy::default()) };
        let error = row.kind().err().unwrap().to_string();
        assert!(error.starts_with("built-in kind Pod cannot be served: invalid type"), "{error}");
    }

    /// The library validates the parts of a row that are passed to it.
    #[tokio::test]
    async fn a_server_does_not_start_with_a_broken_name() {
        let short_names = &["Not a name"];
        let row = Row::<ConfigMap> { short_names, ..Row::new(Strategy::default()) };
        let server = ApiServer::new("broken", Kinds::new().kind(row.kind().unwrap()));
        let error = server.in_process(ClusterClient::Loopback).await.err().unwrap().to_string();
        assert!(error.contains("configmaps"), "{error}");
    }

    #[test]
    fn the_definition_of_a_kind() {
        let definition = Row::<Pod> { short_names: &["po"], ..Row::new(Strategy::default()) };
        let definition = serde_json::to_value(definition.definition().unwrap()).unwrap();
        let spec = &definition["spec"];
        assert_eq!((&spec["group"], &spec["scope"]), (&json!(""), &json!("Namespaced")));
        let names = json!({
            "plural": "pods", "kind": "Pod", "listKind": "PodList", "shortNames": ["po"],
            "categories": [],
        });
        assert_eq!(spec["names"], names);
        assert_eq!(spec["versions"][0]["additionalPrinterColumns"][0]["name"], "Age");
        let scope =
            serde_json::to_value(Row::<Node>::new(Strategy::default()).definition().unwrap());
        assert_eq!(scope.unwrap()["spec"]["scope"], "Cluster");
    }
}
