//! `external.metrics.k8s.io`: metrics without an object of the cluster.

use std::sync::Arc;

use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Deserialize;

use super::wire::{ExternalItem, List, Written, listed, not_found};
use super::{ExternalValue, parse_selector};
use crate::object::selector::LabelSelector;
use crate::paths::{GroupVersion, PathParameters};
use crate::subresource::{Caller, Error, Parameters, Subresource};

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "v1beta1";
const KIND: &str = "ExternalMetricValueList";

/// A request for the values of an external metric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExternalQuery {
    /// The name of the metric.
    pub metric: String,
    /// The namespace of the request. The user has a permission in this namespace alone.
    pub namespace: String,
    /// The selector of labels of values.
    pub selector: LabelSelector,
    /// The user of the request.
    pub caller: Caller,
}

#[derive(Deserialize)]
struct MetricPath {
    namespace: String,
    metric: String,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    /// A selector to restrict the list of returned metrics by their labels.
    label_selector: String,
}

/// Returns `external.metrics.k8s.io/v1beta1`. `available` returns the names of the metrics, and `values` returns the
/// values of a metric. See the [module](super).
pub fn external_metrics<F, R>(
    available: impl Fn() -> Vec<String> + Send + Sync + 'static,
    values: F,
) -> GroupVersion
where
    F: Fn(ExternalQuery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<ExternalValue>, Error>> + Send + 'static,
{
    let (available, values) = (Arc::new(available), Arc::new(values));
    let all = Arc::clone(&available);
    let handler = move |PathParameters(path): PathParameters<MetricPath>,
                        Parameters(options): Parameters<Options>,
                        caller: Caller| {
        let (available, values) = (Arc::clone(&available), Arc::clone(&values));
        async move {
            let MetricPath { namespace, metric } = path;
            if !available().contains(&metric) {
                return Err(not_found(&metric, &format!("namespaces {namespace}")));
            }
            let selector = parse_selector(&options.label_selector)?;
            let query = ExternalQuery { metric: metric.clone(), namespace, selector, caller };
            response(&metric, Box::pin(values(query)).await?)
        }
    };
    let path = Subresource::new("metric").get(handler).parameters::<Options>();
    GroupVersion::new(GROUP, VERSION)
        .path("/namespaces/{namespace}/{metric}", path.returns::<List<ExternalItem>>())
        .resources(move || all().into_iter().map(|name| listed(name, true, KIND)).collect())
}

fn response(metric: &str, values: Vec<ExternalValue>) -> Result<impl IntoResponse + use<>, Error> {
    let item = |one: ExternalValue| {
        Ok(ExternalItem::new(metric, one.labels, Written::of(metric, &one.sample)?))
    };
    let items = values.into_iter().map(item).collect::<Result<_, Error>>()?;
    List::response(KIND, format!("{GROUP}/{VERSION}"), items)
}
