//! `rbac.authorization.k8s.io`. [`authorizer`](crate::authorizer) evaluates roles and bindings.

mod bindings;
pub(super) mod cluster_role;
pub(super) mod cluster_role_binding;
mod policy_rule;
pub(super) mod role;
pub(super) mod role_binding;
mod strategy;

use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::Role;

/// The group of roles, of users and of groups.
pub(crate) const GROUP: &str = Role::GROUP;
