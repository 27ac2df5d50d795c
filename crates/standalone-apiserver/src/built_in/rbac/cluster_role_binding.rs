//! ClusterRoleBindings.

use aggregated_apiserver::Validation;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};

use super::bindings::{Binding, columns, prepare, validate};
use super::strategy::strategy;
use crate::built_in::row::Row;

pub(crate) fn row() -> Row<ClusterRoleBinding> {
    let rules = Validation::new()
        .prepare(|binding, _| prepare(binding))
        .validate(|binding, old, _| validate(binding, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

impl Binding for ClusterRoleBinding {
    const ROLES: &'static [&'static str] = &["ClusterRole"];
    const IS_NAMESPACED: bool = false;

    fn role(&self) -> &RoleRef {
        &self.role_ref
    }

    fn role_mut(&mut self) -> &mut RoleRef {
        &mut self.role_ref
    }

    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }

    fn subjects_mut(&mut self) -> &mut [Subject] {
        self.subjects.as_deref_mut().unwrap_or_default()
    }
}
