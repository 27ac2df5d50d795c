//! The kinds of the group flowcontrol.apiserver.k8s.io. The server stores them and sets the condition `Dangling` of
//! FlowSchemas. Its own limits do not depend on them.

pub(crate) mod bootstrap;
pub(crate) mod flow_schema;
pub(crate) mod priority_level_configuration;
