//! The Services that send requests to a Pod.

use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::Selector;
use serde::Deserialize;

use std::collections::BTreeMap;

use super::metadata;

/// What is read of a Service.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Service)]
pub struct ServiceView {
    /// Its metadata.
    #[serde(default, deserialize_with = "metadata::read")]
    pub metadata: ObjectMeta,
    /// What it is made of.
    #[serde(default)]
    pub spec: ServiceSpecView,
}

/// What a Service is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceSpecView {
    /// The labels of the Pods that it sends requests to.
    pub selector: Option<BTreeMap<String, String>>,
}

/// What a Service selects: without a selector, or with an empty one, nothing.
pub fn selector(service: &ServiceView) -> Option<Selector> {
    let selector = service.spec.selector.clone().filter(|selector| !selector.is_empty())?;
    Some(selector.into_iter().collect())
}
