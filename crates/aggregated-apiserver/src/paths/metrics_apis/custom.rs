//! `custom.metrics.k8s.io`: metrics of objects.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::IntoResponse;
use kube::Resource;
use kube::core::{ApiResource, NamespaceResourceScope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{
    CustomItem, Identifier, List, Reference, Selector, V1Beta1, V1Beta2, Written, listed, not_found,
};
use super::{MetricValue, parse_selector};
use crate::object::selector::LabelSelector;
use crate::paths::{GroupVersion, PathParameters};
use crate::subresource::{Caller, Error, Parameters, Subresource};

const GROUP: &str = "custom.metrics.k8s.io";
const KIND: &str = "MetricValueList";
const NAMESPACES: &str = "namespaces";

/// A metric that is available for the objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomMetric {
    /// The name of the metric, such as `http_requests`.
    pub name: String,
    /// The resource with its API group, such as `pods` or `deployments.apps`.
    pub resource: String,
    /// The kind of the objects.
    pub kind: String,
    /// The API version of the objects.
    pub api_version: String,
    /// Whether the objects are in a namespace.
    pub is_namespaced: bool,
}

impl CustomMetric {
    /// A metric of the objects of a Rust type.
    ///
    /// ```
    /// use aggregated_apiserver::paths::metrics_apis::CustomMetric;
    /// use k8s_openapi::api::apps::v1::Deployment;
    ///
    /// let metric = CustomMetric::of::<Deployment>("queued_jobs");
    /// assert_eq!(metric.resource, "deployments.apps");
    /// ```
    pub fn of<K: Resource<DynamicType = ()> + 'static>(name: impl Into<String>) -> Self {
        let is_namespaced = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
        Self::of_resource(&ApiResource::erase::<K>(&()), is_namespaced, name)
    }

    /// A metric of the objects of a resource that has no Rust type.
    pub fn of_resource(
        resource: &ApiResource,
        is_namespaced: bool,
        name: impl Into<String>,
    ) -> Self {
        let ApiResource { group, plural, kind, api_version, .. } = resource.clone();
        let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
        Self { name: name.into(), resource, kind, api_version, is_namespaced }
    }
}

/// A request for the values of a custom metric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CustomQuery {
    /// The metric, from the available ones.
    pub metric: CustomMetric,
    /// The namespace of the objects; `None` for objects without a namespace.
    pub namespace: Option<String>,
    /// The objects.
    pub objects: Objects,
    /// The selector of labels of the metric (`metricLabelSelector`).
    pub metric_selector: LabelSelector,
    /// The user of the request.
    pub caller: Caller,
}

/// The objects of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objects {
    /// The object with this name.
    Named(String),
    /// The objects whose labels match (`labelSelector`).
    Selected(LabelSelector),
}

impl Objects {
    /// Whether an object with this name and these labels belongs to the query.
    pub fn include(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Named(wanted) => name == wanted,
            Self::Selected(selector) => selector.matches_map(labels),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricPath {
    namespace: String,
    resource: String,
    name: String,
    metric: String,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    /// A selector to restrict the list of returned objects by their labels. Defaults to everything.
    label_selector: String,
    /// A selector to restrict the list of returned metrics by their labels.
    metric_label_selector: String,
}

/// Returns `custom.metrics.k8s.io/v1beta1` and `v1beta2`. `available` returns the metrics of discovery, and `values`
/// returns the values of a metric. See the [module](super).
pub fn custom_metrics<F, R>(
    available: impl Fn() -> Vec<CustomMetric> + Send + Sync + 'static,
    values: F,
) -> [GroupVersion; 2]
where
    F: Fn(CustomQuery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<MetricValue>, Error>> + Send + 'static,
{
    let (available, values) = (Arc::new(available), Arc::new(values));
    let older = group_version::<V1Beta1, _, _, _>(Arc::clone(&available), Arc::clone(&values));
    [older, group_version::<V1Beta2, _, _, _>(available, values)]
}

fn group_version<W, A, F, R>(available: Arc<A>, values: Arc<F>) -> GroupVersion
where
    W: CustomItem,
    A: Fn() -> Vec<CustomMetric> + Send + Sync + 'static,
    F: Fn(CustomQuery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<MetricValue>, Error>> + Send + 'static,
{
    let all = Arc::clone(&available);
    let handler = move |PathParameters(path): PathParameters<MetricPath>,
                        Parameters(options): Parameters<Options>,
                        caller: Caller| {
        let (available, values) = (Arc::clone(&available), Arc::clone(&values));
        async move {
            let query = query(available(), path, &options, caller)?;
            let values = Box::pin(values(query.clone())).await?;
            response::<W>(&query, values)
        }
    };
    let path = || {
        let path = Subresource::new("metric").get(handler.clone());
        path.parameters::<Options>().returns::<List<W>>()
    };
    let resource = |one: CustomMetric| {
        listed(format!("{}/{}", one.resource, one.name), one.is_namespaced, KIND)
    };
    GroupVersion::new(GROUP, W::VERSION)
        .path("/namespaces/{namespace}/{resource}/{name}/{metric}", path())
        .path("/namespaces/{namespace}/metrics/{metric}", path())
        .path("/{resource}/{name}/{metric}", path())
        .resources(move || all().into_iter().map(resource).collect())
}

/// Reads a request.
///
/// # Errors
/// 404 if the metric is not available, and 400 if a selector is invalid.
fn query(
    available: Vec<CustomMetric>,
    mut path: MetricPath,
    options: &Options,
    caller: Caller,
) -> Result<CustomQuery, Error> {
    if path.resource.is_empty() {
        // A metric of a namespace: `/namespaces/NAME/metrics/METRIC`.
        path.resource = NAMESPACES.to_owned();
        path.name = std::mem::take(&mut path.namespace);
    }
    let namespace = Some(path.namespace).filter(|namespace| !namespace.is_empty());
    let metric = available.into_iter().find(|one| {
        one.name == path.metric
            && one.resource == path.resource
            && one.is_namespaced == namespace.is_some()
    });
    let metric = metric.ok_or_else(|| not_found(&path.metric, &path.resource))?;
    let objects = match path.name.as_str() {
        "*" => Objects::Selected(parse_selector(&options.label_selector)?),
        _ => Objects::Named(path.name),
    };
    let metric_selector = parse_selector(&options.metric_label_selector)?;
    Ok(CustomQuery { metric, namespace, objects, metric_selector, caller })
}

/// The response with the values of the objects of a query.
///
/// # Errors
/// 404 if there is no value for the object of the query, and 500 if a value is not a quantity.
fn response<W: CustomItem>(
    query: &CustomQuery,
    values: Vec<MetricValue>,
) -> Result<impl IntoResponse + use<W>, Error> {
    let CustomQuery { metric, namespace, objects, metric_selector, .. } = query;
    let item = |one: MetricValue| {
        let written = Written::of(&metric.name, &one.sample)?;
        let object = Reference {
            kind: metric.kind.clone(),
            namespace: namespace.clone(),
            name: one.object,
            api_version: metric.api_version.clone(),
        };
        let selector = Selector::of(metric_selector);
        Ok(W::new(object, Identifier { name: metric.name.clone(), selector }, written))
    };
    let is_wanted = |one: &MetricValue| match objects {
        Objects::Named(name) => one.object == *name,
        Objects::Selected(_) => true,
    };
    let items =
        values.into_iter().filter(is_wanted).map(item).collect::<Result<Vec<_>, Error>>()?;
    match objects {
        Objects::Named(name) if items.is_empty() => {
            let mut described = format!("{} {name}", metric.resource);
            if !metric_selector.is_empty() {
                described += &format!(" with selector {metric_selector}");
            }
            Err(not_found(&metric.name, &described))
        }
        _ => List::response(KIND, format!("{GROUP}/{}", W::VERSION), items),
    }
}
