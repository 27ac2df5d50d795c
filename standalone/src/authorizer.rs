//! Authorization by roles, as in a cluster: members of `system:masters` may do everything, and others what Kubernetes' own
//! roles, and those that are kept, allow them.

mod escalation;
mod policy_rules;
mod roles;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aggregated_apiserver::{RuntimeKinds, User};
use k8s_openapi::api::authorization::v1::{
    NonResourceRule, ResourceRule, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
    SubjectRulesReviewStatus,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};

pub(crate) use escalation::NoEscalation;
pub(crate) use policy_rules::Request;
use roles::Roles;

const MASTERS: &str = "system:masters";

/// Decides who may do what.
#[derive(Default)]
pub(crate) struct Authorizer {
    /// Where roles are kept; nobody has any before that is known.
    objects: OnceLock<RuntimeKinds>,
    roles: Mutex<Roles>,
}

impl Authorizer {
    /// One that knows no roles yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Reads roles from here.
    pub(crate) fn set_objects(&self, objects: RuntimeKinds) {
        // A server starts once.
        let _ = self.objects.set(objects);
    }

    /// Answers what a SubjectAccessReview asks.
    pub(crate) fn review(&self, spec: &SubjectAccessReviewSpec) -> SubjectAccessReviewStatus {
        let user = User {
            name: spec.user.clone().unwrap_or_default(),
            groups: spec.groups.clone().unwrap_or_default(),
            ..User::default()
        };
        let request = match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(resource), _) => Request::Resource(resource),
            (None, Some(path)) => Request::Path(path),
            (None, None) => return SubjectAccessReviewStatus::default(),
        };
        self.decide(&user, request)
    }

    /// Whether a user may do this, and why.
    pub(crate) fn decide(&self, user: &User, request: Request<'_>) -> SubjectAccessReviewStatus {
        let status = |allowed, reason: String| SubjectAccessReviewStatus {
            allowed,
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            ..SubjectAccessReviewStatus::default()
        };
        if is_master(user) {
            return status(true, String::new());
        }
        let roles = self.roles();
        let (granted, missing) = roles.rules_of(user, request.namespace());
        match granted.iter().find(|granted| policy_rules::allows(granted.rule, request)) {
            Some(granted) => status(true, granted.reason()),
            None => status(false, failures(&missing)),
        }
    }

    /// Everything that a user may do in a namespace.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> SubjectRulesReviewStatus {
        let mut status = SubjectRulesReviewStatus::default();
        let roles = self.roles();
        let (granted, missing) = roles.rules_of(user, namespace);
        let has = |values: &Option<Vec<String>>| values.as_ref().is_some_and(|all| !all.is_empty());
        for granted in granted {
            let rule = granted.rule.clone();
            if has(&rule.resources) {
                let resource = ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: rule.api_groups,
                    resources: rule.resources,
                    resource_names: rule.resource_names,
                };
                if !status.resource_rules.contains(&resource) {
                    status.resource_rules.push(resource);
                }
            }
            if has(&rule.non_resource_urls) {
                let (verbs, non_resource_urls) = (rule.verbs, rule.non_resource_urls);
                status.non_resource_rules.push(NonResourceRule { verbs, non_resource_urls });
            }
        }
        status.evaluation_error = Some(together(&missing)).filter(|why| !why.is_empty());
        status
    }

    /// What rules allow that a user may not do, as kube-apiserver says it; `None` if there is nothing.
    fn missing(&self, user: &User, namespace: &str, granted: &[PolicyRule]) -> Option<String> {
        let roles = self.roles();
        let (held, failed) = roles.rules_of(user, namespace);
        let held: Vec<PolicyRule> = held.iter().map(|granted| granted.rule.clone()).collect();
        let missing = policy_rules::missing(&held, granted)?;
        let failed = match failed.is_empty() {
            true => String::new(),
            false => format!("; resolution errors: [{}]", together(&failed)),
        };
        Some(format!("{missing}{failed}"))
    }

    /// The rules of a role that is bound in a namespace.
    ///
    /// # Errors
    /// That there is none.
    fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>, String> {
        let roles = self.roles();
        Ok(roles.rules(role, namespace)?.into_iter().cloned().collect())
    }

    /// Roles as they are now.
    fn roles(&self) -> Roles {
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = self.objects.get() {
            roles.refresh(objects);
        }
        roles.clone()
    }
}

/// Whether a user may do everything, whatever roles there are.
fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// What could not be found, as a reason.
fn failures(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        missing => format!("RBAC: {}", together(missing)),
    }
}

/// Several failures, as Go tells them together: each once.
fn together(failures: &[String]) -> String {
    let mut each: Vec<&str> = Vec::new();
    for failure in failures {
        if !each.contains(&failure.as_str()) {
            each.push(failure);
        }
    }
    match each[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        _ => format!("[{}]", each.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};

    fn may(group: &str, request: Request<'_>) -> bool {
        let groups = vec![group.to_owned()];
        Authorizer::new().decide(&User { groups, ..User::default() }, request).allowed
    }

    #[test]
    fn what_is_allowed_from_the_beginning() {
        let text = |text: &str| Some(text.to_owned());
        let pods = ResourceAttributes {
            verb: text("get"),
            resource: text("pods"),
            ..ResourceAttributes::default()
        };
        let own = ResourceAttributes {
            verb: text("create"),
            group: text("authentication.k8s.io"),
            resource: text("selfsubjectreviews"),
            ..ResourceAttributes::default()
        };
        const AUTHENTICATED: &str = "system:authenticated";
        for (group, resource, expected) in [
            (MASTERS, &pods, true),
            ("system:serviceaccounts:kube-system", &pods, true),
            ("system:serviceaccounts:default", &pods, false),
            (AUTHENTICATED, &pods, false),
            (AUTHENTICATED, &own, true),
            ("system:unauthenticated", &own, false),
        ] {
            assert_eq!(may(group, Request::Resource(resource)), expected, "{group} {resource:?}");
        }
        for (group, path, expected) in [
            (AUTHENTICATED, "/apis/apps/v1", true),
            (AUTHENTICATED, "/apisx", false),
            (AUTHENTICATED, "/healthz", true),
            (AUTHENTICATED, "/healthz/ping", false),
            (AUTHENTICATED, "/openid/v1/jwks", false),
            ("system:serviceaccounts", "/openid/v1/jwks", true),
            ("system:unauthenticated", "/version", false),
        ] {
            let asked = NonResourceAttributes { verb: text("get"), path: text(path) };
            assert_eq!(may(group, Request::Path(&asked)), expected, "{group} {path}");
        }
    }

    #[test]
    fn failures_are_told_as_go_tells_them() {
        let each = |failures: &[&str]| {
            failures.iter().map(|failure| (*failure).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(failures(&each(&[])), "");
        assert_eq!(failures(&each(&["a", "a"])), "RBAC: a");
        assert_eq!(failures(&each(&["a", "b"])), "RBAC: [a, b]");
    }
}
