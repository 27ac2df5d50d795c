//! `admissionregistration.k8s.io`: the webhooks that are asked about writes.

mod defaults;
pub(super) mod mutating_webhook_configuration;
mod strategy;
pub(super) mod validating_webhook_configuration;
mod validation;
