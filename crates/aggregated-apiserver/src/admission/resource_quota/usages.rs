//! The quota usage of each namespace: counted when objects are stored and removed, and reserved for writes in progress.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::limits::Limit;
use crate::kind::{Kind, QuotaUsage};
use crate::object::Object;
use crate::schema::Quantity;
use crate::storage::{LogEntry, LogReader};

/// The number of billionths in one. Quantities are compared in billionths.
const NANO: i128 = 1_000_000_000;

/// The amounts of resources that quotas limit, by the name of the resource. Resources with the amount zero are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    /// The usage of an object of a collection.
    pub fn of(collection: &str, usage: QuotaUsage, json: &[u8]) -> Self {
        let one = |name: &str| (name.to_owned(), 1);
        let count = one(&format!("count/{collection}"));
        Self(match usage {
            QuotaUsage::Exempt => BTreeMap::new(),
            QuotaUsage::Count => [count].into(),
            QuotaUsage::CountAs(alias) => [count, one(alias)].into(),
            QuotaUsage::Computed(compute) => {
                let computed = compute(json).into_iter().filter(|(_, amount)| *amount > 0);
                let computed = computed.map(|(name, amount)| (name.to_owned(), amount));
                computed.chain([count]).collect()
            }
        })
    }

    /// The usage of this number of objects of a collection.
    pub fn counted(collection: &str, count: usize) -> Self {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        Self([(format!("count/{collection}"), count)].into())
    }

    /// The amounts by which this exceeds `others`.
    pub fn beyond(mut self, others: &Self) -> Self {
        for (name, amount) in &mut self.0 {
            *amount = amount.saturating_sub(others.get(name));
        }
        self.0.retain(|_, amount| *amount > 0);
        self
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn add(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*amount),
                None => drop(self.0.insert(name.clone(), *amount)),
            }
        }
    }

    fn subtract(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            match self.0.get_mut(name) {
                Some(sum) if *sum > *amount => *sum -= amount,
                _ => drop(self.0.remove(name)),
            }
        }
    }
}

/// The usage of all namespaces.
#[derive(Clone, Debug, Default)]
pub struct QuotaUsages(Arc<Mutex<HashMap<String, OfNamespace>>>);

/// The usage of one namespace.
#[derive(Debug, Default)]
struct OfNamespace {
    /// The usage of the stored objects and of the writes in progress.
    used: Amounts,
    /// The reserved part of `used`, by the uid of the object; each reservation has a number.
    reserved: HashMap<String, Vec<(u64, Amounts)>>,
    /// The number of reservations so far.
    reservations: u64,
}

impl OfNamespace {
    fn is_empty(&self) -> bool {
        self.used.0.is_empty() && self.reserved.is_empty()
    }
}

impl QuotaUsages {
    /// Returns the log reader that counts the stored objects of this kind.
    pub fn counter(&self, kind: &Kind) -> Arc<dyn LogReader> {
        let (usages, usage) = (self.clone(), kind.strategy.quota_usage);
        Arc::new(Counter { usages, collection: kind.collection(), usage })
    }

    /// Reserves the usage of an object, if every limit allows it; without a uid, the usage is only checked. Resources
    /// without a limit are not reserved.
    ///
    /// # Errors
    /// The limit that is exceeded, in the words of kube-apiserver.
    pub(super) fn reserve(
        &self,
        namespace: &str,
        uid: Option<&str>,
        requested: Amounts,
        limits: &[Arc<Limit>],
    ) -> Result<Option<Reservation>, String> {
        if !is_limited(&requested, limits) {
            return Ok(None);
        }
        let mut all = self.lock();
        let nothing = Amounts::default();
        let used = all.get(namespace).map_or(&nothing, |of_namespace| &of_namespace.used);
        check_all(limits, used, &requested)?;
        let Some(uid) = uid else { return Ok(None) };
        let of_namespace = all.entry(namespace.to_owned()).or_default();
        of_namespace.used.add(&requested);
        of_namespace.reservations += 1;
        let number = of_namespace.reservations;
        of_namespace.reserved.entry(uid.to_owned()).or_default().push((number, requested));
        let (namespace, uid) = (namespace.to_owned(), uid.to_owned());
        Ok(Some(Reservation { usages: self.clone(), namespace, uid, number }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfNamespace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one of these resources has a limit.
pub(super) fn is_limited(requested: &Amounts, limits: &[Arc<Limit>]) -> bool {
    requested.0.keys().any(|name| limits.iter().any(|limit| limit.hard.contains_key(name)))
}

/// Rejects a request that exceeds the limit of one of these quotas.
///
/// # Errors
/// The limit that is exceeded, in the words of kube-apiserver.
pub(super) fn check_all(
    limits: &[Arc<Limit>],
    used: &Amounts,
    requested: &Amounts,
) -> Result<(), String> {
    limits.iter().try_for_each(|limit| check(limit, used, requested))
}

/// Rejects a request that exceeds the limit of a quota.
fn check(limit: &Limit, used: &Amounts, requested: &Amounts) -> Result<(), String> {
    let (mut of_requested, mut of_used, mut of_hard) = (Vec::new(), Vec::new(), Vec::new());
    for (name, amount) in &requested.0 {
        let Some(hard) = limit.hard.get(name) else { continue };
        let used = used.get(name);
        if (i128::from(used) + i128::from(*amount)) * NANO > hard.nanos() {
            of_requested.push(format!("{name}={}", Quantity::from_whole(*amount)));
            of_used.push(format!("{name}={}", Quantity::from_whole(used)));
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
#[derive(Debug)]
pub struct Reservation {
    usages: QuotaUsages,
    namespace: String,
    uid: String,
    number: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut all = self.usages.lock();
        let Some(of_namespace) = all.get_mut(&self.namespace) else { return };
        // The entry is missing if the object was stored.
        let Some(reserved) = of_namespace.reserved.get_mut(&self.uid) else { return };
        if let Some(place) = reserved.iter().position(|(number, _)| *number == self.number) {
            let (_, amounts) = reserved.swap_remove(place);
            of_namespace.used.subtract(&amounts);
        }
        if reserved.is_empty() {
            of_namespace.reserved.remove(&self.uid);
        }
        if of_namespace.is_empty() {
            all.remove(&self.namespace);
        }
    }
}

/// Counts the stored objects of one kind.
struct Counter {
    usages: QuotaUsages,
    collection: String,
    usage: QuotaUsage,
}

impl LogReader for Counter {
    fn append(&self, entry: LogEntry) {
        let LogEntry { key, before, object, .. } = entry;
        let is_computed = matches!(self.usage, QuotaUsage::Computed(_));
        if before.is_some() && object.is_some() && !is_computed {
            return;
        }
        let Some(namespace) = key.namespace() else { return };
        let of = |object: Option<&Object>| {
            let json = object.map(Object::json);
            json.map(|json| Amounts::of(&self.collection, self.usage, &json)).unwrap_or_default()
        };
        let (gone, kept) = (of(before.as_deref()), of(object.as_deref()));
        if gone == kept {
            return;
        }
        let mut all = self.usages.lock();
        let of_namespace = all.entry(namespace.to_owned()).or_default();
        // Among the concurrent writes to this object, only one could be stored.
        let uid = object.as_ref().or(before.as_ref()).map(|object| object.uid());
        let reserved = uid.and_then(|uid| of_namespace.reserved.remove(uid));
        for (_, amounts) in reserved.into_iter().flatten() {
            of_namespace.used.subtract(&amounts);
        }
        of_namespace.used.subtract(&gone);
        of_namespace.used.add(&kept);
        if of_namespace.is_empty() {
            all.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Key;
    use crate::storage::Revision;
    use serde_json::json;

    const FOOS: &str = "count/foos.example.com";

    fn limit(name: &str, hard: &[(&str, &str)]) -> Arc<Limit> {
        let hard =
            hard.iter().map(|(name, hard)| ((*name).to_owned(), Quantity::parse(hard).unwrap()));
        Arc::new(Limit { name: name.to_owned(), hard: hard.collect() })
    }

    fn counter(usages: &QuotaUsages, usage: QuotaUsage) -> Counter {
        Counter { usages: usages.clone(), collection: "foos.example.com".to_owned(), usage }
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

    fn one() -> Amounts {
        Amounts::of("foos.example.com", QuotaUsage::Count, b"")
    }

    fn sized(json: &[u8]) -> Vec<(&'static str, u64)> {
        let value: serde_json::Value = serde_json::from_slice(json).unwrap();
        vec![("sizes", value["size"].as_u64().unwrap_or_default())]
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
        let requested =
            Amounts([("a", 1), ("b", 2000), ("c", 1)].map(|(k, v)| (k.into(), v)).into());
        let limits = [limit("q", &[("a", "0"), ("b", "1k"), ("c", "1500m"), ("d", "0")])];
        assert_eq!(
            usages.reserve("n", None, requested, &limits).unwrap_err(),
            "exceeded quota: q, requested: a=1,b=2k, used: a=0,b=0, limited: a=0,b=1k"
        );
    }

    #[test]
    fn an_update_is_charged_only_for_its_additional_usage() {
        let usages = QuotaUsages::default();
        let usage = QuotaUsage::Computed(sized);
        let counter = counter(&usages, usage);
        let limits = [limit("q", &[("sizes", "10")])];
        append(&counter, None, Some(&object("1", 4)));
        let of = |object: &Object| Amounts::of("foos.example.com", usage, &object.json());
        let grown = of(&object("1", 9)).beyond(&of(&object("1", 4)));
        assert_eq!(grown, Amounts([("sizes".to_owned(), 5)].into()));
        assert_eq!(of(&object("1", 3)).beyond(&of(&object("1", 4))), Amounts::default());
        // Two writes of one object, of which one is stored.
        let reserve = |amounts: &Amounts| usages.reserve("n", Some("1"), amounts.clone(), &limits);
        let first = reserve(&grown).unwrap();
        assert!(reserve(&grown).is_err());
        let second = reserve(&Amounts([("sizes".to_owned(), 1)].into())).unwrap();
        append(&counter, Some(&object("1", 4)), Some(&object("1", 9)));
        drop((first, second));
        assert_eq!(usages.lock()["n"].used, of(&object("1", 9)));
        assert!(usages.lock()["n"].reserved.is_empty());
        append(&counter, Some(&object("1", 9)), None);
        assert!(usages.lock().is_empty());
    }
}
