//! The objects of responses.

use std::collections::BTreeMap;

use axum::response::IntoResponse;
use http::header::{CONTENT_TYPE, HeaderValue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use schemars::JsonSchema;
use serde::Serialize;

use super::Sample;
use crate::clock::to_rfc_3339;
use crate::error::Reason;
use crate::object::selector::{LabelOperator, LabelSelector};
use crate::schema::Quantity;
use crate::subresource::Error;

/// A list of values.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    kind: &'static str,
    api_version: String,
    metadata: BTreeMap<String, String>,
    items: Vec<T>,
}

impl<T: Serialize> List<T> {
    /// The response with a list.
    ///
    /// # Errors
    /// If the list cannot be serialized.
    pub fn response(
        kind: &'static str,
        api_version: String,
        items: Vec<T>,
    ) -> Result<impl IntoResponse + use<T>, Error> {
        let list = Self { kind, api_version, metadata: BTreeMap::new(), items };
        let body = serde_json::to_vec(&list).map_err(Error::internal)?;
        Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body))
    }
}

/// The resource of a metric in discovery.
pub(super) fn listed(name: String, namespaced: bool, kind: &str) -> APIResource {
    let (kind, verbs) = (kind.to_owned(), vec!["get".to_owned()]);
    APIResource { name, namespaced, kind, verbs, ..APIResource::default() }
}

/// The error of a metric without a value, with the message of Kubernetes' library for servers of metrics.
pub(super) fn not_found(metric: &str, described: &str) -> Error {
    let message = format!("the server could not find the metric {metric} for {described}");
    Error::new(Reason::NotFound, message)
}

/// The fields of a [`Sample`].
pub(super) struct Written {
    value: String,
    timestamp: String,
    window: Option<u64>,
}

impl Written {
    /// # Errors
    /// 500 if the value is not a quantity.
    pub fn of(metric: &str, sample: &Sample) -> Result<Self, Error> {
        let Sample { value, timestamp, window } = sample;
        let value = Quantity::parse(&value.0).map_err(|why| {
            Error::internal(format!("the metric {metric} has the value {:?}: {why}", value.0))
        })?;
        let window = window.map(|window| window.as_secs());
        Ok(Self { value: value.to_string(), timestamp: to_rfc_3339(*timestamp), window })
    }
}

/// The object that a value describes.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub api_version: String,
}

/// The name and the selector of a metric.
#[derive(Serialize, JsonSchema)]
pub(super) struct Identifier {
    pub name: String,
    pub selector: Option<Selector>,
}

/// A value of a version of `custom.metrics.k8s.io`.
pub(super) trait CustomItem: Serialize + JsonSchema + Send + 'static {
    const VERSION: &'static str;

    fn new(object: Reference, metric: Identifier, written: Written) -> Self;
}

/// `MetricValue` of `custom.metrics.k8s.io/v1beta2`.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct V1Beta2 {
    described_object: Reference,
    metric: Identifier,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_seconds: Option<u64>,
    value: String,
}

impl CustomItem for V1Beta2 {
    const VERSION: &'static str = "v1beta2";

    fn new(described_object: Reference, metric: Identifier, written: Written) -> Self {
        let Written { value, timestamp, window: window_seconds } = written;
        Self { described_object, metric, timestamp, window_seconds, value }
    }
}

/// `MetricValue` of `custom.metrics.k8s.io/v1beta1`.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct V1Beta1 {
    described_object: Reference,
    metric_name: String,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    value: String,
    selector: Option<Selector>,
}

impl CustomItem for V1Beta1 {
    const VERSION: &'static str = "v1beta1";

    fn new(described_object: Reference, metric: Identifier, written: Written) -> Self {
        let Written { value, timestamp, window } = written;
        let Identifier { name: metric_name, selector } = metric;
        Self { described_object, metric_name, timestamp, window, value, selector }
    }
}

/// `ExternalMetricValue` of `external.metrics.k8s.io/v1beta1`.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExternalItem {
    metric_name: String,
    metric_labels: BTreeMap<String, String>,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    value: String,
}

impl ExternalItem {
    /// The value of a metric with these labels.
    pub fn new(metric: &str, metric_labels: BTreeMap<String, String>, written: Written) -> Self {
        let Written { value, timestamp, window } = written;
        Self { metric_name: metric.to_owned(), metric_labels, timestamp, window, value }
    }
}

/// `LabelSelector` of `meta/v1`.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Selector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Expression>,
}

/// `LabelSelectorRequirement` of `meta/v1`.
#[derive(Serialize, JsonSchema)]
struct Expression {
    key: String,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

impl Selector {
    /// The selector of a request; `None` if it has no terms, or compares numbers.
    pub fn of(selector: &LabelSelector) -> Option<Self> {
        let mut written = Self::default();
        for term in selector.terms() {
            let key = term.key.clone();
            let (operator, values) = match &term.operator {
                LabelOperator::In(values) if values.len() == 1 => {
                    let value = values.first().cloned().unwrap_or_default();
                    written.match_labels.insert(key, value);
                    continue;
                }
                LabelOperator::In(values) => ("In", values.iter().cloned().collect()),
                LabelOperator::NotIn(values) => ("NotIn", values.iter().cloned().collect()),
                LabelOperator::Exists => ("Exists", Vec::new()),
                LabelOperator::DoesNotExist => ("DoesNotExist", Vec::new()),
                LabelOperator::GreaterThan(_) | LabelOperator::LessThan(_) => return None,
            };
            written.match_expressions.push(Expression { key, operator, values });
        }
        (!selector.is_empty()).then_some(written)
    }
}
