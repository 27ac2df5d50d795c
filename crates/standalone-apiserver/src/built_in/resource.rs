//! The kinds of the group resource.k8s.io.

pub(crate) mod admin_access;
mod checks;
mod claim_spec;
mod claim_status;
mod configuration;
pub(crate) mod device_class;
mod devices;
mod request_policy;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;
