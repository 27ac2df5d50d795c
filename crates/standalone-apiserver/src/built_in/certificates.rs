//! The kind of the group certificates.k8s.io.

pub(crate) mod admission;
pub(crate) mod certificate_signing_request;
mod directory_string;
mod pem;
mod validation;
