//! `admissionregistration.k8s.io`: the configurations of admission webhooks.
//! [`admission_webhooks`](crate::admission_webhooks) calls the webhooks.

mod configuration;
mod defaults;
pub(super) mod mutating_webhook_configuration;
pub(super) mod validating_webhook_configuration;
mod validation;

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

/// The group of configurations.
pub(crate) const GROUP: &str = MutatingWebhookConfiguration::GROUP;
