//! Tests of lookups in given objects.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::core::Expression;
use serde_json::{from_value, json};

use super::pairs::PairMeasure;
use super::*;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

fn named(namespace: Option<&str>, name: &str, label: Option<&str>, text: &str) -> ConfigMap {
    let labels = label.map(|label| json!({"app": label}));
    let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
    from_value(json!({"metadata": metadata, "data": {"text": text}})).unwrap()
}

fn lookup() -> Lookup<ConfigMap> {
    Lookup::from_objects([
        named(Some("b"), "one", Some("web"), "red green"),
        named(Some("a"), "two", Some("web"), "green"),
        named(Some("a"), "one", None, "red red"),
        named(Some("a-b"), "one", Some("db"), "green"),
    ])
}

fn words(map: &ConfigMap) -> Vec<String> {
    let text = map.data.as_ref().and_then(|data| data.get("text"));
    text.into_iter().flat_map(|text| text.split(' ')).map(str::to_owned).collect()
}

fn keys(found: &[Arc<ConfigMap>]) -> Vec<String> {
    let key = |map: &Arc<ConfigMap>| {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{}/{}", part(&map.metadata.namespace), part(&map.metadata.name))
    };
    found.iter().map(key).collect()
}

#[test]
fn objects_are_found_by_name_and_namespace() {
    let lookup = lookup();
    assert!(lookup.get(Some("a"), "two").is_some());
    assert!(lookup.get(Some("b"), "two").is_none() && lookup.get(None, "two").is_none());
    assert_eq!(keys(&lookup.list(Some("a"))), ["a/one", "a/two"]);
    assert_eq!(keys(&lookup.list(None)), ["a-b/one", "a/one", "a/two", "b/one"]);
    assert_eq!(keys(&lookup.list(Some("c"))), [""; 0]);
}

#[test]
fn objects_are_found_by_an_index() {
    let lookup = lookup();
    assert_eq!(keys(&lookup.find_by(words, None, "red")), ["a/one", "b/one"]);
    assert_eq!(keys(&lookup.find_by(words, Some("a"), "green")), ["a/two"]);
    assert_eq!(keys(&lookup.find_by(words, Some("a"), "blue")), [""; 0]);
    let length = |map: &ConfigMap| Some(words(map).len().to_string());
    assert_eq!(keys(&lookup.find_by(length, None, "1")), ["a-b/one", "a/two"]);
    let panics = |map: &ConfigMap| -> Option<String> {
        assert_ne!(map.metadata.name.as_deref(), Some("two"));
        Some("all".to_owned())
    };
    assert_eq!(keys(&lookup.find_by(panics, Some("a"), "all")), ["a/one"]);
}

#[test]
fn objects_are_found_by_their_labels() {
    let lookup = lookup();
    let find = |namespace, term: Expression| keys(&lookup.find_matching(namespace, term.into()));
    let app = || "app".to_owned();
    assert_eq!(find(None, Expression::Equal(app(), "web".into())), ["a/two", "b/one"]);
    assert_eq!(find(Some("a"), Expression::Equal(app(), "web".into())), ["a/two"]);
    assert_eq!(find(None, Expression::Exists(app())), ["a-b/one", "a/two", "b/one"]);
    assert_eq!(find(Some("a"), Expression::DoesNotExist(app())), ["a/one"]);
    let values = ["db".to_owned(), "web".to_owned()].into();
    assert_eq!(find(None, Expression::In(app(), values)), ["a-b/one", "a/two", "b/one"]);
    assert_eq!(keys(&lookup.find_matching(Some("a"), Selector::default())), ["a/one", "a/two"]);
}

#[test]
fn objects_are_found_by_a_selector_that_matches_given_labels() {
    let service = |name: &str, selector: serde_json::Value| -> Service {
        let metadata = json!({"namespace": "n", "name": name});
        from_value(json!({"metadata": metadata, "spec": {"selector": selector}})).unwrap()
    };
    let services: Lookup<Service> = Lookup::from_objects([
        service("web", json!({"app": "web"})),
        service("blue", json!({"app": "web", "color": "blue"})),
        service("all", json!({})),
        service("none", json!(null)),
    ]);
    let selector = |service: &Service| -> Option<Selector> {
        Some(service.spec.as_ref()?.selector.clone()?.into_iter().collect())
    };
    let find = |namespace, labels: &[(&str, &str)]| -> Vec<String> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let found = services.find_selecting(selector, namespace, &labels.collect());
        found.iter().map(|service| service.metadata.name.clone().unwrap()).collect()
    };
    assert_eq!(find(Some("n"), &[("app", "web"), ("color", "blue")]), ["all", "blue", "web"]);
    assert_eq!(find(None, &[("app", "web")]), ["all", "web"]);
    assert_eq!(find(Some("n"), &[("app", "db")]), ["all"]);
    assert_eq!(find(Some("m"), &[("app", "web")]), [""; 0]);
}

#[test]
fn lookup_queries_are_stored_while_a_source_depends_on_them() {
    let lookup = lookup();
    let (first, second) = (SourceNumber(1), SourceNumber(2));
    lookup.list(None);
    lookup.find_by(words, None, "red");
    let recorded = lookup.take_latest();
    lookup.set_dependencies(first, &[], &recorded);
    lookup.find_by(words, None, "red");
    let recorded_again = lookup.take_latest();
    lookup.set_dependencies(second, &[], &recorded_again);
    assert_eq!((recorded.len(), recorded_again.len(), lookup.queries()), (2, 1, 2));
    lookup.set_dependencies(first, &recorded, &[]);
    assert_eq!(lookup.queries(), 1);
    lookup.set_dependencies(second, &recorded_again, &[]);
    assert_eq!(lookup.queries(), 0);
}

/// Changes an object, or removes it.
fn replace(
    indexed: &mut IndexedObjects<ConfigMap>,
    key: &Key,
    object: Option<Arc<ConfigMap>>,
) -> indexed_objects::IndexChange {
    let objects = object.map(|object| (key.clone(), object)).into_iter().collect();
    indexed.apply_change(key, &objects)
}

/// A sum with a maximum of ten; it panics beyond that.
#[derive(Clone, Debug, Default, PartialEq)]
struct Small(u8);

impl Aggregate for Small {
    fn add(&mut self, other: &Self) {
        self.0 += other.0;
        assert!(self.0 <= 10, "too large");
    }

    fn subtract(&mut self, other: &Self) {
        self.0 -= other.0;
    }
}

fn small(map: &ConfigMap) -> Small {
    let words = words(map);
    assert_ne!(words[0], "panic", "a measure may panic, too");
    Small(words.len().try_into().unwrap())
}

/// An object at which a sum panics is omitted, and the other objects are still counted.
#[test]
fn sums_omit_objects_that_make_the_measure_panic() {
    let mut indexed: IndexedObjects<ConfigMap> = IndexedObjects::new(SourceObjects::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let namespace = |map: &ConfigMap| map.metadata.namespace.clone();
    let sums_of = || Sums::of_objects(index_function(namespace), small);
    let mut set = |name: &str, text: Option<&str>| {
        let (namespace, _) = name.split_once('/').unwrap();
        let key = Key::of_text(name);
        let object = text.map(|text| Arc::new(named(Some(namespace), name, None, text)));
        let touched = replace(&mut indexed, &key, object);
        let groups: Vec<String> = touched.groups.iter().map(|(_, text)| text.to_string()).collect();
        let sums = ["a", "b"].map(|text| indexed.sum::<Small, _>(id, sums_of, None, text).0);
        (groups, sums)
    };
    let many = "x ".repeat(20);
    set("a/poison", Some(&many));
    assert_eq!(set("a/one", Some("x")).1, [1, 0], "a sum that is made panics at first");
    assert_eq!(set("b/one", Some("x y")), (vec!["b".to_owned()], [1, 2]));
    assert_eq!(set("b/poison", Some(&many)), (vec!["b".to_owned()], [1, 2]));
    assert_eq!(set("b/two", Some("x")), (vec!["b".to_owned()], [1, 3]));
    assert_eq!(set("b/panics", Some("panic")).1, [1, 3]);
    // An omitted object is tried again when it changes.
    assert_eq!(set("a/poison", Some("x y")), (vec!["a".to_owned()], [3, 3]));
    assert_eq!(set("b/poison", None).1, [3, 3]);
    assert_eq!(set("b/one", None).1, [3, 1]);
    assert_eq!(set("a/poison", None).1, [1, 1]);
}

static GROWN: AtomicUsize = AtomicUsize::new(0);

/// A measure whose result can differ between two calls for the same object.
fn growing(map: &ConfigMap) -> Small {
    Small((words(map).len() + GROWN.load(Ordering::Relaxed)).try_into().unwrap())
}

/// The removal of an object makes a sum panic. When the object is added again, the sum counts it once.
#[test]
fn an_object_added_again_after_a_panicking_removal_is_summed_once() {
    let mut indexed: IndexedObjects<ConfigMap> = IndexedObjects::new(SourceObjects::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let namespace = |map: &ConfigMap| map.metadata.namespace.clone();
    let sums_of = || Sums::of_objects(index_function(namespace), growing);
    let mut set = |name: &str, text: Option<&str>| {
        let object = text.map(|text| Arc::new(named(Some("a"), name, None, text)));
        replace(&mut indexed, &Key::new(Some("a"), name), object);
        indexed.sum::<Small, _>(id, sums_of, None, "a").0
    };
    assert_eq!((set("one", Some("x")), set("two", Some("x y"))), (1, 3));
    GROWN.store(5, Ordering::Relaxed);
    set("one", None);
    GROWN.store(0, Ordering::Relaxed);
    set("two", None);
    assert_eq!((set("one", Some("x")), set("one", Some("x y"))), (1, 2));
    assert_eq!((set("one", None), set("two", Some("x"))), (0, 1));
}

fn color(map: &ConfigMap) -> Option<String> {
    words(map).first().cloned()
}

fn weighed(map: &ConfigMap, service: &Service) -> i64 {
    let port = service.spec.as_ref().and_then(|spec| spec.health_check_node_port);
    i64::from(port.unwrap_or_default()) * i64::try_from(words(map).len()).unwrap()
}

/// A Service with a weight for the objects that are joined with it.
fn service(name: &str, weight: i32) -> Service {
    let metadata = json!({"namespace": "a", "name": name});
    from_value(json!({"metadata": metadata, "spec": {"healthCheckNodePort": weight}})).unwrap()
}

/// An informer of Services, synced and empty.
fn services() -> Arc<SourceInformer<Service>> {
    let informer = Arc::new(SourceInformer::alone(1 << 20));
    informer.complete(&HashSet::new());
    informer
}

/// Sums of ConfigMaps by colour, each with the weight of its Service.
fn weighed_by(
    services: &Arc<SourceInformer<Service>>,
) -> Sums<ConfigMap, PairMeasure<ConfigMap, Service, i64>> {
    let others = JoinedObjects::followed(services, &Arc::default(), true);
    Sums::of_pairs(index_function(color), weighed, others)
}

/// Sums over pairs equal those over the existing pairs after any sequence of changes on both sides.
#[test]
fn sums_over_pairs_follow_both() {
    let mut random = fastrand::Rng::with_seed(5);
    let informer = services();
    let mut indexed: IndexedObjects<ConfigMap> = IndexedObjects::new(SourceObjects::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let sums_of = || weighed_by(&informer);
    let mut maps: BTreeMap<Key, ConfigMap> = BTreeMap::new();
    let mut ports: BTreeMap<Key, i32> = BTreeMap::new();
    let mut before = ["x", "y"].map(|text| indexed.sum::<i64, _>(id, sums_of, Some("a"), text));
    // Indexes that are built while changes of the other objects are not processed yet.
    let mut late = vec![
        IndexId::of::<[u8; 1]>(),
        IndexId::of::<[u8; 2]>(),
        IndexId::of::<[u8; 3]>(),
        IndexId::of::<[u8; 4]>(),
        IndexId::of::<[u8; 5]>(),
        IndexId::of::<[u8; 6]>(),
    ];
    for _ in 0..3_000 {
        let name = random.u8(0..4).to_string();
        let key = Key::new(Some("a"), &name);
        let mut touched = BTreeSet::new();
        if random.bool() {
            let text: Vec<&str> =
                (0..random.usize(1..4)).map(|_| random.choice(["x", "y"]).unwrap()).collect();
            let object = random.bool().then(|| named(Some("a"), &name, None, &text.join(" ")));
            let groups = replace(&mut indexed, &key, object.clone().map(Arc::new)).groups;
            touched.extend(groups.into_iter().map(|(_, text)| text));
            match object {
                Some(object) => maps.insert(key, object),
                None => maps.remove(&key),
            };
        } else {
            let port = random.bool().then(|| random.i32(1..4));
            informer.set(key.clone(), port.map(|port| service(&name, port)));
            if let Some(index) = random.u8(0..50).eq(&0).then(|| late.pop()).flatten() {
                assert!(indexed.indexed(index, || index_function(color), None, "x").count() <= 4);
            }
            indexed.join(|joined, is_measured, (_, text)| {
                assert!(is_measured && *joined == key);
                touched.insert(text.clone());
            });
            match port {
                Some(port) => ports.insert(key, port),
                None => ports.remove(&key),
            };
        }
        let sums = ["x", "y"].map(|text| indexed.sum::<i64, _>(id, sums_of, Some("a"), text));
        for (at, text) in ["x", "y"].into_iter().enumerate() {
            let group = maps.iter().filter(|(_, map)| words(map)[0] == text);
            let weights = group.filter_map(|(key, map)| {
                Some(i64::from(*ports.get(key)?) * i64::try_from(words(map).len()).unwrap())
            });
            assert_eq!(sums[at], weights.sum::<i64>());
            assert_eq!(sums[at] != before[at], touched.contains(text));
        }
        before = sums;
    }
    maps.into_keys().for_each(|key| drop(replace(&mut indexed, &key, None)));
    assert_eq!(indexed.bytes(), 0);
}

/// Same test with changes that are processed later and in batches, and with joined objects that exceed the memory limit
/// for some time.
#[test]
fn sums_over_pairs_are_correct_when_changes_are_processed_late() {
    let mut random = fastrand::Rng::with_seed(31);
    let informer = services();
    let mut indexed: IndexedObjects<ConfigMap> = IndexedObjects::new(SourceObjects::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let sums_of = || weighed_by(&informer);
    let mut maps: BTreeMap<Key, ConfigMap> = BTreeMap::new();
    let mut services: BTreeMap<Key, Service> = BTreeMap::new();
    let (mut is_listed, mut looked, mut came_back) = (true, 0, 0);
    let mut was_listed = true;
    for _ in 0..10_000 {
        let name = random.u8(0..6).to_string();
        let key = Key::new(Some("a"), &name);
        match random.u8(0..30) {
            0 => {
                informer.exceed("it is too much".to_owned());
                is_listed = false;
            }
            1..=4 if !is_listed => {
                services.iter().for_each(|(key, one)| informer.set(key.clone(), Some(one.clone())));
                informer.complete(&services.keys().cloned().collect());
                (is_listed, came_back) = (true, came_back + 1);
            }
            5..=16 => {
                let text = random.choice(["x", "y z", "x y z"]).unwrap();
                let map = random.bool().then(|| named(Some("a"), &name, None, text));
                replace(&mut indexed, &key, map.clone().map(Arc::new));
                match map {
                    Some(map) => maps.insert(key, map),
                    None => maps.remove(&key),
                };
            }
            _ => {
                let one = random.bool().then(|| service(&name, random.i32(1..4)));
                match one.clone() {
                    Some(one) => services.insert(key.clone(), one),
                    None => services.remove(&key),
                };
                if is_listed || random.bool() {
                    informer.set(key, one);
                }
            }
        }
        if random.u8(0..4) > 0 {
            continue;
        }
        // Becoming synced again is a change, not a measurement.
        indexed.join(|_, is_measured, _| assert_eq!(is_measured, was_listed || !is_listed));
        was_listed = is_listed;
        for text in ["x", "y"] {
            let group = maps.iter().filter(|(_, map)| is_listed && words(map)[0] == text);
            let weights =
                group.filter_map(|(key, map)| services.get(key).map(|one| weighed(map, one)));
            let sum = indexed.sum::<i64, _>(id, sums_of, Some("a"), text);
            assert_eq!(sum, weights.sum::<i64>());
        }
        looked += 1;
    }
    assert!(looked > 1_000 && came_back > 100, "{looked} {came_back}");
}

/// A view that processes changes late, and then shares the map of the informer, contains the current objects. This also
/// holds after the objects exceeded their memory limit and were listed again.
#[test]
fn lookups_are_correct_when_changes_are_processed_late() {
    let mut random = fastrand::Rng::with_seed(29);
    let informer = SourceInformer::<ConfigMap>::alone(1 << 30);
    informer.complete(&HashSet::new());
    let changed = informer.follow(Arc::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let index = IndexId::of::<u32>();
    let sums_of = || Sums::of_objects(index_function(words), lengths);
    let mut indexed: Option<IndexedObjects<ConfigMap>> = None;
    let mut there: BTreeMap<Key, ConfigMap> = BTreeMap::new();
    let (mut is_listed, mut looked, mut came_back) = (true, 0, 0);
    for _ in 0..6_000 {
        match random.u8(0..30) {
            0 => {
                informer.exceed("it is too much".to_owned());
                is_listed = false;
            }
            1..=4 if !is_listed => {
                there.iter().for_each(|(key, map)| informer.set(key.clone(), Some(map.clone())));
                informer.complete(&there.keys().cloned().collect());
                (is_listed, came_back) = (true, came_back + 1);
            }
            _ => {
                let name = random.u8(0..40).to_string();
                let (key, text) =
                    (Key::new(Some("a"), &name), random.choice(["x", "y z", "z z"]).unwrap());
                let map = random.bool().then(|| named(Some("a"), &name, None, text));
                match map.clone() {
                    Some(map) => there.insert(key.clone(), map),
                    None => there.remove(&key),
                };
                // The current object is seen when it is listed again, or in some cases before.
                if is_listed || random.bool() {
                    informer.set(key, map);
                }
            }
        }
        if random.u8(0..4) > 0 {
            continue;
        }
        let taken = informer.take(&changed);
        assert_eq!(taken.status.is_synced, is_listed);
        if !is_listed {
            assert_eq!(taken.objects.len(), 0);
            indexed = None;
            continue;
        }
        let indexed = indexed.get_or_insert_with(|| IndexedObjects::new(informer.objects()));
        taken.keys.iter().for_each(|key| drop(indexed.apply_change(key, &taken.objects)));
        indexed.share_objects(taken.objects);
        let all: Vec<ConfigMap> = indexed.all(None).iter().map(|map| (**map).clone()).collect();
        assert!(all.iter().eq(there.values()));
        for word in ["x", "y", "z"] {
            let of_word: Vec<&ConfigMap> =
                there.values().filter(|map| words(map).iter().any(|one| one == word)).collect();
            let found = indexed.indexed(index, || index_function(words), None, word);
            assert!(found.map(|map| &**map).eq(of_word.iter().copied()));
            let sum: (i64, BTreeMap<String, usize>) = indexed.sum(id, sums_of, None, word);
            let expected =
                of_word.iter().fold(Default::default(), |mut sum: (i64, BTreeMap<_, _>), map| {
                    sum.add(&lengths(map));
                    sum
                });
            assert_eq!(sum, expected);
        }
        looked += 1;
    }
    assert!(looked > 500 && came_back > 50, "{looked} {came_back}");
}

static MEASURED: AtomicUsize = AtomicUsize::new(0);

fn measured(_: &ConfigMap, _: &Service) -> i64 {
    MEASURED.fetch_add(1, Ordering::Relaxed);
    1
}

/// In a group of any size, a change on one side measures only the affected pair.
#[test]
fn a_change_in_a_group_measures_only_the_changed_objects() {
    const COUNT: usize = 1_000;
    let informer = Arc::new(SourceInformer::<Service>::alone(1 << 30));
    let set = |name: &str| {
        let metadata = json!({"namespace": "a", "name": name});
        let service = from_value(json!({"metadata": metadata})).unwrap();
        informer.set(Key::new(Some("a"), name), Some(service));
    };
    informer.complete(&HashSet::new());
    let names: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| set(name));
    let key = |name: &str| Key::new(Some("a"), name);
    let map = |name: &str, text: &str| Arc::new(named(Some("a"), name, None, text));
    let mut indexed =
        IndexedObjects::new(names.iter().map(|name| (key(name), map(name, "x"))).collect());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let others = || JoinedObjects::followed(&informer, &Arc::default(), true);
    let sums_of = || Sums::of_pairs(index_function(color), measured, others());
    let sum =
        |indexed: &mut IndexedObjects<ConfigMap>| -> i64 { indexed.sum(id, sums_of, None, "x") };
    assert_eq!(sum(&mut indexed), 1_000);
    let before = MEASURED.load(Ordering::Relaxed);
    set("7");
    indexed.join(|_, _, _| panic!("what is measured is as it was"));
    replace(&mut indexed, &key("8"), Some(map("8", "x y")));
    replace(&mut indexed, &key("9"), None);
    assert_eq!(sum(&mut indexed), 999);
    // The old contribution is measured again to subtract it, and then the new one.
    assert_eq!(MEASURED.load(Ordering::Relaxed) - before, 2 + 2 + 1);
}

#[test]
fn the_first_is_an_example_of_many() {
    let lookup = lookup();
    let first = |namespace, text| {
        let found = lookup.first_by(words, namespace, text);
        found.map(|found| keys(&[found]).remove(0))
    };
    assert_eq!(first(None, "green").as_deref(), Some("a-b/one"));
    assert_eq!(first(Some("b"), "green").as_deref(), Some("b/one"));
    assert_eq!(first(None, "blue"), None);
}

fn lengths(map: &ConfigMap) -> (i64, BTreeMap<String, usize>) {
    let words = words(map);
    let length = i64::try_from(words.len()).unwrap();
    (if length > 2 { -length } else { length }, words.into_iter().map(|word| (word, 1)).collect())
}

/// Sums equal those over the existing objects after any sequence of changes, and only groups whose sum has changed are
/// reported.
#[test]
fn sums_follow_each_change() {
    let mut random = fastrand::Rng::with_seed(17);
    let mut objects: BTreeMap<Key, ConfigMap> = BTreeMap::new();
    let mut indexed: IndexedObjects<ConfigMap> = IndexedObjects::new(SourceObjects::default());
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let sums_of = || Sums::of_objects(index_function(words), lengths);
    let sums = |indexed: &mut IndexedObjects<ConfigMap>| {
        let groups = [None, Some("a"), Some("b"), Some("c")].into_iter();
        let groups = groups.flat_map(|namespace| ["x", "y", "z"].map(|text| (namespace, text)));
        let sum = |(namespace, text): (Option<&'static str>, &'static str)| {
            let sum: (i64, BTreeMap<String, usize>) = indexed.sum(id, sums_of, namespace, text);
            ((namespace, text), sum)
        };
        groups.map(sum).collect::<BTreeMap<_, _>>()
    };
    let mut before = sums(&mut indexed);
    for _ in 0..5_000 {
        let namespace = random.choice(["a", "b", "c"]).unwrap();
        let name = random.u8(0..4).to_string();
        let key = Key::new(Some(namespace), &name);
        let text: Vec<&str> =
            (0..random.usize(0..4)).map(|_| random.choice(["x", "y", "z"]).unwrap()).collect();
        let object = random.bool().then(|| named(Some(namespace), &name, None, &text.join(" ")));
        let touched = replace(&mut indexed, &key, object.clone().map(Arc::new));
        match object {
            Some(object) => objects.insert(key.clone(), object),
            None => objects.remove(&key),
        };
        let after = sums(&mut indexed);
        for (&(scope, text), sum) in &after {
            let group = objects.iter().filter(|(key, object)| {
                let is_in_scope = scope.is_none_or(|scope| key.namespace() == Some(scope));
                is_in_scope && words(object).iter().any(|word| word == text)
            });
            let expected = group.fold(Default::default(), |mut sum: (i64, BTreeMap<_, _>), one| {
                sum.add(&lengths(one.1));
                sum
            });
            assert_eq!(*sum, expected);
            let is_concerned = scope.is_none_or(|scope| scope == namespace);
            let is_touched = touched.groups.iter().any(|(_, touched)| **touched == *text);
            let is_changed = before[&(scope, text)] != *sum;
            assert_eq!(is_changed, is_touched && is_concerned);
        }
        before = after;
    }
    for key in objects.into_keys() {
        replace(&mut indexed, &key, None);
    }
    let nothing: (i64, BTreeMap<String, usize>) = indexed.sum(id, sums_of, None, "x");
    assert_eq!(nothing, Default::default());
    assert_eq!(indexed.bytes(), 0);
}

/// Objects can be joined with themselves: a query to the lookup must not wait for another query to the same
/// lookup.
#[test]
fn objects_are_joined_with_themselves() {
    let lookup = lookup();
    let both = |one: &ConfigMap, other: &ConfigMap| words(one).len() + words(other).len();
    assert_eq!(lookup.sum_joined(words, &lookup, both, None, "red"), 8);
    assert_eq!(lookup.sum_joined(words, &lookup, both, Some("a"), "green"), 2);
    // The sums exist now and are queried again.
    assert_eq!(lookup.sum_joined(words, &lookup, both, Some("a"), "red"), 4);
}
