//! Roles and bindings at one time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use aggregated_apiserver::User;
use aggregated_apiserver::runtime_kinds::{RuntimeKinds, StoredObject};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::{Metadata, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::aggregation::{aggregated_rules, has_rules};
use crate::built_in::label_selector;
use crate::built_in::rbac::GROUP;

/// Roles and bindings at one time.
#[derive(Clone, Default)]
pub(super) struct Roles {
    roles: Parsed<Role>,
    cluster_roles: Parsed<ClusterRole>,
    role_bindings: Parsed<RoleBinding>,
    cluster_role_bindings: Parsed<ClusterRoleBinding>,
    /// For each ClusterRole, the roles with the rules that it grants: itself, or the roles that it aggregates.
    made_of: Arc<BTreeMap<String, Vec<Arc<ClusterRole>>>>,
}

/// The objects of a kind.
struct Parsed<K> {
    /// The number of changes of the kind when the objects were read.
    changes: Option<u64>,
    objects: Arc<Objects<K>>,
}

/// Objects by namespace and name, each with its resourceVersion.
type Objects<K> = BTreeMap<(String, String), (u64, Arc<K>)>;

impl<K> Clone for Parsed<K> {
    fn clone(&self) -> Self {
        Self { changes: self.changes, objects: Arc::clone(&self.objects) }
    }
}

impl<K> Default for Parsed<K> {
    fn default() -> Self {
        Self { changes: None, objects: Arc::default() }
    }
}

impl<K: Resource + Metadata + DeserializeOwned + Default> Parsed<K> {
    fn is_current(&self, kinds: &RuntimeKinds, plural: &str) -> bool {
        self.changes == kinds.changes(GROUP, plural)
    }

    /// Parses changed objects; unchanged ones remain.
    fn refresh(&mut self, kinds: &RuntimeKinds, plural: &str) {
        // The number is read before the objects, so that a change in between causes another refresh.
        let changes = kinds.changes(GROUP, plural);
        if changes == self.changes {
            return;
        }
        let mut objects = BTreeMap::new();
        for kept in kinds.objects(GROUP, plural).iter().flat_map(|kept| kept.iter()) {
            let place = (kept.namespace().to_owned(), kept.name().to_owned());
            let version = kept.resource_version();
            let object = match self.objects.get(&place) {
                Some((known, object)) if *known == version => Arc::clone(object),
                _ => Arc::new(read(&kept)),
            };
            objects.insert(place, (version, object));
        }
        *self = Self { changes, objects: Arc::new(objects) };
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

/// Parses a stored object. An object that cannot be parsed grants nothing.
fn read<K: Resource + DeserializeOwned + Default>(kept: &StoredObject<'_>) -> K {
    serde_json::from_value(Value::Object(kept.to_tree())).unwrap_or_else(|error| {
        let (kind, namespace, name) = (K::KIND, kept.namespace(), kept.name());
        tracing::error!(
            kind,
            object = %format_args!("{namespace}/{name}"),
            %error,
            "cannot decode a role or binding; it grants nothing"
        );
        K::default()
    })
}

/// A rule that a user has, with the binding that grants it.
pub(super) struct Granted<'a> {
    pub(super) rule: &'a PolicyRule,
    binding: Binding<'a>,
}

/// A role that is bound to a user.
#[derive(Clone, Copy)]
struct Binding<'a> {
    name: &'a str,
    /// The namespace; empty for a ClusterRoleBinding.
    namespace: &'a str,
    role: &'a RoleRef,
    subject: &'a Subject,
}

impl<'a> Binding<'a> {
    /// The binding of a role to one of these subjects, if one of them is the user.
    fn of(
        user: &User,
        (name, namespace): (&'a str, &'a str),
        role: &'a RoleRef,
        subjects: &'a Option<Vec<Subject>>,
    ) -> Option<Self> {
        let is_user = |subject: &&Subject| applies_to(subject, namespace, user);
        let subject = subjects.iter().flatten().find(is_user)?;
        Some(Self { name, namespace, role, subject })
    }
}

impl Granted<'_> {
    /// The reason for which a request is allowed: kube-apiserver's message.
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

/// The largest number of attempts to read all kinds without a concurrent change.
const ATTEMPTS: usize = 5;

impl Roles {
    /// Whether nothing has changed since the last refresh.
    pub(super) fn is_current(&self, kinds: &RuntimeKinds) -> bool {
        self.roles.is_current(kinds, "roles")
            && self.cluster_roles.is_current(kinds, "clusterroles")
            && self.role_bindings.is_current(kinds, "rolebindings")
            && self.cluster_role_bindings.is_current(kinds, "clusterrolebindings")
    }

    /// Reads all kinds again, as of the same time. If they change continuously, the times may differ.
    pub(super) fn refresh(&mut self, kinds: &RuntimeKinds) {
        for _ in 0..ATTEMPTS {
            self.roles.refresh(kinds, "roles");
            if !self.cluster_roles.is_current(kinds, "clusterroles") {
                self.cluster_roles.refresh(kinds, "clusterroles");
                self.aggregate();
            }
            self.role_bindings.refresh(kinds, "rolebindings");
            self.cluster_role_bindings.refresh(kinds, "clusterrolebindings");
            if self.is_current(kinds) {
                break;
            }
        }
    }

    /// Calls `visit` with every rule that a user has in a namespace (in all namespaces if it is empty), and with the
    /// error for every role that cannot be found, until `visit` breaks. A role that is bound several times is visited
    /// once.
    pub(super) fn visit<'a>(
        &'a self,
        user: &User,
        namespace: &'a str,
        mut visit: impl FnMut(Result<Granted<'a>, String>) -> ControlFlow<()>,
    ) {
        let everywhere = self.cluster_role_bindings.in_namespace("");
        let everywhere = everywhere.filter_map(|(name, binding)| {
            Binding::of(user, (name, ""), &binding.role_ref, &binding.subjects)
        });
        let here = self.role_bindings.in_namespace(namespace).filter(|_| !namespace.is_empty());
        let here = here.filter_map(|(name, binding)| {
            Binding::of(user, (name, namespace), &binding.role_ref, &binding.subjects)
        });
        let mut visited = HashSet::new();
        for binding in everywhere.chain(here) {
            let RoleRef { kind, name, .. } = binding.role;
            if !visited.insert((kind, name)) {
                continue;
            }
            let flow = match self.rules(binding.role, binding.namespace) {
                Ok(mut rules) => rules.try_for_each(|rule| visit(Ok(Granted { rule, binding }))),
                Err(why) => visit(Err(why)),
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// The rules of a role that is bound in a namespace.
    ///
    /// # Errors
    /// The message that the role does not exist.
    pub(super) fn rules<'a>(
        &'a self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<impl Iterator<Item = &'a PolicyRule> + use<'a>, String> {
        let RoleRef { kind, name, .. } = role;
        let (of_role, of_cluster_roles) = match kind.as_str() {
            "Role" => (self.roles.get(namespace, name).map(|role| &role.rules), None),
            "ClusterRole" => (None, self.cluster_role(name)),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        if of_role.is_none() && of_cluster_roles.is_none() {
            let kind = kind.to_ascii_lowercase();
            return Err(format!("{kind}.{GROUP} {name:?} not found"));
        }
        let of_role = of_role.into_iter().flatten().flatten();
        let parts = of_cluster_roles.into_iter().flatten();
        Ok(of_role.chain(parts.flat_map(|role| role.rules.iter().flatten())))
    }

    /// The ClusterRoles whose rules a ClusterRole grants.
    fn cluster_role(&self, name: &str) -> Option<&[Arc<ClusterRole>]> {
        self.made_of.get(name).map(Vec::as_slice)
    }

    /// The ClusterRoles whose rules are not up to date with those that they aggregate: the name and resourceVersion of
    /// each, and its correct rules.
    pub(super) fn stale_aggregations(&self) -> Vec<(String, u64, Vec<PolicyRule>)> {
        let all = self.all_cluster_roles();
        let objects = self.cluster_roles.objects.iter();
        let aggregated = objects.filter(|(_, (_, role))| role.aggregation_rule.is_some());
        let stale = aggregated.filter_map(|((_, name), (version, role))| {
            let rules = aggregated_rules(role, &all);
            let is_stale = !has_rules(role, rules.as_ref());
            is_stale.then(|| (name.clone(), *version, rules.unwrap_or_default()))
        });
        stale.collect()
    }

    fn all_cluster_roles(&self) -> BTreeMap<String, Arc<ClusterRole>> {
        let objects = self.cluster_roles.objects.iter();
        objects.map(|((_, name), (_, role))| (name.clone(), Arc::clone(role))).collect()
    }

    /// Computes `made_of`.
    fn aggregate(&mut self) {
        let all = self.all_cluster_roles();
        let made_of = all.keys().map(|name| (name.clone(), parts(name, &all))).collect();
        self.made_of = Arc::new(made_of);
    }
}

/// The roles that a role aggregates, or the role itself, in the order of names.
fn parts(name: &str, all: &BTreeMap<String, Arc<ClusterRole>>) -> Vec<Arc<ClusterRole>> {
    let (mut parts, mut seen) = (Vec::new(), BTreeSet::new());
    // A stack, with the first selected role on top.
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        let Some(role) = all.get(name).filter(|_| seen.insert(name.to_owned())) else { continue };
        let Some(aggregation) = &role.aggregation_rule else {
            parts.push(Arc::clone(role));
            continue;
        };
        let selectors = aggregation.cluster_role_selectors.as_deref().unwrap_or_default();
        let is_selected = |(_, other): &(&String, &Arc<ClusterRole>)| {
            let labels = other.metadata.labels.as_ref();
            selectors.iter().any(|selector| label_selector::matches(selector, labels))
        };
        let selected = all.iter().rev().filter(is_selected).map(|(name, _)| name.as_str());
        open.extend(selected.filter(|name| !seen.contains(*name)));
    }
    parts
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

    fn reference(name: &str) -> RoleRef {
        object(json!({"kind": "ClusterRole", "name": name, "apiGroup": GROUP}))
    }

    fn verbs(roles: &Roles, name: &str) -> Result<Vec<String>, String> {
        Ok(roles.rules(&reference(name), "")?.flat_map(|rule| rule.verbs.clone()).collect())
    }

    #[test]
    fn roles_that_aggregate_each_other_have_each_rule_once() {
        let with = |name: &str, more: Value| {
            let mut role = json!({"metadata": {"name": name, "labels": {"of": "all"}}});
            role.as_object_mut().unwrap().append(more.clone().as_object_mut().unwrap());
            let place = (String::new(), name.to_owned());
            (place, (1, Arc::new(object::<ClusterRole>(role))))
        };
        let selects = json!({"clusterRoleSelectors": [{"matchLabels": {"of": "all"}}, {"matchExpressions": [{"key": "of", "operator": "Exists"}]}]});
        let all = (0..40).map(|number| {
            let name = number.to_string();
            match number {
                7 | 9 => with(&name, json!({"rules": [{"verbs": [name]}]})),
                // The rules in the object itself are ignored.
                _ => with(&name, json!({"aggregationRule": selects, "rules": [{"verbs": ["x"]}]})),
            }
        });
        let mut roles = Roles::default();
        roles.cluster_roles.objects = Arc::new(all.collect());
        roles.aggregate();
        for name in ["0", "39"] {
            assert_eq!(verbs(&roles, name), Ok(vec!["7".to_owned(), "9".to_owned()]));
        }
        assert_eq!(verbs(&roles, "7"), Ok(vec!["7".to_owned()]));
    }

    #[test]
    fn binding_subjects_match_users_groups_and_service_accounts() {
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
