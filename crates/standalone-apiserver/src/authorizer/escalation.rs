//! Prevents privilege escalation: a user cannot grant permissions that it does not have.

use std::sync::Arc;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::auth::Authorizers;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Authorizer, is_master};
use crate::built_in::quote;
use crate::built_in::rbac::GROUP;

type Tree = Map<String, Value>;

/// The admission plugin that rejects roles and bindings with permissions that the user does not have. A user with the
/// verb `escalate` on the role, or `bind` on the bound role, is exempt.
pub(crate) struct NoEscalation {
    /// The roles that users have.
    pub(crate) roles: Arc<Authorizer>,
    /// The chain that decides about `escalate` and `bind`.
    pub(crate) authorizers: Authorizers,
}

impl AdmissionPlugin for NoEscalation {
    fn name(&self) -> &str {
        "NoEscalation"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.group == GROUP
            && request.operation != AdmissionOperation::Delete
            && !is_master(request.user)
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        match object {
            Some(object) => Box::pin(self.judge(request, object)),
            None => Box::pin(ready(Ok(()))),
        }
    }
}

impl NoEscalation {
    async fn judge(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        if request.old_object().is_some_and(|old| is_same_grant(old, object)) {
            return Ok(());
        }
        let namespace = request.namespace.unwrap_or_default();
        let may = async |verb: &str, resource: &str, name: &str| {
            let text = |text: &str| Some(text.to_owned());
            let asked = ResourceAttributes {
                verb: text(verb),
                group: text(GROUP),
                version: text("*"),
                resource: text(resource),
                name: text(name),
                namespace: text(namespace),
                ..ResourceAttributes::default()
            };
            let decision = self.authorizers.authorize(request.user, &(&asked).into()).await;
            // The chain has logged the error.
            let failed = |_| AdmissionError::internal("an authorizer failed");
            decision.map(|decision| decision.is_allowed()).map_err(failed)
        };
        let granted = if let Some(role) = member::<RoleRef>(object, "roleRef") {
            let resource = if role.kind == "Role" { "roles" } else { "clusterroles" };
            if may("bind", resource, &role.name).await? {
                return Ok(());
            }
            self.roles.rules_of_role(&role, namespace).map_err(AdmissionError::forbidden)?
        } else {
            // Same as in kube-apiserver, a permission that is limited to names does not apply to a create.
            let is_new = request.operation == AdmissionOperation::Create;
            let name = if is_new { "" } else { request.name };
            if may("escalate", request.resource, name).await? {
                return Ok(());
            }
            member::<Vec<PolicyRule>>(object, "rules").unwrap_or_default()
        };
        let refused = |not_held: String| {
            let user = quote(&request.user.name);
            let groups: Vec<String> =
                request.user.groups.iter().map(|group| quote(group)).collect();
            let groups = groups.join(" ");
            AdmissionError::forbidden(format!(
                "user {user} (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{not_held}"
            ))
        };
        if let Some(not_held) = self.roles.not_held(request.user, namespace, &granted) {
            return Err(refused(not_held));
        }
        let aggregates = |role: &Tree| role.get("aggregationRule").is_some_and(Value::is_object);
        let aggregates = aggregates(object) || request.old_object().is_some_and(aggregates);
        if aggregates {
            self.demand_everything(request)?;
        }
        Ok(())
    }

    fn demand_everything(&self, request: &AdmissionRequest<'_>) -> Result<(), AdmissionError> {
        match self.roles.not_held(request.user, "", &everything()) {
            None => Ok(()),
            Some(_) => {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                Err(AdmissionError::forbidden(why))
            }
        }
    }
}

/// Whether two versions of an object differ only in fields that the garbage collector writes.
fn is_same_grant(old: &Tree, new: &Tree) -> bool {
    let rest = |tree: &Tree| {
        let mut tree = tree.clone();
        if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
            let collected = ["ownerReferences", "finalizers", "resourceVersion", "managedFields"];
            metadata.retain(|name, _| !collected.contains(&name.as_str()));
        }
        tree
    };
    rest(old) == rest(new)
}

fn member<T: DeserializeOwned>(object: &Tree, name: &str) -> Option<T> {
    serde_json::from_value(object.get(name)?.clone()).ok()
}

fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule {
            api_groups: Some(all()),
            resources: Some(all()),
            verbs: all(),
            ..PolicyRule::default()
        },
        PolicyRule { non_resource_urls: Some(all()), verbs: all(), ..PolicyRule::default() },
    ]
}
