//! RBAC authorization: members of `system:masters` are allowed everything; other users have the permissions of the
//! roles that are bound to them.

mod aggregation;
pub(crate) mod bootstrap_policy;
mod escalation;
mod policy_rules;
mod reconciliation;
mod roles;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aggregated_apiserver::User;
use aggregated_apiserver::auth::{self, Attributes, AuthError, Decision};
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::authorization::v1::{
    NonResourceRule, ResourceRule, SubjectRulesReviewStatus,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};

pub(crate) use escalation::NoEscalation;
use roles::Roles;

const MASTERS: &str = "system:masters";

/// The RBAC authorizer.
#[derive(Default)]
pub(crate) struct Authorizer {
    /// The stored roles and bindings. Before they are set, only members of `system:masters` have permissions.
    objects: OnceLock<RuntimeKinds>,
    roles: Mutex<Roles>,
}

impl Authorizer {
    /// Creates an authorizer without roles.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the source of roles and bindings.
    pub(crate) fn set_objects(&self, objects: RuntimeKinds) {
        // A server starts once.
        let _ = self.objects.set(objects);
    }

    /// Decides whether a user is allowed a request, and why.
    pub(crate) fn decide(&self, user: &User, request: &Attributes) -> Decision {
        if is_master(user) {
            return Decision::allow("");
        }
        let (roles, mut allowed, mut not_found) = (self.roles(), None, Vec::new());
        roles.visit(user, policy_rules::namespace(request), |granted| {
            match granted {
                Ok(granted) if policy_rules::allows(granted.rule, request) => {
                    allowed = Some(granted.reason());
                    return ControlFlow::Break(());
                }
                Ok(_) => {}
                Err(why) => not_found.push(why),
            }
            ControlFlow::Continue(())
        });
        match allowed {
            Some(reason) => Decision::allow(reason),
            None => Decision::no_opinion(reason_of(&not_found)),
        }
    }

    /// The rules of all roles that a user has in a namespace.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> SubjectRulesReviewStatus {
        let mut status = SubjectRulesReviewStatus::default();
        let (roles, mut not_found) = (self.roles(), Vec::new());
        let has = |values: &Option<Vec<String>>| values.as_ref().is_some_and(|all| !all.is_empty());
        roles.visit(user, namespace, |granted| {
            let rule = match granted {
                Ok(granted) => granted.rule.clone(),
                Err(why) => {
                    not_found.push(why);
                    return ControlFlow::Continue(());
                }
            };
            if has(&rule.resources) {
                status.resource_rules.push(ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: rule.api_groups,
                    resources: rule.resources,
                    resource_names: rule.resource_names,
                });
            }
            if has(&rule.non_resource_urls) {
                let (verbs, non_resource_urls) = (rule.verbs, rule.non_resource_urls);
                status.non_resource_rules.push(NonResourceRule { verbs, non_resource_urls });
            }
            match status.resource_rules.len() + status.non_resource_rules.len() < MOST_RULES {
                true => ControlFlow::Continue(()),
                false => {
                    status.incomplete = true;
                    ControlFlow::Break(())
                }
            }
        });
        status.evaluation_error = Some(together(&not_found)).filter(|why| !why.is_empty());
        status
    }

    /// kube-apiserver's message about the permissions in `granted` that a user does not have; `None` if the user has all
    /// of them.
    fn not_held(&self, user: &User, namespace: &str, granted: &[PolicyRule]) -> Option<String> {
        let (roles, mut held, mut not_found) = (self.roles(), Vec::new(), Vec::new());
        roles.visit(user, namespace, |granted| {
            match granted {
                Ok(granted) => held.push(granted.rule),
                Err(why) => not_found.push(why),
            }
            ControlFlow::Continue(())
        });
        let not_held = policy_rules::not_held(&held, granted)?;
        let not_found = match not_found.is_empty() {
            true => String::new(),
            false => format!("; resolution errors: [{}]", together(&not_found)),
        };
        Some(format!("{not_held}{not_found}"))
    }

    /// The rules of a role that is bound in a namespace.
    ///
    /// # Errors
    /// The message that the role does not exist.
    fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>, String> {
        Ok(self.roles().rules(role, namespace)?.cloned().collect())
    }

    /// The ClusterRoles whose rules are not up to date with those that they aggregate: the name and resourceVersion of
    /// each, and its correct rules.
    pub(crate) fn stale_aggregations(&self) -> Vec<(String, u64, Vec<PolicyRule>)> {
        self.roles().stale_aggregations()
    }

    /// The current roles. Changed roles are parsed without holding the lock.
    fn roles(&self) -> Roles {
        let lock = || self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let mut roles = lock().clone();
        let Some(objects) = self.objects.get() else { return roles };
        if !roles.is_current(objects) {
            roles.refresh(objects);
            let before = std::mem::replace(&mut *lock(), roles.clone());
            // Dropping many roles takes long, so it happens without holding the lock.
            drop(before);
        }
        roles
    }
}

/// The RBAC authorizer, as a part of a chain.
pub(crate) struct Rbac(pub(crate) Arc<Authorizer>);

impl auth::Authorizer for Rbac {
    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthError>> {
        Box::pin(ready(Ok(self.0.decide(user, attributes))))
    }

    fn rules<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> BoxFuture<'a, SubjectRulesReviewStatus> {
        Box::pin(ready(self.0.rules(user, namespace)))
    }
}

/// The largest number of rules in a SelfSubjectRulesReview.
const MOST_RULES: usize = 10_000;

/// Whether a user is allowed everything, regardless of roles.
fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// The reason of a denial, if roles could not be found.
fn reason_of(not_found: &[String]) -> String {
    match not_found {
        [] => String::new(),
        not_found => format!("RBAC: {}", together(not_found)),
    }
}

/// The largest number of errors in a message.
const MOST_FAILURES: usize = 20;

/// Joins several errors in the format of Go, without duplicates.
fn together(failures: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let mut each = failures.iter().filter(|failure| seen.insert(failure.as_str()));
    let each: Vec<&str> = each.by_ref().take(MOST_FAILURES).map(String::as_str).collect();
    match each[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        _ => format!("[{}]", each.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_errors_are_joined_as_in_go() {
        let each = |failures: &[&str]| {
            failures.iter().map(|failure| (*failure).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(reason_of(&each(&[])), "");
        assert_eq!(reason_of(&each(&["a", "a"])), "RBAC: a");
        assert_eq!(reason_of(&each(&["a", "b"])), "RBAC: [a, b]");
    }
}
