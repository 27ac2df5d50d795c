//! The common parts of RoleBindings and ClusterRoleBindings.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};

use super::GROUP;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::row::Column;

/// A kind that binds a role to subjects.
pub(super) trait Binding: Resource + Metadata<Ty = ObjectMeta> + 'static {
    /// The kinds of roles that the kind can bind.
    const ROLES: &'static [&'static str];
    /// Whether the kind is namespaced, so that the namespace of a ServiceAccount is optional.
    const IS_NAMESPACED: bool;

    /// The bound role.
    fn role(&self) -> &RoleRef;

    /// The bound role, mutable.
    fn role_mut(&mut self) -> &mut RoleRef;

    /// The subjects.
    fn subjects(&self) -> &[Subject];

    /// The subjects, mutable.
    fn subjects_mut(&mut self) -> &mut [Subject];
}

pub(super) fn columns<K: Binding>() -> Vec<Column<K>> {
    let role = |binding: &K, _| {
        let RoleRef { kind, name, .. } = binding.role();
        format!("{kind}/{name}")
    };
    let named = |heading, kind: &'static str, text: fn(&Subject) -> String| {
        let named = move |binding: &K, _| {
            let of_kind = binding.subjects().iter().filter(|subject| subject.kind == kind);
            of_kind.map(text).collect::<Vec<_>>().join(", ")
        };
        Column::computed(heading, named).wide()
    };
    let account = |subject: &Subject| {
        format!("{}/{}", subject.namespace.as_deref().unwrap_or_default(), subject.name)
    };
    vec![
        Column::computed("Role", role),
        Column::age(),
        named("Users", "User", |subject| subject.name.clone()),
        named("Groups", "Group", |subject| subject.name.clone()),
        named("ServiceAccounts", "ServiceAccount", account),
    ]
}

pub(super) fn prepare<K: Binding>(binding: &mut K) {
    set_default(&mut binding.role_mut().api_group, GROUP);
    for subject in binding.subjects_mut() {
        if ["User", "Group"].contains(&subject.kind.as_str()) {
            set_default(&mut subject.api_group, GROUP);
        }
    }
}

pub(super) fn validate<K: Binding>(binding: &K, old: Option<&K>) -> FieldErrors {
    let mut faults = Vec::new();
    let role = binding.role();
    check_one_of("roleRef.apiGroup", role.api_group.as_ref(), &[GROUP], &mut faults);
    check_one_of("roleRef.kind", Some(&role.kind), K::ROLES, &mut faults);
    if role.name.is_empty() {
        faults.push(FieldError::required("roleRef.name", ""));
    } else {
        check_with("roleRef.name", &role.name, names::check_path_segment, &mut faults);
    }
    for (index, subject) in binding.subjects().iter().enumerate() {
        check_subject(subject, K::IS_NAMESPACED, &format!("subjects[{index}]"), &mut faults);
    }
    if old.is_some_and(|old| old.role() != role) {
        faults.push(FieldError::invalid("roleRef", shown(role), "cannot change roleRef"));
    }
    faults
}

fn check_subject(subject: &Subject, is_namespaced: bool, at: &str, faults: &mut FieldErrors) {
    if subject.name.is_empty() {
        faults.push(FieldError::required(format!("{at}.name"), ""));
    }
    let group = subject.api_group.as_ref().filter(|group| !group.is_empty());
    let group_at = format!("{at}.apiGroup");
    match subject.kind.as_str() {
        "User" | "Group" => {
            let none = String::new();
            check_one_of(group_at, group.or(Some(&none)), &[GROUP], faults);
        }
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                let check = names::check_dns_1123_subdomain;
                check_with(&format!("{at}.name"), &subject.name, check, faults);
            }
            check_one_of(group_at, group, &[""], faults);
            if !is_namespaced && subject.namespace.as_ref().is_none_or(String::is_empty) {
                faults.push(FieldError::required(format!("{at}.namespace"), ""));
            }
        }
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            check_one_of(format!("{at}.kind"), Some(&subject.kind), &kinds, faults);
        }
    }
}

/// A role in the format of messages, with the field names of Go.
fn shown(role: &RoleRef) -> String {
    let RoleRef { api_group, kind, name } = role;
    let [group, kind, name] = [api_group.as_deref().unwrap_or_default(), kind, name].map(quote);
    format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}")
}
