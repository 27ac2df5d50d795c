//! `admissionregistration.k8s.io`: the configurations of admission webhooks.
//! The server calls the webhooks.

mod configuration;
mod defaults;
pub(super) mod mutating_webhook_configuration;
pub(super) mod validating_webhook_configuration;
mod validation;
