//! `rbac.authorization.k8s.io`. Roles and bindings are kept; [`authorizer`](crate::authorizer) does not ask them.

mod bindings;
pub(super) mod cluster_role;
pub(super) mod cluster_role_binding;
mod policy_rule;
pub(super) mod role;
pub(super) mod role_binding;
mod strategy;
