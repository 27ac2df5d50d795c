//! `admissionregistration.k8s.io`: the configurations of admission webhooks, and admission policies with their bindings.
//! The server calls the webhooks and evaluates the policies.

mod configuration;
mod defaults;
mod match_resources;
pub(super) mod mutating_webhook_configuration;
mod policy_status;
mod policy_validation;
pub(super) mod validating_admission_policy;
pub(super) mod validating_admission_policy_binding;
pub(super) mod validating_webhook_configuration;
mod validation;
