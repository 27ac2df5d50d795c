//! The Services that send requests to a Pod.

use k8s_openapi::api::core::v1::Service;
use kube::core::Selector;
use serde::Deserialize;

use super::compact::Pairs;
use super::object_view::ObjectView;

/// What is read of a Service.
pub type ServiceView = ObjectView<Service, ServiceSpecView>;

/// What a Service is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceSpecView {
    /// The labels of the Pods that it sends requests to.
    pub selector: Option<Pairs>,
}

/// What a Service selects: without a selector, or with an empty one, nothing.
pub fn selector(service: &ServiceView) -> Option<Selector> {
    let selector = service.spec.selector.as_ref()?.map()?;
    Some(selector.into_iter().collect())
}
