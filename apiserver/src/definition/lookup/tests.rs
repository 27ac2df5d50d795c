//! What lookups find, in objects that are given.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::core::Expression;
use serde_json::{from_value, json};

use super::*;

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
fn objects_are_found_by_what_they_select() {
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
fn a_question_is_kept_as_long_as_something_depends_on_it() {
    let lookup = lookup();
    let (first, second) = (Key::new(None, "first"), Key::new(None, "second"));
    lookup.list(None);
    lookup.find_by(words, None, "red");
    let asked = lookup.take_seen();
    lookup.settle(&first, &[], &asked);
    lookup.find_by(words, None, "red");
    let asked_again = lookup.take_seen();
    lookup.settle(&second, &[], &asked_again);
    assert_eq!((asked.len(), asked_again.len(), lookup.questions()), (2, 1, 2));
    lookup.settle(&first, &asked, &[]);
    assert_eq!(lookup.questions(), 1);
    lookup.settle(&second, &asked_again, &[]);
    assert_eq!(lookup.questions(), 0);
    lookup.find_matching(None, Selector::default());
    lookup.drop_unsettled(&lookup.take_seen());
    assert_eq!(lookup.questions(), 0);
}

fn lengths(map: &ConfigMap) -> (i64, BTreeMap<String, usize>) {
    let words = words(map);
    let length = i64::try_from(words.len()).unwrap();
    (if length > 2 { -length } else { length }, words.into_iter().map(|word| (word, 1)).collect())
}

/// Sums are those over the objects that are there, whatever has come and gone, and only groups
/// whose sum has changed are touched.
#[test]
fn sums_follow_each_change() {
    let mut random = fastrand::Rng::with_seed(17);
    let mut objects: BTreeMap<Key, ConfigMap> = BTreeMap::new();
    let mut view: View<ConfigMap> = View::of([]);
    let id = (IndexId::of::<u8>(), IndexId::of::<u16>());
    let totals_of = || TotalsOf::new(texts_of(words), Box::new(lengths));
    let sums = |view: &mut View<ConfigMap>| {
        let groups = [None, Some("a"), Some("b"), Some("c")].into_iter();
        let groups = groups.flat_map(|namespace| ["x", "y", "z"].map(|text| (namespace, text)));
        let sum = |(namespace, text): (Option<&'static str>, &'static str)| {
            ((namespace, text), view.total(id, totals_of, namespace, text))
        };
        groups.map(sum).collect::<BTreeMap<_, _>>()
    };
    let mut before = sums(&mut view);
    for _ in 0..5_000 {
        let namespace = random.choice(["a", "b", "c"]).unwrap();
        let name = random.u8(0..4).to_string();
        let key = Key::new(Some(namespace), &name);
        let text: Vec<&str> =
            (0..random.usize(0..4)).map(|_| random.choice(["x", "y", "z"]).unwrap()).collect();
        let object = random.bool().then(|| named(Some(namespace), &name, None, &text.join(" ")));
        let touched = view.replace(&key, object.clone().map(Arc::new));
        match object {
            Some(object) => objects.insert(key.clone(), object),
            None => objects.remove(&key),
        };
        let after = sums(&mut view);
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
        view.replace(&key, None);
    }
    assert_eq!(view.total(id, totals_of, None, "x"), Default::default());
    assert_eq!(view.bytes(), 0);
}
