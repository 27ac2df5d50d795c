//! The kinds of the group apiextensions.k8s.io.

pub(crate) mod custom_resource_definition;
