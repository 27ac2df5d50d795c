//! The limits that the ResourceQuotas of each namespace set.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::PLUGIN;
use super::amounts::Amounts;
use super::outdated::{Extent, Outdated};
use crate::admission::AdmissionError;
use crate::admission::undecoded::Undecoded;
use crate::cluster::FollowedObjects;
use crate::kind::ObjectScopes;
use crate::object::Key;
use crate::schema::Quantity;
use crate::storage::{LogEntry, LogReader};

/// The limits of one ResourceQuota, and its status.
#[derive(Debug)]
pub(super) struct Limit {
    /// The name of the quota.
    pub name: String,
    /// The revision of the quota, if this server stores it.
    pub revision: u64,
    /// The quota.
    pub quota: Arc<ResourceQuota>,
    /// The largest amount of each resource, by the name of the resource.
    pub hard: Amounts,
    /// The scopes. The quota limits only objects in every scope.
    scopes: Vec<Scope>,
    /// The limits in the status.
    pub status_hard: Amounts,
    /// The usage in the status; `None` if the status has none.
    pub status_used: Option<Amounts>,
}

/// One scope of a quota.
#[derive(Debug)]
struct Scope {
    name: String,
    operator: String,
    values: BTreeSet<String>,
}

impl Scope {
    /// Whether the scope applies to an object with these scopes.
    fn applies_to(&self, scopes: &ObjectScopes) -> bool {
        let Some(of_object) = scopes.values.get(self.name.as_str()) else {
            return scopes.flags.contains(self.name.as_str());
        };
        let mut of_object = of_object.iter();
        match self.operator.as_str() {
            "In" => of_object.any(|value| self.values.contains(value)),
            "NotIn" => of_object.len() == 0 || of_object.any(|value| !self.values.contains(value)),
            "DoesNotExist" => of_object.len() == 0,
            _ => of_object.len() > 0,
        }
    }
}

impl Limit {
    /// The limits of a quota.
    pub fn of(quota: Arc<ResourceQuota>, revision: u64) -> Self {
        let status = quota.status.as_ref();
        let status_hard = amounts(status.and_then(|status| status.hard.as_ref()));
        let status_used = status.and_then(|status| status.used.as_ref());
        let status_used = status_used.filter(|used| !used.is_empty());
        Self {
            name: quota.metadata.name.clone().unwrap_or_default(),
            revision,
            hard: amounts(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref())),
            scopes: quota.spec.as_ref().map(scopes).unwrap_or_default(),
            status_hard,
            status_used: status_used.map(|used| amounts(Some(used))),
            quota,
        }
    }

    /// Whether the quota limits only the objects in some scopes.
    pub fn has_scopes(&self) -> bool {
        !self.scopes.is_empty()
    }

    /// Whether the quota limits objects with these scopes.
    pub fn applies_to(&self, scopes: &ObjectScopes) -> bool {
        self.scopes.iter().all(|scope| scope.applies_to(scopes))
    }

    /// The uid of the quota.
    pub fn uid(&self) -> &str {
        self.quota.metadata.uid.as_deref().unwrap_or_default()
    }
}

fn amounts(amounts: Option<&BTreeMap<String, Amount>>) -> Amounts {
    let parsed = amounts.into_iter().flatten().filter_map(|(resource, amount)| {
        Some((resource.clone(), Quantity::parse(&amount.0).ok()?))
    });
    parsed.collect()
}

fn scopes(spec: &ResourceQuotaSpec) -> Vec<Scope> {
    let named = spec.scopes.iter().flatten().map(|name| Scope {
        name: name.clone(),
        operator: "Exists".to_owned(),
        values: BTreeSet::new(),
    });
    let selector = spec.scope_selector.as_ref();
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
    let selected = expressions.into_iter().flatten().map(|expression| Scope {
        name: expression.scope_name.clone(),
        operator: expression.operator.clone(),
        values: expression.values.iter().flatten().cloned().collect(),
    });
    named.chain(selected).collect()
}

/// The limits of one namespace, by the names of their quotas.
type OfNamespace = BTreeMap<String, Arc<Limit>>;

/// The limits of all namespaces that have ResourceQuotas.
#[derive(Clone, Default)]
pub struct QuotaLimits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_namespace: Mutex<HashMap<String, OfNamespace>>,
    undecoded: Undecoded,
    /// The source of the quotas, if this server does not store them.
    cluster: Option<FollowedObjects<ResourceQuota>>,
    /// The namespaces whose quotas may have an outdated status.
    outdated: Option<Arc<Outdated>>,
}

impl QuotaLimits {
    /// The limits of the quotas of the cluster.
    pub fn of_cluster(quotas: FollowedObjects<ResourceQuota>) -> Self {
        Self(Arc::new(Shared { cluster: Some(quotas), ..Shared::default() }))
    }

    /// The limits of quotas that this server stores. Namespaces with new and changed quotas are marked as outdated.
    pub(super) fn marking(outdated: &Arc<Outdated>) -> Self {
        Self(Arc::new(Shared { outdated: Some(Arc::clone(outdated)), ..Shared::default() }))
    }

    /// The limits of a namespace.
    ///
    /// # Errors
    /// 503 if a quota of the namespace that this server stores cannot be decoded.
    pub(super) async fn of(&self, namespace: &str) -> Result<Vec<Arc<Limit>>, AdmissionError> {
        if let Some(quotas) = &self.0.cluster {
            quotas.settled().await;
        }
        self.0.undecoded.check(PLUGIN, Some(namespace))?;
        let mut by_namespace = self.lock();
        if let Some(quotas) = &self.0.cluster {
            for (key, quota) in quotas.take_changed() {
                set(&mut by_namespace, &key, quota.map(|quota| Limit::of(quota, 0)));
            }
        }
        Ok(by_namespace.get(namespace).into_iter().flat_map(|all| all.values().cloned()).collect())
    }

    /// The limits of one quota that this server stores.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Limit>> {
        self.lock().get(namespace)?.get(name).cloned()
    }

    /// The names of the quotas of a namespace that this server stores.
    pub(super) fn names(&self, namespace: &str) -> Vec<String> {
        let by_namespace = self.lock();
        by_namespace.get(namespace).into_iter().flat_map(|all| all.keys().cloned()).collect()
    }

    /// The namespaces that have quotas.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Whether a namespace has quotas.
    pub(super) fn has_quotas(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfNamespace>> {
        self.0.by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the quotas that this server stores. A quota applies to every write that starts after the quota was created.
impl LogReader for QuotaLimits {
    fn damage(&self, key: Key) {
        self.0.undecoded.record_damaged::<ResourceQuota>(key);
    }

    fn append(&self, entry: LogEntry) {
        self.0.undecoded.decode(&entry, |quota: Option<ResourceQuota>| {
            let revision = entry.revision.number();
            let limit = quota.map(|quota| Limit::of(Arc::new(quota), revision));
            let spec = limit.as_ref().map(|limit| limit.quota.spec.clone());
            let before = set(&mut self.lock(), &entry.key, limit);
            let before = before.map(|before| before.quota.spec.clone());
            if let (Some(outdated), Some(namespace)) = (&self.0.outdated, entry.key.namespace())
                && before != spec
            {
                outdated.mark(namespace, Extent::Full);
            }
        });
    }
}

/// Records the limits of a quota, or its deletion. Returns the previous limits.
fn set(
    by_namespace: &mut HashMap<String, OfNamespace>,
    key: &Key,
    limit: Option<Limit>,
) -> Option<Arc<Limit>> {
    let namespace = key.namespace()?;
    let Some(limit) = limit else {
        let of_namespace = by_namespace.get_mut(namespace)?;
        let before = of_namespace.remove(key.name());
        if of_namespace.is_empty() {
            by_namespace.remove(namespace);
        }
        return before;
    };
    let of_namespace = by_namespace.entry(namespace.to_owned()).or_default();
    of_namespace.insert(key.name().to_owned(), Arc::new(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;
    use futures::FutureExt;
    use serde_json::{Value, json};

    fn limit(name: &str, spec: &Value) -> Limit {
        let quota = json!({"metadata": {"name": name}, "spec": spec});
        Limit::of(Arc::new(serde_json::from_value(quota).unwrap()), 1)
    }

    fn scopes(flags: &[&'static str], values: &[(&'static str, &[&str])]) -> ObjectScopes {
        let values = values.iter();
        ObjectScopes {
            flags: flags.iter().copied().collect(),
            values: values
                .map(|(scope, values)| {
                    (*scope, values.iter().map(|one| (*one).to_owned()).collect())
                })
                .collect(),
        }
    }

    #[test]
    fn a_quota_with_scopes_limits_only_objects_in_all_its_scopes() {
        let best_effort = scopes(&["BestEffort", "NotTerminating"], &[("PriorityClass", &[])]);
        let urgent = scopes(&["NotBestEffort", "Terminating"], &[("PriorityClass", &["high"])]);
        let other = ObjectScopes::default();
        let selector = |scope: &str, operator: &str, values: &[&str]| {
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [expression]}})
        };
        let class = "PriorityClass";
        for (spec, expected) in [
            (json!({}), [true, true, true]),
            (json!({"scopes": []}), [true, true, true]),
            (json!({"scopeSelector": {}}), [true, true, true]),
            (json!({"scopes": ["BestEffort"]}), [true, false, false]),
            (json!({"scopes": ["BestEffort", "Terminating"]}), [false, false, false]),
            (json!({"scopes": ["PriorityClass"]}), [false, true, false]),
            (selector("BestEffort", "Exists", &[]), [true, false, false]),
            (selector(class, "Exists", &[]), [false, true, false]),
            (selector(class, "DoesNotExist", &[]), [true, false, false]),
            (selector(class, "In", &["high"]), [false, true, false]),
            (selector(class, "In", &["low"]), [false, false, false]),
            (selector(class, "NotIn", &["high"]), [true, false, false]),
            (selector(class, "NotIn", &["low"]), [true, true, false]),
        ] {
            let limit = limit("q", &spec);
            let actual = [&best_effort, &urgent, &other].map(|scopes| limit.applies_to(scopes));
            assert_eq!(actual, expected, "{spec}");
        }
    }

    #[test]
    fn namespaces_without_quotas_have_no_entry_in_the_quota_limits() {
        let limits = QuotaLimits::default();
        let names = |namespace: &str| {
            let limits = limits.of(namespace).now_or_never().unwrap().unwrap();
            limits.iter().map(|limit| limit.name.clone()).collect::<Vec<_>>()
        };
        let hard = json!({"hard": {"pods": "1", "cpu": "much"}});
        for name in ["b", "a"] {
            set(&mut limits.lock(), &Key::new(Some("n"), name), Some(limit(name, &hard)));
        }
        assert_eq!(names("n"), ["a", "b"]);
        assert!(names("m").is_empty());
        let found = limits.of("n").now_or_never().unwrap().unwrap();
        assert_eq!(found[0].hard.names().collect::<Vec<_>>(), ["pods"]);
        for name in ["a", "b", "c"] {
            set(&mut limits.lock(), &Key::new(Some("n"), name), None);
        }
        assert!(limits.lock().is_empty());
    }

    #[tokio::test]
    async fn writes_to_a_namespace_are_refused_until_its_damaged_quota_is_deleted() {
        let limits = QuotaLimits::default();
        let key = Key::new(Some("n"), "q");
        limits.damage(key.clone());
        let refused = limits.of("n").await.unwrap_err().message();
        assert!(refused.contains("\"q\" cannot be decoded: the stored object"), "{refused}");
        assert!(limits.of("m").await.unwrap().is_empty());
        limits.append(LogEntry { revision: Revision::new(1), key, before: None, object: None });
        assert!(limits.of("n").await.unwrap().is_empty());
    }
}
