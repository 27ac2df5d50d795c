//! Roles and bindings, as they are kept at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use aggregated_apiserver::{RuntimeKinds, User};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::built_in::label_selector;
use crate::service_account_tokens::ACCOUNTS;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Kubernetes' own roles, which allow what they do in kube-apiserver. No object is kept of them.
static DEFAULTS: LazyLock<Vec<ClusterRole>> = LazyLock::new(|| {
    // A test reads them.
    serde_json::from_str(include_str!("default_cluster_roles.json")).unwrap_or_default()
});

/// To which groups they are bound from the beginning: the name of the binding, the role and the group. Kubernetes' controllers have
/// roles of their own in a cluster.
const DEFAULT_BINDINGS: [(&str, &str, &str); 6] = [
    ("cluster-admin", "cluster-admin", "system:masters"),
    ("system:basic-user", "system:basic-user", AUTHENTICATED),
    ("system:discovery", "system:discovery", AUTHENTICATED),
    ("system:public-info-viewer", "system:public-info-viewer", AUTHENTICATED),
    (ISSUER_DISCOVERY, ISSUER_DISCOVERY, ACCOUNTS),
    ("kube-system", "cluster-admin", "system:serviceaccounts:kube-system"),
];
const AUTHENTICATED: &str = "system:authenticated";
const ISSUER_DISCOVERY: &str = "system:service-account-issuer-discovery";

static BOUND: LazyLock<Vec<ClusterRoleBinding>> = LazyLock::new(|| {
    DEFAULT_BINDINGS
        .into_iter()
        .map(|(name, role, group)| default_binding(name, role, group))
        .collect()
});

fn default_binding(name: &str, role: &str, group: &str) -> ClusterRoleBinding {
    let subject = Subject {
        kind: "Group".to_owned(),
        name: group.to_owned(),
        api_group: Some(GROUP.to_owned()),
        namespace: None,
    };
    ClusterRoleBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef {
            api_group: Some(GROUP.to_owned()),
            kind: "ClusterRole".to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![subject]),
    }
}

/// Roles and bindings at one moment.
#[derive(Clone, Default)]
pub(super) struct Roles {
    roles: Parsed<Role>,
    cluster_roles: Parsed<ClusterRole>,
    role_bindings: Parsed<RoleBinding>,
    cluster_role_bindings: Parsed<ClusterRoleBinding>,
}

/// The objects of a kind.
struct Parsed<K> {
    /// The number of the last change that is in it.
    changed: Option<u64>,
    objects: Arc<Objects<K>>,
}

/// Objects by namespace and name, each with its resourceVersion.
type Objects<K> = BTreeMap<(String, String), (u64, Arc<K>)>;

impl<K> Clone for Parsed<K> {
    fn clone(&self) -> Self {
        Self { changed: self.changed, objects: Arc::clone(&self.objects) }
    }
}

impl<K> Default for Parsed<K> {
    fn default() -> Self {
        Self { changed: None, objects: Arc::default() }
    }
}

impl<K: Resource + Metadata + DeserializeOwned> Parsed<K> {
    /// Reads what has changed; what has not is kept as it was read.
    fn refresh(&mut self, kinds: &RuntimeKinds, plural: &str) {
        let changed = kinds.last_change(GROUP, plural);
        if changed == self.changed {
            return;
        }
        let mut objects = BTreeMap::new();
        for kept in kinds.objects(GROUP, plural).iter().flat_map(|kept| kept.iter()) {
            let place = (kept.namespace().to_owned(), kept.name().to_owned());
            let number = kept.resource_version();
            let read = match self.objects.get(&place) {
                Some((known, read)) if *known == number => Some(Arc::clone(read)),
                _ => serde_json::from_value(Value::Object(kept.to_tree())).ok().map(Arc::new),
            };
            if let Some(read) = read {
                objects.insert(place, (number, read));
            }
        }
        *self = Self { changed, objects: Arc::new(objects) };
    }

    fn get(&self, namespace: &str, name: &str) -> Option<&K> {
        self.objects.get(&(namespace.to_owned(), name.to_owned())).map(|(_, object)| &**object)
    }

    fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a str, &'a K)> {
        let objects = self.objects.range((namespace.to_owned(), String::new())..);
        let objects = objects.take_while(move |((of, _), _)| of == namespace);
        objects.map(|((_, name), (_, object))| (name.as_str(), &**object))
    }
}

/// A rule that a user has, and where it comes from.
pub(super) struct Granted<'a> {
    pub(super) rule: &'a PolicyRule,
    binding: Binding<'a>,
}

#[derive(Clone, Copy)]
struct Binding<'a> {
    name: &'a str,
    /// Empty of a ClusterRoleBinding.
    namespace: &'a str,
    role: &'a RoleRef,
    subject: &'a Subject,
}

impl Granted<'_> {
    /// Why it is allowed, as kube-apiserver says it.
    pub(super) fn reason(&self) -> String {
        let Binding { name, namespace, role, subject } = self.binding;
        let (kind, binding) = match namespace {
            "" => ("ClusterRoleBinding", name.to_owned()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let name = match subject.kind.as_str() {
            "ServiceAccount" => {
                let of = subject.namespace.as_deref().filter(|of| !of.is_empty());
                format!("{}/{}", subject.name, of.unwrap_or(namespace))
            }
            _ => subject.name.clone(),
        };
        let RoleRef { kind: of, name: role, .. } = role;
        format!("RBAC: allowed by {kind} {binding:?} of {of} {role:?} to {} {name:?}", subject.kind)
    }
}

impl Roles {
    /// Brings it up to date.
    pub(super) fn refresh(&mut self, kinds: &RuntimeKinds) {
        self.roles.refresh(kinds, "roles");
        self.cluster_roles.refresh(kinds, "clusterroles");
        self.role_bindings.refresh(kinds, "rolebindings");
        self.cluster_role_bindings.refresh(kinds, "clusterrolebindings");
    }

    /// Every rule that a user has in a namespace, or over all of them if that is empty. What of it cannot be found is told.
    pub(super) fn rules_of<'a>(
        &'a self,
        user: &User,
        namespace: &'a str,
    ) -> (Vec<Granted<'a>>, Vec<String>) {
        let named = |binding: &'static ClusterRoleBinding| {
            (binding.metadata.name.as_deref().unwrap_or_default(), binding)
        };
        let everywhere = BOUND.iter().map(named).chain(self.cluster_role_bindings.in_namespace(""));
        let everywhere = everywhere.map(|(name, binding)| {
            (name, "", &binding.role_ref, binding.subjects.as_deref().unwrap_or_default())
        });
        let here = self.role_bindings.in_namespace(namespace).filter(|_| !namespace.is_empty());
        let here = here.map(|(name, binding)| {
            (name, namespace, &binding.role_ref, binding.subjects.as_deref().unwrap_or_default())
        });
        let (mut granted, mut missing) = (Vec::new(), Vec::new());
        for (name, namespace, role, subjects) in everywhere.chain(here) {
            let applies = |subject: &&Subject| applies_to(subject, namespace, user);
            let Some(subject) = subjects.iter().find(applies) else { continue };
            let binding = Binding { name, namespace, role, subject };
            match self.rules(role, namespace) {
                Ok(rules) => {
                    granted.extend(rules.into_iter().map(|rule| Granted { rule, binding }));
                }
                Err(why) => missing.push(why),
            }
        }
        (granted, missing)
    }

    /// The rules of a role that is bound in a namespace.
    ///
    /// # Errors
    /// That there is none.
    pub(super) fn rules<'a>(
        &'a self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<Vec<&'a PolicyRule>, String> {
        let RoleRef { kind, name, .. } = role;
        let found = match kind.as_str() {
            "Role" => {
                self.roles.get(namespace, name).map(|role| role.rules.iter().flatten().collect())
            }
            _ => self.cluster_role(name).map(|role| self.aggregated(role)),
        };
        found.ok_or_else(|| {
            format!("{}.rbac.authorization.k8s.io {name:?} not found", kind.to_ascii_lowercase())
        })
    }

    fn cluster_role(&self, name: &str) -> Option<&ClusterRole> {
        let kept = self.cluster_roles.get("", name);
        kept.or_else(|| DEFAULTS.iter().find(|role| role.metadata.name.as_deref() == Some(name)))
    }

    /// The rules of a role, or of all that it is made of, in the order of names.
    fn aggregated<'a>(&'a self, role: &'a ClusterRole) -> Vec<&'a PolicyRule> {
        if role.aggregation_rule.is_none() {
            return role.rules.iter().flatten().collect();
        }
        let named = |role: &'a ClusterRole| Some((role.metadata.name.as_deref()?, role));
        // One that is kept stands for Kubernetes' own of the same name.
        let all: BTreeMap<&str, &ClusterRole> =
            DEFAULTS.iter().filter_map(named).chain(self.cluster_roles.in_namespace("")).collect();
        let (mut rules, mut seen) = (Vec::new(), BTreeSet::new());
        // Of what is looked at next the last one.
        let mut open = vec![role];
        while let Some(role) = open.pop() {
            if !seen.insert(role.metadata.name.as_deref()) {
                continue;
            }
            let Some(aggregation) = &role.aggregation_rule else {
                rules.extend(role.rules.iter().flatten());
                continue;
            };
            let selectors = aggregation.cluster_role_selectors.as_deref().unwrap_or_default();
            let selected = all.values().rev().filter(|other| {
                let labels = other.metadata.labels.as_ref();
                selectors.iter().any(|selector| label_selector::matches(selector, labels))
            });
            open.extend(selected);
        }
        rules
    }
}

fn applies_to(subject: &Subject, namespace: &str, user: &User) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.groups.contains(&subject.name),
        "ServiceAccount" => {
            let of = subject.namespace.as_deref().filter(|of| !of.is_empty()).unwrap_or(namespace);
            let account = user.name.strip_prefix("system:serviceaccount:");
            let account = account.and_then(|account| account.split_once(':'));
            !of.is_empty() && account == Some((of, &subject.name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    #[test]
    fn kubernetes_own_roles_are_there() {
        let roles = Roles::default();
        let count = |name: &str| {
            let role = object(json!({"kind": "ClusterRole", "name": name, "apiGroup": GROUP}));
            roles.rules(&role, "").map(|rules| rules.len())
        };
        let [admin, edit, view] = ["admin", "edit", "view"].map(|name| count(name).unwrap());
        assert!(admin > edit && edit > view && view > 10, "{admin} {edit} {view}");
        assert_eq!(count("cluster-admin"), Ok(2));
        for (_, role, _) in DEFAULT_BINDINGS {
            assert!(count(role).is_ok_and(|count| count > 0), "{role}");
        }
        let none = "clusterrole.rbac.authorization.k8s.io \"nobody\" not found";
        assert_eq!(count("nobody"), Err(none.to_owned()));
    }

    #[test]
    fn roles_that_aggregate_each_other_end() {
        let role = |name: &str, of: &str| {
            let role: ClusterRole = object(json!({
                "metadata": {"name": name, "labels": {"of": of}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": "of", "operator": "Exists"}]}]},
            }));
            ((String::new(), name.to_owned()), (1, Arc::new(role)))
        };
        let mut roles = Roles::default();
        let all = (0..6).map(|number| role(&number.to_string(), "x"));
        roles.cluster_roles.objects = Arc::new(all.collect());
        let role = object(json!({"kind": "ClusterRole", "name": "0", "apiGroup": GROUP}));
        assert_eq!(roles.rules(&role, ""), Ok(vec![]));
    }

    #[test]
    fn whom_a_subject_is() {
        let user = |name: &str| User {
            name: name.to_owned(),
            groups: vec!["g".to_owned()],
            ..User::default()
        };
        let account = "system:serviceaccount:n:a";
        for (subject, namespace, name, expected) in [
            (json!({"kind": "User", "name": "eve"}), "", "eve", true),
            (json!({"kind": "User", "name": "eve"}), "", "bob", false),
            (json!({"kind": "Group", "name": "g"}), "", "eve", true),
            (json!({"kind": "ServiceAccount", "name": "a"}), "n", account, true),
            (json!({"kind": "ServiceAccount", "name": "a"}), "m", account, false),
            (json!({"kind": "ServiceAccount", "name": "a"}), "", account, false),
            (json!({"kind": "ServiceAccount", "name": "a", "namespace": "n"}), "m", account, true),
            (json!({"kind": "Pod", "name": "eve"}), "", "eve", false),
        ] {
            let told = subject.to_string();
            assert_eq!(applies_to(&object(subject), namespace, &user(name)), expected, "{told}");
        }
    }
}
