//! The quota usage of each namespace: counted when objects are stored and removed, and reserved for writes in progress.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::amounts::{Amounts, CoveredResources, Usage};
use super::limits::{Limit, QuotaLimits};
use super::outdated::{Extent, Outdated};
use super::progress::Progress;
use crate::kind::{Kind, ObjectScopes, QuotaUsage};
use crate::object::Object;
use crate::storage::{LogEntry, LogReader};

/// The usage of all namespaces.
#[derive(Clone, Default)]
pub struct QuotaUsages(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_namespace: Mutex<HashMap<String, OfNamespace>>,
    /// The counters, by collection.
    counters: Mutex<HashMap<String, Weak<Counter>>>,
    /// The quotas whose status this server writes.
    statuses: Option<(QuotaLimits, Arc<Outdated>)>,
}

/// The usage of one namespace.
#[derive(Debug, Default)]
pub(super) struct OfNamespace {
    /// The usage of the stored objects and of the writes in progress, by the scopes of the objects.
    used: BTreeMap<ObjectScopes, Amounts>,
    /// The sum of `used`.
    sum: Amounts,
    /// The reserved part of `used`, by the uid of the object.
    reserved: HashMap<String, Vec<Reserved>>,
    /// The number of reservations so far.
    pub reservations: u64,
    /// The statuses that this process has written, by the name of the quota.
    pub progress: HashMap<String, Progress>,
    /// The lock of the writes to the quotas.
    pub writes: Arc<tokio::sync::Mutex<()>>,
}

/// The reserved usage of one write.
#[derive(Debug)]
struct Reserved {
    number: u64,
    usage: Usage,
}

impl OfNamespace {
    fn is_empty(&self) -> bool {
        let is_locked = Arc::strong_count(&self.writes) > 1;
        self.used.is_empty() && self.reserved.is_empty() && self.progress.is_empty() && !is_locked
    }

    /// The usage of the objects that a quota limits.
    pub fn total(&self, limit: &Limit) -> Amounts {
        if !limit.has_scopes() {
            return self.sum.masked(&limit.hard);
        }
        let mut total = Amounts::default();
        for (scopes, amounts) in &self.used {
            if limit.applies_to(scopes) {
                total.add(&amounts.masked(&limit.hard));
            }
        }
        total
    }

    /// The usage of the objects that a quota limits, without the reservations after this number.
    pub fn total_until(&self, limit: &Limit, number: u64) -> Amounts {
        let mut total = self.total(limit);
        for later in self.reserved.values().flatten().filter(|one| one.number > number) {
            if limit.applies_to(&later.usage.scopes) {
                total.subtract(&later.usage.amounts.masked(&limit.hard));
            }
        }
        total
    }

    /// The amounts of a status by which it exceeds the usage that this process knows: charges of other processes.
    pub fn charged_elsewhere(&self, limit: &Limit) -> Amounts {
        let progress = self.progress.get(&limit.name).filter(|one| one.is_of(limit));
        let newest = progress.map_or(limit, |progress| progress.newest(limit));
        let Some(used) = &newest.status_used else { return Amounts::default() };
        match progress.and_then(|progress| progress.written(newest)) {
            Some(written) => written.elsewhere.clone(),
            None => {
                let charged = progress.map_or(0, Progress::charged);
                used.masked(&limit.hard).beyond(&self.total_until(limit, charged))
            }
        }
    }

    fn add(&mut self, usage: &Usage) {
        if !usage.amounts.is_empty() {
            self.used.entry(usage.scopes.clone()).or_default().add(&usage.amounts);
            self.sum.add(&usage.amounts);
        }
    }

    fn subtract(&mut self, usage: &Usage) {
        let Some(used) = self.used.get_mut(&usage.scopes) else { return };
        used.subtract(&usage.amounts);
        self.sum.subtract(&usage.amounts);
        if used.is_empty() {
            self.used.remove(&usage.scopes);
        }
    }
}

/// The usage of the object of a write, before and after the write.
#[derive(Debug)]
pub(super) struct Requested {
    pub after: Usage,
    /// The usage of the stored object, if the write is an update.
    pub before: Option<Usage>,
}

impl Requested {
    /// The amounts that the write adds to the usage of a quota.
    fn added_to(&self, limit: &Limit) -> Amounts {
        if !limit.applies_to(&self.after.scopes) {
            return Amounts::default();
        }
        let before = self.before.as_ref().filter(|before| limit.applies_to(&before.scopes));
        let after = self.after.amounts.masked(&limit.hard);
        before.map_or(after.clone(), |before| after.beyond(&before.amounts))
    }

    /// The usage to reserve for the write.
    fn reserved(self) -> Usage {
        let Self { after, before } = self;
        let amounts = match before.filter(|before| before.scopes == after.scopes) {
            Some(before) => after.amounts.beyond(&before.amounts),
            None => after.amounts,
        };
        Usage { amounts, scopes: after.scopes }
    }
}

impl QuotaUsages {
    /// The usage of a server that writes the status of these quotas.
    pub(super) fn with_statuses(limits: QuotaLimits, outdated: Arc<Outdated>) -> Self {
        let statuses = Some((limits, outdated));
        Self(Arc::new(Shared { statuses, ..Shared::default() }))
    }

    /// Returns the log reader that counts the stored objects of this kind.
    pub fn counter(&self, kind: &Kind) -> Arc<dyn LogReader> {
        let collection = kind.collection();
        let counter = Arc::new(Counter {
            usages: self.clone(),
            collection: collection.clone(),
            usage: kind.strategy.quota_usage,
            covered: CoveredResources::of(kind),
        });
        let mut counters = self.counters();
        counters.retain(|_, counter| counter.strong_count() > 0);
        counters.insert(collection, Arc::downgrade(&counter));
        counter
    }

    /// The resources that this quota limits and that objects of a served kind can use.
    pub(super) fn covered(&self, hard: &Amounts) -> Vec<String> {
        let counters: Vec<_> = self.counters().values().filter_map(Weak::upgrade).collect();
        let is_covered = |name: &&str| counters.iter().any(|counter| counter.covered.contain(name));
        hard.names().filter(is_covered).map(str::to_owned).collect()
    }

    /// Reserves the usage of an object, if every limit allows it; without a uid, the usage is only checked. Nothing is
    /// reserved if no limit applies.
    ///
    /// # Errors
    /// The limit that is exceeded, in the words of kube-apiserver.
    pub(super) fn reserve(
        &self,
        namespace: &str,
        uid: Option<&str>,
        requested: Requested,
        limits: &[Arc<Limit>],
    ) -> Result<Option<Reservation>, String> {
        let added = limits.iter().map(|limit| (limit, requested.added_to(limit)));
        let added: Vec<_> = added.filter(|(_, added)| !added.is_empty()).collect();
        if added.is_empty() {
            return Ok(None);
        }
        let mut all = self.lock();
        let nothing = OfNamespace::default();
        let of_namespace = all.get(namespace).unwrap_or(&nothing);
        for (limit, added) in &added {
            let mut used = of_namespace.total(limit);
            if self.0.statuses.is_some() {
                used.add(&of_namespace.charged_elsewhere(limit));
            }
            check(limit, &used, added)?;
        }
        let Some(uid) = uid else { return Ok(None) };
        let charged = added.into_iter().map(|(limit, added)| (limit.name.clone(), added));
        let charged = charged.collect();
        let usage = requested.reserved();
        let of_namespace = all.entry(namespace.to_owned()).or_default();
        of_namespace.add(&usage);
        of_namespace.reservations += 1;
        let number = of_namespace.reservations;
        let reserved = of_namespace.reserved.entry(uid.to_owned()).or_default();
        reserved.push(Reserved { number, usage });
        let (namespace, uid) = (namespace.to_owned(), uid.to_owned());
        Ok(Some(Reservation { usages: self.clone(), namespace, uid, number, charged }))
    }

    /// Reads and changes the usage of a namespace.
    pub(super) fn with<T>(&self, namespace: &str, change: impl FnOnce(&mut OfNamespace) -> T) -> T {
        let mut all = self.lock();
        let of_namespace = all.entry(namespace.to_owned()).or_default();
        let changed = change(of_namespace);
        if of_namespace.is_empty() {
            all.remove(namespace);
        }
        changed
    }

    /// Marks the quotas of a namespace as outdated, if it has some.
    fn mark(&self, namespace: &str, extent: Extent) {
        if let Some((limits, outdated)) = &self.0.statuses
            && limits.has_quotas(namespace)
        {
            outdated.mark(namespace, extent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfNamespace>> {
        self.0.by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self) -> MutexGuard<'_, HashMap<String, Weak<Counter>>> {
        self.0.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rejects a request that exceeds the limit of one of these quotas.
///
/// # Errors
/// The limit that is exceeded, in the words of kube-apiserver.
pub(super) fn check_all(
    limits: &[Arc<Limit>],
    used: &Amounts,
    requested: &Requested,
) -> Result<(), String> {
    limits.iter().try_for_each(|limit| check(limit, used, &requested.added_to(limit)))
}

/// Whether a write adds to the usage of one of these quotas.
pub(super) fn is_limited(requested: &Requested, limits: &[Arc<Limit>]) -> bool {
    limits.iter().any(|limit| !requested.added_to(limit).is_empty())
}

/// Rejects a request that exceeds the limit of a quota.
///
/// # Errors
/// The limit that is exceeded, in the words of kube-apiserver.
pub(super) fn check(limit: &Limit, used: &Amounts, requested: &Amounts) -> Result<(), String> {
    let (mut of_requested, mut of_used, mut of_hard) = (Vec::new(), Vec::new(), Vec::new());
    for (name, amount) in requested.iter().filter(|(name, _)| limit.hard.contains(name)) {
        let (used, hard) = (used.get(name), limit.hard.get(name));
        if used.plus(amount).nanos() > hard.nanos() {
            of_requested.push(format!("{name}={amount}"));
            of_used.push(format!("{name}={used}"));
            of_hard.push(format!("{name}={hard}"));
        }
    }
    if of_hard.is_empty() {
        return Ok(());
    }
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        limit.name,
        of_requested.join(","),
        of_used.join(","),
        of_hard.join(",")
    ))
}

/// The reserved usage of a write in progress. When the object is stored, its usage is counted instead. If this is
/// dropped before, the usage is released.
pub struct Reservation {
    usages: QuotaUsages,
    pub(super) namespace: String,
    uid: String,
    pub(super) number: u64,
    /// The amounts that the write adds to each quota, by the name of the quota.
    pub(super) charged: Vec<(String, Amounts)>,
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reservation").field(&self.number).finish()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let is_released = self.usages.with(&self.namespace, |of_namespace| {
            // The entry is missing if the object was stored.
            let Some(reserved) = of_namespace.reserved.get_mut(&self.uid) else { return false };
            let place = reserved.iter().position(|one| one.number == self.number);
            let released = place.map(|place| reserved.swap_remove(place));
            if reserved.is_empty() {
                of_namespace.reserved.remove(&self.uid);
            }
            let Some(released) = released else { return false };
            of_namespace.subtract(&released.usage);
            true
        });
        if is_released {
            self.usages.mark(&self.namespace, Extent::Full);
        }
    }
}

/// Counts the stored objects of one kind.
struct Counter {
    usages: QuotaUsages,
    collection: String,
    usage: QuotaUsage,
    covered: CoveredResources,
}

impl LogReader for Counter {
    fn append(&self, entry: LogEntry) {
        let LogEntry { key, before, object, .. } = entry;
        let is_evaluated = matches!(self.usage, QuotaUsage::Evaluated(_));
        if before.is_some() && object.is_some() && !is_evaluated {
            return;
        }
        let Some(namespace) = key.namespace() else { return };
        let of = |object: Option<&Object>| {
            let json = object.map(Object::json);
            let usage = json.map(|json| Usage::of_stored(&self.collection, self.usage, &json));
            usage.unwrap_or_default()
        };
        let is_update = before.is_some();
        let uid = object.as_ref().or(before.as_ref()).map(|object| object.uid());
        let (before, after) = (of(before.as_deref()), of(object.as_deref()));
        if before == after {
            return;
        }
        let extent = self.usages.with(namespace, |of_namespace| {
            // Among the concurrent writes to this object, only one could be stored.
            let reserved = uid.and_then(|uid| of_namespace.reserved.remove(uid));
            let mut expected = before.amounts.clone();
            for one in reserved.into_iter().flatten() {
                expected.add(&one.usage.amounts);
                of_namespace.subtract(&one.usage);
            }
            of_namespace.subtract(&before);
            of_namespace.add(&after);
            let is_moved = is_update && before.scopes != after.scopes;
            if is_moved || !expected.clone().beyond(&after.amounts).is_empty() {
                return Some(Extent::Full);
            }
            // The status has the usage of a charged write already.
            (expected != after.amounts).then_some(Extent::Increases)
        });
        if let Some(extent) = extent {
            self.usages.mark(namespace, extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::core::v1::ResourceQuota;
    use serde_json::json;

    use super::*;
    use crate::kind::{ObjectUsage, QuotaEvaluator};
    use crate::object::Key;
    use crate::schema::Quantity;
    use crate::storage::Revision;

    const FOOS: &str = "count/foos.example.com";

    fn limit(name: &str, hard: &[(&str, &str)]) -> Arc<Limit> {
        let hard: BTreeMap<_, _> = hard.iter().copied().collect();
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
        let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
        Arc::new(Limit::of(Arc::new(quota), 1))
    }

    fn counter(usages: &QuotaUsages, usage: QuotaUsage) -> Counter {
        let collection = "foos.example.com";
        let covered = CoveredResources::of_collection(collection, usage);
        Counter { usages: usages.clone(), collection: collection.to_owned(), usage, covered }
    }

    fn object(uid: &str, size: u64) -> Arc<Object> {
        let metadata = json!({"name": uid, "namespace": "n", "uid": uid});
        let tree = json!({"metadata": metadata, "size": size});
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    }

    fn append(counter: &Counter, before: Option<&Arc<Object>>, object: Option<&Arc<Object>>) {
        let key = Key::new(Some("n"), "x");
        let (before, object) = (before.cloned(), object.cloned());
        counter.append(LogEntry { revision: Revision::new(1), key, before, object });
    }

    fn one() -> Requested {
        let after = Usage::of("foos.example.com", QuotaUsage::Count, b"").unwrap();
        Requested { after, before: None }
    }

    /// An evaluator of the resource `sizes`, with a scope for large objects.
    #[derive(Debug)]
    struct Sizes;

    impl QuotaEvaluator for Sizes {
        fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error> {
            let value: serde_json::Value = serde_json::from_slice(json)?;
            let size = value["size"].as_u64().unwrap_or_default();
            let flags = if size > 100 { BTreeSet::from(["Large"]) } else { BTreeSet::new() };
            Ok(ObjectUsage {
                amounts: [("sizes".to_owned(), Quantity::from_whole(size))].into(),
                scopes: ObjectScopes { flags, ..ObjectScopes::default() },
            })
        }

        fn covers(&self, resource: &str) -> bool {
            resource == "sizes"
        }
    }

    fn of_size(size: u64) -> Usage {
        let object = object("1", size);
        Usage::of("foos.example.com", QuotaUsage::Evaluated(&Sizes), &object.json()).unwrap()
    }

    #[test]
    fn an_object_that_the_evaluator_cannot_read_is_rejected_and_counted_if_it_is_stored() {
        let evaluated = QuotaUsage::Evaluated(&Sizes);
        assert!(Usage::of("foos.example.com", evaluated, b"{").is_err());
        let stored = Usage::of_stored("foos.example.com", evaluated, b"{");
        assert_eq!(stored, one().after);
    }

    fn growth(before: u64, after: u64) -> Requested {
        Requested { after: of_size(after), before: Some(of_size(before)) }
    }

    #[test]
    fn quota_is_reserved_until_the_object_is_stored_or_the_reservation_dropped() {
        let usages = QuotaUsages::default();
        let counter = counter(&usages, QuotaUsage::Count);
        let limits = [limit("many", &[(FOOS, "9")]), limit("few", &[(FOOS, "2"), ("pods", "0")])];
        let reserve = |uid| usages.reserve("n", uid, one(), &limits);
        let first = reserve(Some("1")).unwrap().unwrap();
        let second = reserve(Some("2")).unwrap();
        let refused =
            format!("exceeded quota: few, requested: {FOOS}=1, used: {FOOS}=2, limited: {FOOS}=2");
        assert_eq!(reserve(Some("3")).unwrap_err(), refused);
        assert_eq!(reserve(None).unwrap_err(), refused);
        drop(second);
        // A dry run reserves nothing.
        assert!(reserve(None).unwrap().is_none());
        // A stored object counts once, before and after its reservation is dropped.
        append(&counter, None, Some(&object("1", 0)));
        let second = reserve(Some("2")).unwrap();
        assert_eq!(reserve(Some("3")).unwrap_err(), refused);
        drop(first);
        assert_eq!(reserve(Some("3")).unwrap_err(), refused);
        drop(second);
        // An update does not change the count, and a removal releases it.
        append(&counter, Some(&object("1", 0)), Some(&object("1", 1)));
        append(&counter, Some(&object("1", 1)), None);
        assert!(usages.lock().is_empty());
    }

    #[test]
    fn resources_without_a_quota_limit_are_not_reserved() {
        let usages = QuotaUsages::default();
        let limits = [limit("q", &[("count/bars.example.com", "0")])];
        assert!(usages.reserve("n", Some("1"), one(), &limits).unwrap().is_none());
        assert!(usages.lock().is_empty());
    }

    #[test]
    fn the_quota_error_lists_every_exceeded_resource() {
        let usages = QuotaUsages::default();
        let amounts = [("a", 1), ("b", 2000), ("c", 1)]
            .map(|(name, amount)| (name.to_owned(), Quantity::from_whole(amount)));
        let after = Usage { amounts: amounts.into_iter().collect(), ..Usage::default() };
        let requested = Requested { after, before: None };
        let limits = [limit("q", &[("a", "0"), ("b", "1k"), ("c", "1500m"), ("d", "0")])];
        assert_eq!(
            usages.reserve("n", None, requested, &limits).unwrap_err(),
            "exceeded quota: q, requested: a=1,b=2k, used: a=0,b=0, limited: a=0,b=1k"
        );
    }

    #[test]
    fn an_update_is_charged_only_for_its_additional_usage() {
        let usages = QuotaUsages::default();
        let counter = counter(&usages, QuotaUsage::Evaluated(&Sizes));
        let limits = [limit("q", &[("sizes", "10")])];
        append(&counter, None, Some(&object("1", 4)));
        // Two writes of one object, of which one is stored.
        let reserve = |after: u64| usages.reserve("n", Some("1"), growth(4, after), &limits);
        let first = reserve(9).unwrap();
        assert!(first.is_some());
        assert!(reserve(9).is_err());
        assert!(reserve(3).unwrap().is_none());
        let second = reserve(5).unwrap();
        append(&counter, Some(&object("1", 4)), Some(&object("1", 9)));
        drop((first, second));
        assert_eq!(
            usages.lock()["n"].total(&limits[0]),
            of_size(9).amounts.masked(&limits[0].hard)
        );
        assert!(usages.lock()["n"].reserved.is_empty());
        append(&counter, Some(&object("1", 9)), None);
        assert!(usages.lock().is_empty());
    }

    #[test]
    fn objects_count_in_the_scopes_that_apply_to_them() {
        let usages = QuotaUsages::default();
        let counter = counter(&usages, QuotaUsage::Evaluated(&Sizes));
        let quota = json!({
            "metadata": {"name": "large"},
            "spec": {"hard": {"sizes": "1k"}, "scopes": ["Large"]},
        });
        let large = Limit::of(Arc::new(serde_json::from_value(quota).unwrap()), 1);
        let limits = [limit("all", &[("sizes", "2k")]), Arc::new(large)];
        let total = |limit: usize| {
            let all = usages.lock();
            all.get("n").map(|one| one.total(&limits[limit]).get("sizes").to_string())
        };
        append(&counter, None, Some(&object("1", 50)));
        append(&counter, None, Some(&object("2", 200)));
        assert_eq!((total(0).as_deref(), total(1).as_deref()), (Some("250"), Some("200")));
        // An object that enters the scope is charged completely there.
        let refused = usages.reserve("n", Some("1"), growth(50, 900), &limits).unwrap_err();
        let expected =
            "exceeded quota: large, requested: sizes=900, used: sizes=200, limited: sizes=1k";
        assert_eq!(refused, expected);
        assert!(usages.reserve("n", None, growth(50, 800), &limits).is_ok());
        append(&counter, Some(&object("1", 50)), Some(&object("1", 800)));
        assert_eq!((total(0).as_deref(), total(1).as_deref()), (Some("1k"), Some("1k")));
        append(&counter, Some(&object("1", 800)), None);
        append(&counter, Some(&object("2", 200)), None);
        assert_eq!(total(0), None);
    }
}
