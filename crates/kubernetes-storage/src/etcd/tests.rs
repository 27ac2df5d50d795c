use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use test_cluster::{Authority, Etcd, Process, Programs, free_port, unless_missing};

use super::*;
use crate::encryption::tests::with_keys;
use crate::object::Object;
use crate::{Encryption, LogEntry, NamespaceLimit, Rewritten, suite};

const HISTORY: usize = 4 << 20;
const QUEUE: usize = 16 << 20;
const LIMIT: usize = 64 << 20;

/// Starts an etcd, if its program is installed.
fn etcd(members: usize) -> Option<Etcd> {
    Etcd::start_unless_missing(members).unwrap()
}

fn programs() -> Option<Programs> {
    unless_missing(Programs::find()).unwrap()
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

/// Opens a store, and waits until it has read everything.
async fn open(options: EtcdOptions) -> EtcdStore {
    open_with(options, Arc::default()).await
}

async fn open_with(options: EtcdOptions, encryption: Arc<Encryption>) -> EtcdStore {
    let store = begin(&options, encryption);
    timeout(Duration::from_secs(20), store.known()).await.unwrap();
    store
}

/// Opens a store that has not read anything yet.
fn begin(etcd: &EtcdOptions, encryption: Arc<Encryption>) -> EtcdStore {
    let share = NamespaceLimit::WHOLE;
    let options = StoreOptions { limit: LIMIT, history: HISTORY, queue: QUEUE, share, encryption };
    EtcdStore::open(etcd, options).unwrap()
}

fn collection() -> Collection {
    Collection::new("llamas.farm.example.com")
}

fn key(name: &str) -> Key {
    Key::new(Some("default"), name)
}

fn write(name: &str, expected: Precondition, text: Option<&str>) -> Commit {
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

/// A reader that records each call as a line.
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

/// A server that implements etcd's protocol with a database.
struct Kine {
    process: Process,
    urls: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Kine {
    fn start() -> Option<Self> {
        let program = unless_missing(Programs::kine()).unwrap()?;
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let mut command = Command::new(program);
        let database = format!("sqlite://{}/kine.db", folder.path().display());
        command.args(["--endpoint", &database, "--listen-address", &format!("tcp://{address}")]);
        // By default, kine retains a thousand revisions.
        command.args(["--metrics-bind-address", "0", "--compact-min-retain", "0"]);
        command.current_dir(folder.path());
        let process = Process::spawn(&command, &folder.path().join("log")).unwrap();
        Some(Self { process, urls: vec![format!("http://{address}")], _folder: folder })
    }
}

#[tokio::test]
async fn kine_passes_the_suite() {
    let Some(mut kine) = Kine::start() else { return };
    let count = AtomicUsize::new(0);
    suite::run(async || {
        let count = count.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("/registry/{count}");
        Arc::new(open(EtcdOptions { prefix, ..options(kine.urls.clone()) }).await)
    })
    .await;
    kine.process.ensure_running().unwrap();
}

#[tokio::test]
async fn all_pages_of_an_etcd_list_are_read() {
    let Some(etcd) = etcd(1) else { return };
    read_all_pages(etcd.urls()).await;
}

#[tokio::test]
async fn all_pages_of_a_kine_list_are_read() {
    let Some(kine) = Kine::start() else { return };
    read_all_pages(kine.urls.clone()).await;
}

async fn read_all_pages(urls: Vec<String>) {
    let store = open(options(urls.clone())).await;
    // The names do not fit on the first page.
    let names: Vec<String> = (0..300).map(|number| format!("thing-{number:05}")).collect();
    for name in &names {
        store.commit(write(name, Precondition::Absent, Some("1"))).await.unwrap();
    }
    drop(store);
    let store = open(options(urls)).await;
    let told = told(&store).await;
    for name in names {
        assert!(told.iter().any(|line| line.contains(&format!(" {name} "))), "{name}: {told:?}");
    }
}

#[tokio::test]
async fn replicas_see_writes_of_other_replicas_in_kine() {
    let Some(kine) = Kine::start() else { return };
    see_what_others_have_written(kine.urls.clone()).await;
}

#[tokio::test]
async fn replicas_see_writes_of_other_replicas_in_etcd() {
    let Some(etcd) = etcd(1) else { return };
    see_what_others_have_written(etcd.urls()).await;
}

async fn see_what_others_have_written(urls: Vec<String>) {
    let (one, other) = (open(options(urls.clone())).await, open(options(urls)).await);
    let told = Arc::new(Told::default());
    other.follow(&collection(), told.clone()).await.unwrap();
    told.clear();
    let mut at = one.commit(write("a", Precondition::Absent, Some("0"))).await.unwrap();
    let mut expected = vec![format!("{at} a - \"0\"")];
    for number in 1..100 {
        let (writer, reader) = if number % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let (before, text) = (format!("\"{}\"", number - 1), number.to_string());
        let stale = writer.commit(write("a", Precondition::Absent, Some("x"))).await;
        assert_eq!(stale, Err(StoreError::Exists));
        let stale = writer.commit(write("a", Precondition::At(revision(1)), Some("x"))).await;
        assert_eq!(stale, Err(StoreError::Changed { current: at }));
        at = writer.commit(write("a", Precondition::At(at), Some(&text))).await.unwrap();
        assert_eq!(text_of(reader, "a").await.as_ref(), Some(&text));
        expected.push(format!("{at} a {before} \"{text}\""));
    }
    let removed = one.commit(write("a", Precondition::At(at), None)).await.unwrap();
    assert_eq!(text_of(&other, "a").await, None);
    expected.push(format!("{removed} a \"99\" -"));
    assert_eq!(told.lines(), expected);
    let gone = other.commit(write("a", Precondition::At(at), None)).await;
    assert_eq!(gone, Err(StoreError::Absent));
}

/// Writes three times, and opens the store again. Returns the store and the revisions.
async fn find_the_past(urls: Vec<String>) -> (EtcdStore, [Revision; 3]) {
    let store = open(options(urls.clone())).await;
    assert!(store.is_new());
    let first = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    let second = store.commit(write("a", Precondition::At(first), Some("2"))).await.unwrap();
    let third = store.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    store.note_begun().await.unwrap();
    store.note_begun().await.unwrap();
    assert!(!store.is_new());
    drop(store);
    let store = open(options(urls)).await;
    assert!(!store.is_new());
    assert_eq!(text_of(&store, "a").await.as_deref(), Some("2"));
    let changes = [(first, "a - \"1\""), (second, "a \"1\" \"2\""), (third, "b - \"1\"")];
    let changes = changes.map(|(revision, change)| format!("{revision} {change}"));
    assert_eq!(told(&store).await, [vec!["since 1".to_owned()], changes.to_vec()].concat());
    (store, [first, second, third])
}

/// The lines of a reader that starts to follow now.
async fn told(store: &EtcdStore) -> Vec<String> {
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    told.lines()
}

#[tokio::test]
async fn etcd_history_is_available_after_a_restart_until_compacted() {
    let Some(etcd) = etcd(1) else { return };
    let (store, [first, second, third]) = find_the_past(etcd.urls()).await;
    // Compacted changes are no longer part of the history, regardless of its limit.
    store.client.compact(2).await.unwrap();
    drop(store);
    let store = open(options(etcd.urls())).await;
    assert_eq!(told(&store).await[..2], [format!("{first} a - \"1\""), "since 2".to_owned()]);
    store.client.compact(number(second)).await.unwrap();
    drop(store);
    let told = told(&open(options(etcd.urls())).await).await;
    let since = format!("since {second}");
    assert_eq!(told, [format!("{second} a - \"2\""), since, format!("{third} b - \"1\"")]);
}

#[tokio::test]
async fn kine_history_is_available_after_a_restart_until_compacted() {
    let Some(kine) = Kine::start() else { return };
    let (store, [_, second, third]) = find_the_past(kine.urls.clone()).await;
    store.client.compact(number(second)).await.unwrap();
    drop(store);
    // kine rejects a watch that starts at the last compacted revision, so there is no history.
    let told = told(&open(options(kine.urls.clone())).await).await;
    let (first, last) = (format!("{second} a - \"2\""), format!("{third} b - \"1\""));
    assert_eq!(told[..2], [first, last]);
    assert!(told[2].starts_with("since "), "{told:?}");
}

/// Waits until the events that a reader has received satisfy a condition.
async fn until_told(told: &Told, is_it: impl Fn(&[String]) -> bool) {
    let waiting = async {
        while !is_it(&told.lines()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "{:?}", told.lines());
}

/// Starts a proxy for an etcd. Its port can be closed.
async fn link(url: &str) -> (String, watch::Sender<bool>) {
    let target = url.strip_prefix("http://").unwrap().to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let open = watch::Sender::new(true);
    let is_open = open.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut closed = is_open.subscribe();
            if !*is_open.borrow() {
                continue;
            }
            let target = target.clone();
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = closed.wait_for(|open| !*open) => {}
                }
            });
        }
    });
    (url, open)
}

#[tokio::test]
async fn etcd_watch_resumes_after_a_lost_connection() {
    let Some(etcd) = etcd(1) else { return };
    go_on_where_it_was(&etcd.urls()[0]).await;
}

#[tokio::test]
async fn kine_watch_resumes_after_a_lost_connection() {
    let Some(kine) = Kine::start() else { return };
    go_on_where_it_was(&kine.urls[0]).await;
}

async fn go_on_where_it_was(url: &str) {
    let near = open(options(vec![url.to_owned()])).await;
    let (url, way) = link(url).await;
    let far = open(options(vec![url])).await;
    let told = Arc::new(Told::default());
    far.follow(&collection(), told.clone()).await.unwrap();
    let first = near.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    assert_eq!(text_of(&far, "a").await.as_deref(), Some("1"));
    told.clear();
    way.send_replace(false);
    let second = near.commit(write("a", Precondition::At(first), Some("2"))).await.unwrap();
    let third = near.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    // The current state is unknown to the store, and it writes nothing.
    let unknown = far.get(&collection(), &key("a")).await.map(|_| ());
    assert_eq!(unknown, Err(StoreError::Unavailable));
    let refused = far.commit(write("c", Precondition::Absent, Some("1"))).await;
    // The port is open, but connections to it get no response.
    let expected = [Err(StoreError::Unavailable), Err(StoreError::Unknown)];
    assert!(expected.contains(&refused), "{refused:?}");
    assert!(far.trouble().is_some());
    way.send_replace(true);
    until_told(&told, |lines| lines.len() >= 2).await;
    assert_eq!(told.lines(), [format!("{second} a \"1\" \"2\""), format!("{third} b - \"1\"")]);
    assert_eq!(text_of(&far, "b").await.as_deref(), Some("1"));
    assert!(far.trouble().is_none());
    assert!(near.get(&collection(), &key("c")).await.unwrap().is_none());
}

#[tokio::test]
async fn begins_anew_where_changes_were_compacted() {
    let Some(etcd) = etcd(1) else { return };
    let (url, way) = link(&etcd.urls()[0]).await;
    let (near, far) = (open_at(&etcd).await, open(options(vec![url])).await);
    let mut at = Vec::new();
    for name in ["changed", "kept", "removed"] {
        at.push(near.commit(write(name, Precondition::Absent, Some("1"))).await.unwrap());
    }
    let told = Arc::new(Told::default());
    assert_eq!(text_of(&far, "removed").await.as_deref(), Some("1"));
    far.follow(&collection(), told.clone()).await.unwrap();
    told.clear();
    way.send_replace(false);
    let changed = near.commit(write("changed", Precondition::At(at[0]), Some("2"))).await.unwrap();
    let removed = near.commit(write("removed", Precondition::At(at[2]), None)).await.unwrap();
    let made = near.commit(write("made", Precondition::Absent, Some("1"))).await.unwrap();
    near.client.compact(number(made)).await.unwrap();
    way.send_replace(true);
    let begins = |lines: &[String]| lines.iter().filter(|line| line.starts_with("since")).count();
    until_told(&told, |lines| begins(lines) == 2).await;
    // The history of watches is discarded first, so no watch receives the difference as history.
    let expected = [
        format!("since {made}"),
        format!("{} removed \"1\" -", at[2]),
        format!("{changed} changed \"1\" \"2\""),
        format!("{made} made - \"1\""),
        format!("since {made}"),
    ];
    assert_eq!(told.lines(), expected);
    assert!(removed < made);
    assert_eq!(text_of(&far, "removed").await, None);
    assert_eq!(text_of(&far, "kept").await.as_deref(), Some("1"));
    let next = far.commit(write("kept", Precondition::At(at[1]), Some("2"))).await.unwrap();
    assert_eq!(told.lines().last().unwrap(), &format!("{next} kept \"1\" \"2\""));
}

#[tokio::test]
async fn a_reconnected_store_stays_connected_to_an_idle_etcd() {
    let Some(etcd) = etcd(1) else { return };
    let (url, way) = link(&etcd.urls()[0]).await;
    let store = open(options(vec![url])).await;
    store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    // The connection is re-established, and no writes happen.
    way.send_replace(false);
    until(|| store.trouble().is_some()).await;
    way.send_replace(true);
    until(|| store.trouble().is_none()).await;
    told.clear();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(6);
    while tokio::time::Instant::now() < deadline {
        assert_eq!(store.trouble(), None);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // No change is sent twice.
    assert!(told.lines().is_empty(), "{:?}", told.lines());
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), waiting).await.is_ok());
}

async fn open_at(etcd: &Etcd) -> EtcdStore {
    open(options(etcd.urls())).await
}

/// Writes bytes that this program would not write.
async fn put(store: &EtcdStore, key: bytes::Bytes, value: &'static [u8]) {
    let put = PutRequest { key, value: value.into() };
    let success = vec![RequestOp { request: Some(Operation::Put(put)) }];
    let request = TxnRequest { compare: Vec::new(), success, failure: Vec::new() };
    assert!(store.client.transaction(request).await.unwrap().succeeded);
}

#[tokio::test]
async fn etcd_over_its_quota_accepts_deletes_and_reads() {
    let Some(programs) = programs() else { return };
    let etcd = Etcd::start_with_quota(&programs, 16 << 20).unwrap();
    let store = open(options(etcd.urls())).await;
    let large = "x".repeat(1_000_000);
    let mut written = Vec::new();
    let refused = loop {
        let name = written.len().to_string();
        assert!(written.len() < 30, "it takes everything");
        match store.commit(write(&name, Precondition::Absent, Some(&large))).await {
            Ok(revision) => written.push(revision),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, StoreError::NoDiskSpace);
    let said = store.trouble().unwrap();
    assert_eq!(said, "etcd is at its quota: nothing but removals is written");
    assert_eq!(text_of(&store, "0").await.unwrap().len(), large.len());
    let replaced = store.commit(write("0", Precondition::At(written[0]), Some("small"))).await;
    assert_eq!(replaced, Err(StoreError::NoDiskSpace), "etcd counts what was replaced, too");
    store.commit(write("0", Precondition::At(written[0]), None)).await.unwrap();
    assert_eq!(text_of(&store, "0").await, None);
    // A server that starts in this state reads all objects.
    let next = open(options(etcd.urls())).await;
    assert_eq!(text_of(&next, "1").await.unwrap().len(), large.len());
}

#[tokio::test]
async fn damaged_etcd_objects_are_reported_as_damaged_not_as_absent() {
    let Some(etcd) = etcd(1) else { return };
    let store = open_at(&etcd).await;
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    let first = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    store.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    told.clear();
    put(&store, store.prefix.place(&collection(), &key("a")), b"nonsense").await;
    until_told(&told, |lines| lines.len() == 2).await;
    assert_eq!(told.lines()[0], "damaged default/a");
    assert!(told.lines()[1].starts_with("since "), "{:?}", told.lines());
    let other = open_at(&etcd).await;
    for store in [&store, &other] {
        let kept = store.get(&collection(), &key("a")).await.map(|_| ());
        assert_eq!(kept, Err(StoreError::Damaged));
        for (expected, text) in [(Precondition::Absent, Some("2")), (Precondition::At(first), None)]
        {
            let refused = store.commit(write("a", expected, text)).await;
            assert_eq!(refused, Err(StoreError::Damaged));
        }
        assert_eq!(text_of(store, "b").await.as_deref(), Some("1"));
    }
    // The value is repaired with another tool.
    let object = write("a", Precondition::Absent, Some("3")).object.unwrap();
    let value = store.prefix.value(&collection(), &key("a"), &object).unwrap();
    put(&store, store.prefix.place(&collection(), &key("a")), Box::leak(value.to_vec().into()))
        .await;
    assert_eq!(text_of(&store, "a").await.as_deref(), Some("3"));
    assert_eq!(text_of(&other, "a").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn etcd_rejects_too_large_objects_and_lists_many_large_objects() {
    let Some(etcd) = etcd(1) else { return };
    let (store, other) = (open_at(&etcd).await, open_at(&etcd).await);
    let too_large = "x".repeat(1_600_000);
    let refused = store.commit(write("a", Precondition::Absent, Some(&too_large))).await;
    assert_eq!(refused, Err(StoreError::TooLarge));
    let large = "x".repeat(1_500_000);
    for name in 0..12 {
        store.commit(write(&name.to_string(), Precondition::Absent, Some(&large))).await.unwrap();
    }
    assert_eq!(text_of(&other, "11").await.map(|text| text.len()), Some(1_500_000));
    // Pages of these objects are reduced to the limit of a response.
    store.client.compact(number(store.sequencer().current())).await.unwrap();
    let late = open_at(&etcd).await;
    for name in 0..12 {
        assert!(text_of(&late, &name.to_string()).await.is_some());
    }
}

#[tokio::test]
async fn an_etcd_prefix_with_an_unknown_store_format_is_rejected() {
    let Some(etcd) = etcd(1) else { return };
    let store = open_at(&etcd).await;
    for (noted, expected) in [
        (
            &b"{\"form\":2}"[..],
            "were written by a later release in format 2, and this release reads format 1; use the later release",
        ),
        (b"nonsense", "/registry/test/store in etcd was written by another program"),
    ] {
        put(&store, store.prefix.store(), noted).await;
        let late = begin(&options(etcd.urls()), Arc::default());
        let why = timeout(Duration::from_secs(20), late.failed()).await.unwrap();
        assert!(why.contains(expected), "{why}");
        let as_it_is = |_: &Collection, _: &Arc<Object>| None;
        let not_rewritten = rewrite(&options(etcd.urls()), Arc::default(), &as_it_is).await;
        assert_eq!(not_rewritten.map(drop), Err(why));
        let refused = late.commit(write("a", Precondition::Absent, Some("1"))).await;
        assert_eq!(refused, Err(StoreError::Failed));
    }
}

#[tokio::test]
async fn an_etcd_prefix_with_objects_of_another_program_is_rejected() {
    let Some(etcd) = etcd(1) else { return };
    let store = open_at(&etcd).await;
    put(&store, "/registry/pods/default/a".into(), b"k8s\0").await;
    let written = store.newest().await.unwrap();
    store.client.compact(number(written)).await.unwrap();
    let prefix = "/registry/pods".to_owned();
    let options = EtcdOptions { prefix, ..options(etcd.urls()) };
    let other = begin(&options, Arc::default());
    let why = timeout(Duration::from_secs(20), other.failed()).await.unwrap();
    assert_eq!(why, "what is under /registry/pods/ in etcd was written by another program");
}

#[tokio::test]
async fn an_unknown_write_outcome_is_settled_after_etcd_responds_again() {
    let Some(mut etcd) = etcd(1) else { return };
    let store = open_at(&etcd).await;
    etcd.member(0).suspend().unwrap();
    let unknown = store.commit(write("a", Precondition::Absent, Some("1"))).await;
    assert_eq!(unknown, Err(StoreError::Unknown));
    let mut settled = store.settled();
    let early = timeout(Duration::from_secs(12), &mut settled).await;
    assert!(early.is_err(), "etcd has answered nothing");
    etcd.member(0).resume().unwrap();
    timeout(Duration::from_secs(30), settled).await.unwrap();
    // The write has happened or it never will: after the next write, a read returns the same.
    let found = text_of(&store, "a").await;
    store.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    assert_eq!(text_of(&store, "a").await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_when_an_etcd_member_stops_or_hangs() {
    let Some(mut etcd) = etcd(3) else { return };
    let store = open_at(&etcd).await;
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    told.clear();
    let mut expected = Vec::new();
    for index in 0..6_usize {
        // The member that is called first.
        let member = store.client.preferred();
        match index % 2 {
            0 => etcd.member(member).kill(),
            _ => etcd.member(member).suspend().unwrap(),
        }
        let name = index.to_string();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        let began = tokio::time::Instant::now();
        let revision = loop {
            match store.commit(write(&name, Precondition::Absent, Some("1"))).await {
                Ok(revision) => break revision,
                // An earlier attempt of unknown outcome has written the object.
                Err(StoreError::Exists) => {
                    break store.get(&collection(), &key(&name)).await.unwrap().unwrap().revision;
                }
                Err(error) if tokio::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        println!("{index}: written after {:?}", began.elapsed());
        expected.push(format!("{revision} {name} - \"1\""));
        match index % 2 {
            0 => etcd.restart(member).unwrap(),
            _ => etcd.member(member).resume().unwrap(),
        }
        etcd.wait_healthy().unwrap();
    }
    until_told(&told, |lines| lines.len() == expected.len()).await;
    assert_eq!(told.lines(), expected);
}

#[tokio::test]
async fn etcd_certificates_are_verified_on_both_sides() {
    let Some(programs) = programs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let authority =
        |name: &str| Authority::new(name, &folder.path().join(format!("{name}-ca.crt"))).unwrap();
    let (own, other) = (authority("own"), authority("other"));
    let etcd = Etcd::start_with_tls(&programs, &own).unwrap();
    let client = |authority: &Authority, name: &str| {
        let shown = authority.client(folder.path(), name, name, None).unwrap();
        Some((shown.certificate, shown.key))
    };
    let with = |ca: &Authority, certificate| EtcdOptions {
        ca: Some(ca.file.clone()),
        certificate,
        ..options(etcd.urls())
    };
    let store = open(with(&own, client(&own, "a"))).await;
    store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    assert_eq!(text_of(&store, "a").await.as_deref(), Some("1"));
    // A store reads and writes nothing, and reports the reason, if it does not trust etcd or etcd does not accept its
    // certificate.
    let (stranger, unsigned) = (client(&other, "c"), None);
    for options in [with(&other, client(&own, "b")), with(&own, stranger), with(&own, unsigned)] {
        let store = begin(&options, Arc::default());
        let first = store.trouble();
        until(|| store.trouble() != first).await;
        assert!(!store.is_known());
        let refused = store.commit(write("b", Precondition::Absent, Some("1"))).await;
        assert_eq!(refused, Err(StoreError::Unavailable));
    }
}

/// The value in etcd under the key of an object.
async fn value_of(store: &EtcdStore, name: &str) -> bytes::Bytes {
    let key = store.prefix.place(&collection(), &key(name));
    let found = store.client.key(RangeRequest { key, ..RangeRequest::default() }).await.unwrap();
    found.kvs[0].value.clone()
}

#[tokio::test]
async fn encrypted_etcd_objects_need_their_key_and_are_rewritten_with_a_new_key() {
    let Some(etcd) = etcd(1) else { return };
    let at = options(etcd.urls());
    let plain = open_at(&etcd).await;
    for number in 0..40 {
        plain
            .commit(write(&number.to_string(), Precondition::Absent, Some("a secret")))
            .await
            .unwrap();
    }
    let store = open_with(at.clone(), with_keys(&["one"], true)).await;
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    let first = store.commit(write("a", Precondition::Absent, Some("a secret"))).await.unwrap();
    assert!(value_of(&store, "a").await[4..].starts_with(b"k8s:enc:aesgcm:v1:one:"));
    assert_eq!(text_of(&store, "a").await.as_deref(), Some("a secret"));
    assert_eq!(text_of(&store, "0").await.as_deref(), Some("a secret"));
    // A server without the key does not start. A running server reports the object as damaged.
    let refused = begin(&at, Arc::default());
    let why = timeout(Duration::from_secs(20), refused.failed()).await.unwrap();
    let expected = format!(
        "llamas.farm.example.com default/a in etcd at revision {first} cannot be decrypted (--encryption-provider-config): it is encrypted with the key \"one\" of aesgcm, which is not configured for it"
    );
    assert_eq!(why, expected);
    let locked = plain.get(&collection(), &key("a")).await.map(|_| ());
    assert_eq!(locked, Err(StoreError::Damaged));
    assert_eq!(text_of(&plain, "0").await.as_deref(), Some("a secret"));
    drop(plain);
    let as_it_is = |_: &Collection, _: &Arc<Object>| None;
    let again = |encryption| rewrite(&at, encryption, &as_it_is);
    let done = |rewritten| Ok(Rewritten { rewritten, all: 41, damaged: Vec::new() });
    assert_eq!(again(Arc::default()).await, Err(expected));
    assert_eq!(again(with_keys(&["one"], true)).await, done(40));
    assert_eq!(again(with_keys(&["one"], true)).await, done(0));
    for name in ["0", "39", "a"] {
        assert!(value_of(&store, name).await[4..].starts_with(b"k8s:enc:aesgcm:v1:one:"));
        assert_eq!(text_of(&store, name).await.as_deref(), Some("a secret"));
    }
    let next = with_keys(&["two", "one"], false);
    assert_eq!(again(next).await, done(41));
    // Running servers continue with their old keys until they are configured with the new one.
    let last = open_with(at.clone(), with_keys(&["two"], false)).await;
    assert_eq!(text_of(&last, "a").await.as_deref(), Some("a secret"));
    let told_last = Arc::new(Told::default());
    last.follow(&collection(), told_last.clone()).await.unwrap();
    assert!(told_last.lines().iter().all(|line| !line.starts_with("damaged")));
    // A value is bound to its location in etcd, so a copy under another key is damaged.
    let value = value_of(&last, "0").await;
    put(&last, last.prefix.place(&collection(), &key("1")), Box::leak(value.to_vec().into())).await;
    let moved = last.get(&collection(), &key("1")).await.map(|_| ());
    assert_eq!(moved, Err(StoreError::Damaged));
}

#[cfg(feature = "kms")]
#[tokio::test]
async fn objects_encrypted_by_other_replicas_are_unavailable_until_kms_responds() {
    use crate::encryption::kms::tests::{TestPlugin, expire, settle};
    let Some(etcd) = etcd(1) else { return };
    let at = options(etcd.urls());
    let plugin = TestPlugin::start();
    let encryption = plugin.encryption(false);
    let one = open_with(at.clone(), Arc::clone(&encryption)).await;
    let of_other = plugin.encryption(false);
    let other = open_with(at, Arc::clone(&of_other)).await;
    one.commit(write("a", Precondition::Absent, Some("a secret"))).await.unwrap();
    assert!(value_of(&one, "a").await[4..].starts_with(b"k8s:enc:kms:v2:test:"));
    assert_eq!(text_of(&other, "a").await.as_deref(), Some("a secret"));
    // A third server creates a seed that the others do not know, while the plugin is about to fail.
    let third = open_with(options(etcd.urls()), plugin.encryption(false)).await;
    plugin.set_healthz("locked");
    third.commit(write("b", Precondition::Absent, Some("a secret"))).await.unwrap();
    until(|| other.trouble().is_some_and(|why| why.contains("Decrypt: locked"))).await;
    let late = other.get(&collection(), &key("b")).await.map(|_| ());
    assert_eq!(late, Err(StoreError::Unavailable), "it is not taken for absent, nor for damaged");
    plugin.set_healthz("ok");
    until(|| other.trouble().is_none()).await;
    assert_eq!(text_of(&other, "b").await.as_deref(), Some("a secret"));
    // If a seed is lost, its object cannot be read. Other objects are not affected.
    let fourth = open_with(options(etcd.urls()), plugin.encryption(false)).await;
    plugin.set_healthz("lost");
    fourth.commit(write("d", Precondition::Absent, Some("a secret"))).await.unwrap();
    until(|| other.trouble().is_some_and(|why| why.contains("Decrypt: lost"))).await;
    settle(&of_other);
    until(|| other.trouble().is_none()).await;
    let lost = other.get(&collection(), &key("d")).await.map(|_| ());
    assert_eq!(lost, Err(StoreError::Damaged));
    assert_eq!(text_of(&other, "b").await.as_deref(), Some("a secret"));
    // The plugin is not called for a damaged value.
    let mut value = value_of(&one, "a").await.to_vec();
    value[30] ^= 1;
    put(&one, one.prefix.place(&collection(), &key("a")), Box::leak(value.into())).await;
    let damaged = other.get(&collection(), &key("a")).await.map(|_| ());
    assert_eq!(damaged, Err(StoreError::Damaged));
    assert_eq!(other.trouble(), None);
    expire(&encryption);
    let refused = one.commit(write("c", Precondition::Absent, Some("a secret"))).await;
    assert_eq!(refused, Err(StoreError::Unavailable));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_at_the_same_time_stay_within_the_limit() {
    const SIZE: usize = 1_000_000;
    let Some(etcd) = etcd(1) else { return };
    let etcd = options(etcd.urls());
    for (limit, share) in [(8 << 20, NamespaceLimit::WHOLE), (64 << 20, "12%".parse().unwrap())] {
        let etcd = EtcdOptions { prefix: format!("/limit/{limit}"), ..etcd.clone() };
        let options = StoreOptions {
            limit,
            history: HISTORY,
            queue: QUEUE,
            share,
            encryption: Arc::default(),
        };
        let store = Arc::new(EtcdStore::open(&etcd, options).unwrap());
        store.known().await;
        let text = "x".repeat(SIZE);
        let commits = (0..24).map(|number| {
            let (store, name) = (Arc::clone(&store), number.to_string());
            let commit = write(&name, Precondition::Absent, Some(&text));
            async move { store.commit(commit).await }
        });
        let answers = futures::future::join_all(commits).await;
        let written = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((4..=8).contains(&written), "{written} of {limit}");
        let is_refused = |answer: &Result<Revision, StoreError>| match answer {
            Ok(_) => true,
            Err(error) => {
                matches!(error, StoreError::Full { .. } | StoreError::ShareExceeded { .. })
            }
        };
        assert!(answers.iter().all(is_refused), "{answers:?}");
        // No memory stays reserved. If an object exists, a create request reports that before it reports the limit.
        let (held, _) = store.extent().unwrap();
        assert!(held >= written * SIZE && held < written * SIZE + 100_000, "{held}");
        let full = write("late", Precondition::Absent, Some(&"x".repeat(8 * SIZE)));
        assert!(is_refused(&store.commit(full).await));
        let there = answers.iter().position(Result::is_ok).unwrap().to_string();
        let again = write(&there, Precondition::Absent, Some(&"x".repeat(8 * SIZE)));
        assert_eq!(store.commit(again).await, Err(StoreError::Exists));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_read_from_etcd_at_startup_is_limited() {
    const SIZE: usize = 500_000;
    let Some(etcd) = etcd(1) else { return };
    let (store, text) = (open_at(&etcd).await, "x".repeat(SIZE));
    let mut revision = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    for _ in 0..60 {
        let again = write("a", Precondition::At(revision), Some(&text));
        revision = store.commit(again).await.unwrap();
    }
    drop(store);
    let store = begin(&options(etcd.urls()), Arc::default());
    store.known().await;
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    let lines = told.lines();
    let changes = lines.iter().skip_while(|line| !line.starts_with("since")).count() - 1;
    assert!((1..=HISTORY / SIZE).contains(&changes), "{changes}");
    assert!(lines.last().unwrap().starts_with(&format!("{revision} a ")), "{lines:?}");
    let kept = store.get(&collection(), &key("a")).await.unwrap().unwrap();
    assert_eq!(kept.revision, revision);
}
