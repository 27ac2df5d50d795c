use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use test_cluster::{Etcd, Programs};

use super::*;
use crate::object::Object;
use crate::storage::{LogEntry, suite};

const LIMIT: usize = 64 << 20;

/// An etcd, if it can be had here.
fn etcd(members: usize) -> Option<Etcd> {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(why) if std::env::var_os("REQUIRE_CONTROL_PLANE").is_none() => {
            println!("left out: {why}");
            return None;
        }
        Err(why) => panic!("{why}"),
    };
    Some(Etcd::start(&programs, members).unwrap())
}

fn options(servers: Vec<String>) -> EtcdOptions {
    let (ca, certificate, compaction_interval) = (None, None, None);
    EtcdOptions {
        servers,
        prefix: "/registry/test".to_owned(),
        ca,
        certificate,
        compaction_interval,
    }
}

/// A store that knows what is there.
async fn open(options: EtcdOptions) -> EtcdStore {
    let store = EtcdStore::open(options, LIMIT, NamespaceShare::WHOLE).unwrap();
    timeout(Duration::from_secs(20), store.known()).await.unwrap();
    store
}

fn collection() -> Collection {
    Collection::new("llamas.farm.example.com")
}

fn key(name: &str) -> Key {
    Key::new(Some("default"), name)
}

fn write(name: &str, expected: Expected, text: Option<&str>) -> Commit {
    let object = text.map(|text| {
        let metadata = json!({"name": name, "namespace": "default", "uid": "u"});
        let tree = json!({"metadata": metadata, "text": text});
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    });
    Commit { collection: collection(), key: key(name), expected, object, marks: false }
}

async fn text_of(store: &EtcdStore, name: &str) -> Option<String> {
    let kept = store.get(&collection(), &key(name)).await.unwrap()?;
    kept.object.to_tree()["text"].as_str().map(str::to_owned)
}

/// What a reader was told, a line each.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl LogReader for Told {
    fn begin(&self, oldest: Revision) {
        self.0.lock().unwrap().push(format!("since {oldest}"));
    }

    fn damage(&self, key: Key) {
        self.0.lock().unwrap().push(format!("damaged {key}"));
    }

    fn append(&self, entry: LogEntry) {
        let text = |object: Option<Arc<Object>>| {
            object.map_or("-".to_owned(), |object| object.to_tree()["text"].to_string())
        };
        let LogEntry { revision, key, before, object } = entry;
        let line = format!("{revision} {} {} {}", key.name(), text(before), text(object));
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn passes_the_suite() {
    let Some(etcd) = etcd(1) else { return };
    let count = AtomicUsize::new(0);
    suite::run(async || {
        let count = count.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("/registry/{count}");
        Arc::new(open(EtcdOptions { prefix, ..options(etcd.urls()) }).await)
    })
    .await;
}

#[tokio::test]
async fn replicas_see_what_others_have_written() {
    let Some(etcd) = etcd(1) else { return };
    let (one, other) = (open(options(etcd.urls())).await, open(options(etcd.urls())).await);
    let told = Arc::new(Told::default());
    other.follow(&collection(), told.clone()).await.unwrap();
    told.clear();
    let mut at = one.commit(write("a", Expected::Absent, Some("0"))).await.unwrap();
    let mut expected = vec![format!("{at} a - \"0\"")];
    for number in 1..100 {
        let (writer, reader) = if number % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let (before, text) = (format!("\"{}\"", number - 1), number.to_string());
        let stale = writer.commit(write("a", Expected::Absent, Some("x"))).await;
        assert_eq!(stale, Err(StoreError::Exists));
        let stale = writer.commit(write("a", Expected::At(revision(1)), Some("x"))).await;
        assert_eq!(stale, Err(StoreError::Changed { current: at }));
        at = writer.commit(write("a", Expected::At(at), Some(&text))).await.unwrap();
        assert_eq!(text_of(reader, "a").await.as_ref(), Some(&text));
        expected.push(format!("{at} a {before} \"{text}\""));
    }
    let removed = one.commit(write("a", Expected::At(at), None)).await.unwrap();
    assert_eq!(text_of(&other, "a").await, None);
    expected.push(format!("{removed} a \"99\" -"));
    assert_eq!(told.lines(), expected);
    let gone = other.commit(write("a", Expected::At(at), None)).await;
    assert_eq!(gone, Err(StoreError::Absent));
}

#[tokio::test]
async fn what_was_written_is_there_with_its_past() {
    let Some(etcd) = etcd(1) else { return };
    let store = open(options(etcd.urls())).await;
    assert!(store.is_new());
    let first = store.commit(write("a", Expected::Absent, Some("1"))).await.unwrap();
    let second = store.commit(write("a", Expected::At(first), Some("2"))).await.unwrap();
    let third = store.commit(write("b", Expected::Absent, Some("1"))).await.unwrap();
    store.note_begun().await.unwrap();
    store.note_begun().await.unwrap();
    assert!(!store.is_new());
    drop(store);
    let store = open(options(etcd.urls())).await;
    assert!(!store.is_new());
    assert_eq!(text_of(&store, "a").await.as_deref(), Some("2"));
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    let changes = [(first, "a - \"1\""), (second, "a \"1\" \"2\""), (third, "b - \"1\"")];
    let changes = changes.map(|(revision, change)| format!("{revision} {change}"));
    assert_eq!(told.lines(), [vec!["since 1".to_owned()], changes.to_vec()].concat());

    // What was compacted is no past any more.
    store.client.compact(number(second)).await.unwrap();
    drop(store);
    let store = open(options(etcd.urls())).await;
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    let expected = [format!("{second} a - \"2\""), format!("since {second}"), changes[2].clone()];
    assert_eq!(told.lines(), expected);
}
