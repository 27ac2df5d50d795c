//! The limits that the ResourceQuotas of each namespace set.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ResourceQuota;

use crate::cluster::FollowedObjects;
use crate::object::Key;
use crate::schema::Quantity;
use crate::storage::{LogEntry, LogReader};

/// The limits of one ResourceQuota.
#[derive(Debug)]
pub(super) struct Limit {
    /// The name of the quota.
    pub name: String,
    /// The largest amount of each resource, by the name of the resource.
    pub hard: BTreeMap<String, Quantity>,
}

/// The limits of one namespace, by the names of their quotas.
type OfNamespace = BTreeMap<String, Arc<Limit>>;

/// The limits of all namespaces that have ResourceQuotas.
#[derive(Clone, Default)]
pub struct QuotaLimits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_namespace: Mutex<HashMap<String, OfNamespace>>,
    /// The source of the quotas, if this server does not store them.
    cluster: Option<FollowedObjects<ResourceQuota>>,
}

impl QuotaLimits {
    /// The limits of the quotas of the cluster.
    pub fn of_cluster(quotas: FollowedObjects<ResourceQuota>) -> Self {
        Self(Arc::new(Shared { by_namespace: Mutex::default(), cluster: Some(quotas) }))
    }

    /// The limits of a namespace.
    pub(super) async fn of(&self, namespace: &str) -> Vec<Arc<Limit>> {
        if let Some(quotas) = &self.0.cluster {
            quotas.settled().await;
        }
        let mut by_namespace = self.lock();
        if let Some(quotas) = &self.0.cluster {
            for (key, quota) in quotas.take_changed() {
                set(&mut by_namespace, &key, quota.as_deref());
            }
        }
        by_namespace.get(namespace).into_iter().flat_map(|all| all.values().cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfNamespace>> {
        self.0.by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the quotas that this server stores. A quota applies to every write that starts after the quota was created.
impl LogReader for QuotaLimits {
    fn append(&self, entry: LogEntry) {
        let quota = entry.object.and_then(|object| serde_json::from_slice(&object.json()).ok());
        set(&mut self.lock(), &entry.key, quota.as_ref());
    }
}

/// Records the limits of a quota, or its deletion.
fn set(by_namespace: &mut HashMap<String, OfNamespace>, key: &Key, quota: Option<&ResourceQuota>) {
    let Some(namespace) = key.namespace() else { return };
    let limit = quota.and_then(|quota| limit(key.name(), quota));
    let Some(limit) = limit else {
        if let Some(of_namespace) = by_namespace.get_mut(namespace) {
            of_namespace.remove(key.name());
            if of_namespace.is_empty() {
                by_namespace.remove(namespace);
            }
        }
        return;
    };
    let of_namespace = by_namespace.entry(namespace.to_owned()).or_default();
    of_namespace.insert(key.name().to_owned(), Arc::new(limit));
}

/// The limits of a quota. A quota with scopes has none here, because only Pods and claims can match scopes.
fn limit(name: &str, quota: &ResourceQuota) -> Option<Limit> {
    let spec = quota.spec.as_ref()?;
    let selector = spec.scope_selector.as_ref();
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
    let is_scoped = |count: Option<usize>| count.is_some_and(|count| count > 0);
    if is_scoped(spec.scopes.as_ref().map(Vec::len)) || is_scoped(expressions.map(Vec::len)) {
        return None;
    }
    let hard = spec.hard.iter().flatten();
    let hard = hard.filter_map(|(resource, amount)| {
        Some((resource.clone(), Quantity::parse(&amount.0).ok()?))
    });
    Some(Limit { name: name.to_owned(), hard: hard.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::{Value, json};

    fn quota(spec: &Value) -> Option<ResourceQuota> {
        Some(serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap())
    }

    #[test]
    fn quotas_with_scopes_allow_everything_here() {
        let exists = json!({"scopeName": "BestEffort", "operator": "Exists"});
        for (spec, expected) in [
            (json!({"hard": {"pods": "1"}}), true),
            (json!({"hard": {"pods": "1"}, "scopes": []}), true),
            (json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}), false),
            (json!({"hard": {"pods": "1"}, "scopeSelector": {}}), true),
            (json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": []}}), true),
            (
                json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [exists]}}),
                false,
            ),
        ] {
            assert_eq!(limit("q", &quota(&spec).unwrap()).is_some(), expected, "{spec}");
        }
    }

    #[test]
    fn namespaces_without_quotas_have_no_entry_in_the_quota_limits() {
        let limits = QuotaLimits::default();
        let names = |namespace: &str| {
            let limits = limits.of(namespace).now_or_never().unwrap();
            limits.iter().map(|limit| limit.name.clone()).collect::<Vec<_>>()
        };
        let hard = quota(&json!({"hard": {"pods": "1", "cpu": "much"}}));
        for name in ["b", "a"] {
            set(&mut limits.lock(), &Key::new(Some("n"), name), hard.as_ref());
        }
        assert_eq!(names("n"), ["a", "b"]);
        assert!(names("m").is_empty());
        let found = limits.of("n").now_or_never().unwrap();
        assert_eq!(found[0].hard.keys().collect::<Vec<_>>(), ["pods"]);
        for name in ["a", "b", "c"] {
            set(&mut limits.lock(), &Key::new(Some("n"), name), None);
        }
        assert!(limits.lock().is_empty());
    }
}
