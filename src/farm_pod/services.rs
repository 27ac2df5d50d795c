//! The Services that send requests to a Pod.

use k8s_openapi::api::core::v1::Service;
use kube::core::Selector;
use serde::Deserialize;

use super::compact::Pairs;
use super::object_view::ObjectView;

/// The fields that are read of a Service.
pub type ServiceView = ObjectView<Service, ServiceSpecView>;

/// The spec of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceSpecView {
    /// The labels of the Pods that receive the requests.
    pub selector: Option<Pairs>,
}

/// The selector of a Service. A missing or empty selector selects nothing.
pub fn selector(service: &ServiceView) -> Option<Selector> {
    let selector = service.spec.selector.as_ref()?.map()?;
    Some(selector.into_iter().collect())
}
