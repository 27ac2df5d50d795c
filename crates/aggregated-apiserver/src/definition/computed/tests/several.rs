//! Several objects of one source.

use super::*;

/// A key of a ConfigMap. Its name is `KEY.CONFIGMAP`; a key `NAMESPACE_KEY` is in that namespace.
fn items(source: &ConfigMap) -> Vec<(Option<String>, String, String)> {
    let catalog = source.metadata.name.clone().unwrap_or_default();
    let data = source.data.clone().unwrap_or_default().into_iter();
    data.map(|(key, value)| {
        let (namespace, key) = match key.split_once('_') {
            Some((namespace, key)) => (Some(namespace.to_owned()), key.to_owned()),
            None => (None, key),
        };
        (namespace, format!("{key}.{catalog}"), value)
    })
    .collect()
}

fn catalog_of(name: &str) -> Option<String> {
    name.split_once('.').map(|(_, catalog)| catalog.to_owned())
}

macro_rules! package {
    ($kind:ident $spec:ident $name:literal $fan_out:expr, $options:expr) => {
        #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
        #[kube(group = "example.com", version = "v1", kind = $name, namespaced)]
        struct $spec {
            value: String,
        }

        impl Computed for $kind {
            type Source = ConfigMap;
            type Related = ();

            const OPTIONS: SourceOptions = $options;
            const FAN_OUT: FanOut = $fan_out;
            const MAX_OBJECTS: usize = 6;

            fn compute_all(source: &ConfigMap, (): &()) -> Vec<Self> {
                let items = items(source).into_iter();
                items
                    .map(|(namespace, name, value)| {
                        let mut object = Self::new(&name, $spec { value });
                        object.metadata.namespace = namespace;
                        object
                    })
                    .collect()
            }

            fn source_name(name: &str) -> Option<String> {
                catalog_of(name)
            }
        }
    };
}

const GLOBAL: SourceOptions = SourceOptions::ALL.in_namespace("default");

package!(Package PackageSpec "Package" FanOut::Several, SourceOptions::ALL);
package!(Everywhere EverywhereSpec "Everywhere" FanOut::AnyNamespace, GLOBAL);
package!(Single SingleSpec "Single" FanOut::One, SourceOptions::ALL);

fn shown(fixture: &Fixture) -> Vec<String> {
    let snapshot = fixture.cache.snapshot();
    let all = snapshot.from(&Scope::All, None);
    all.map(|versioned| versioned.object.key().to_string()).collect()
}

/// Collects events until there are this many.
async fn events(
    fixture: &Fixture,
    watch: &mut crate::watch_cache::Subscription,
    count: usize,
) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(fixture.next(watch).await);
    }
    events.sort_by(|(one, _), (other, _)| one.cmp(other));
    events
}

#[tokio::test]
async fn a_source_has_several_objects_with_different_uids() {
    let fixture = start_of::<Package>(SourceOptions::ALL);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("vim", "1"), ("git", "2")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("vim", "3")])));
    let fixture = fixture.synced().await;
    assert_eq!(shown(&fixture), ["default/git.a", "default/vim.a", "default/vim.b"]);
    let uid = |name: &str| fixture.cache.get(&key(name)).unwrap().object.uid().to_owned();
    assert_ne!(uid("git.a"), uid("vim.a"));
    assert_ne!(uid("vim.a"), uid("vim.b"));
}

#[tokio::test]
async fn only_changed_objects_of_a_source_have_events() {
    let fixture = start_of::<Package>(SourceOptions::ALL);
    let before = [("cat", "1"), ("git", "1"), ("vim", "1")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &before)));
    let fixture = fixture.synced().await;
    let uid = fixture.cache.get(&key("git.a")).unwrap().object.uid().to_owned();
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    // One object changes, one is added, one is removed, and one stays.
    let after = [("cat", "1"), ("git", "2"), ("zsh", "1")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &after)));
    let value = |value: &str| serde_json::json!({"value": value});
    let expected = [
        ("git.a".to_owned(), value("2")),
        ("vim.a".to_owned(), Value::Null),
        ("zsh.a".to_owned(), value("1")),
    ];
    assert_eq!(events(&fixture, &mut watch, 3).await, expected);
    assert_eq!(fixture.cache.get(&key("git.a")).unwrap().object.uid(), uid);
    fixture.config_maps.set(key("a"), None);
    let gone = events(&fixture, &mut watch, 3).await;
    assert_eq!(gone, ["cat.a", "git.a", "zsh.a"].map(|name| (name.to_owned(), Value::Null)));
    assert_eq!(shown(&fixture), [""; 0]);
}

#[tokio::test]
async fn objects_can_be_in_other_namespaces_than_their_source() {
    let fixture = start_of::<Everywhere>(GLOBAL);
    let rows = [("dev_vim", "1"), ("ops_vim", "1"), ("vim", "1")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &rows)));
    let fixture = fixture.synced().await;
    assert_eq!(shown(&fixture), ["default/vim.a", "dev/vim.a", "ops/vim.a"]);
    let (_, mut watch) = fixture.cache.subscribe(Scope::Namespace("ops".into()));
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("dev_vim", "1")])));
    assert_eq!(fixture.next(&mut watch).await, [("vim.a".to_owned(), Value::Null)]);
    assert_eq!(shown(&fixture), ["dev/vim.a"]);
}

/// The log names the source. Its last objects stay, and other sources have their objects.
#[tokio::test]
async fn a_source_with_an_object_of_another_source_or_namespace_keeps_its_last_objects() {
    let fixture = start_of::<Package>(SourceOptions::ALL);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("vim", "1")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("vim", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    let elsewhere = [("git", "1"), ("dev_vim", "2")];
    fixture.config_maps.set(key("a"), Some(config_map("a", &elsewhere)));
    // Two keys have the same object.
    let twice = [("default_vim", "2"), ("vim", "2")];
    fixture.config_maps.set(key("b"), Some(config_map("b", &twice)));
    fixture.config_maps.set(key("c"), Some(config_map("c", &[("vim", "1")])));
    assert_eq!(fixture.next(&mut watch).await[0].0, "vim.c");
    assert_eq!(shown(&fixture), ["default/vim.a", "default/vim.b", "default/vim.c"]);
}

/// Paths lead to objects by their names, so a name cannot contain a slash.
#[tokio::test]
async fn objects_with_names_that_no_path_can_contain_are_rejected() {
    let fixture = start_of::<Everywhere>(GLOBAL);
    for (name, row) in [("a", "x/y"), ("b", "dev/ops_vim"), ("c", "50%")] {
        fixture.config_maps.set(key(name), Some(config_map(name, &[(row, "1")])));
    }
    let fixture = fixture.synced().await;
    assert_eq!(shown(&fixture), [""; 0]);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("vim", "1")])));
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("dev_vim", "1")])));
    events(&fixture, &mut watch, 2).await;
    assert_eq!(shown(&fixture), ["default/vim.a", "dev/vim.b"]);
}

#[tokio::test]
async fn a_source_with_too_many_or_too_large_objects_keeps_its_last_objects() {
    let fixture = start_of::<Package>(SourceOptions::ALL);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("vim", "1")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("vim", "1")])));
    let fixture = fixture.synced().await;
    let (_, mut watch) = fixture.cache.subscribe(Scope::All);
    let many = ["1", "2", "3", "4", "5", "6", "7"].map(|row| (row, "1"));
    fixture.config_maps.set(key("a"), Some(config_map("a", &many)));
    let large = "x".repeat(17 << 20);
    let rows = [("git", &*large), ("vim", &*large)];
    fixture.config_maps.set(key("b"), Some(config_map("b", &rows)));
    fixture.config_maps.set(key("c"), Some(config_map("c", &many[..6])));
    let added = events(&fixture, &mut watch, 6).await;
    assert!(added.iter().all(|(name, _)| name.ends_with(".c")), "{added:?}");
    assert_eq!(shown(&fixture).len(), 8);
}

#[tokio::test]
async fn a_kind_without_a_fan_out_has_one_object_of_each_source() {
    let fixture = start_of::<Single>(SourceOptions::ALL);
    fixture.config_maps.set(key("a"), Some(config_map("a", &[("git", "1"), ("vim", "1")])));
    fixture.config_maps.set(key("b"), Some(config_map("b", &[("vim", "1")])));
    let fixture = fixture.synced().await;
    assert_eq!(shown(&fixture), ["default/vim.b"]);
}

/// After any sequence of changes, the objects are those of the present sources, and a watcher has seen each change.
#[tokio::test]
async fn objects_equal_those_of_the_sources_after_any_history() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let fixture = start_of::<Everywhere>(GLOBAL).synced().await;
        let (_, mut watch) = fixture.cache.subscribe(Scope::All);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..30 {
            let name = ["a", "b", "c"][random.usize(..3)];
            let mut rows = Vec::new();
            for row in ["vim", "dev_vim", "ops_vim", "git", "ops_git"] {
                if random.bool() {
                    rows.push((row, ["1", "2"][random.usize(..2)]));
                }
            }
            let map = random.u8(..4) > 0;
            fixture.config_maps.set(key(name), map.then(|| config_map(name, &rows)));
            if random.bool() {
                tokio::task::yield_now().await;
            }
        }
        // The last change shows that all earlier ones were processed.
        fixture.config_maps.set(key("last"), Some(config_map("last", &[("end", "1")])));
        while !seen.contains("default/end.last") {
            for change in watch.next().await.unwrap().iter() {
                let key = change.key().to_string();
                match change.after() {
                    Some(_) => drop(seen.insert(key)),
                    None => assert!(seen.remove(&key), "{key} was not shown"),
                }
            }
        }
        let mut expected = std::collections::BTreeSet::new();
        for name in ["a", "b", "c", "last"] {
            for (namespace, name, _) in
                fixture.config_maps.get(&key(name)).iter().flat_map(|source| items(source))
            {
                let namespace = namespace.unwrap_or_else(|| "default".to_owned());
                expected.insert(format!("{namespace}/{name}"));
            }
        }
        assert_eq!(seen, expected, "seed {seed}");
        assert!(shown(&fixture).iter().eq(expected.iter()), "seed {seed}");
    }
}
