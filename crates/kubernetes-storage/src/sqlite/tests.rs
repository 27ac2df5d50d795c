use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::encryption::tests::with_keys;
use crate::object::Object;
use crate::{Encryption, LogEntry, NamespaceLimit, Precondition, Rewritten, suite};

const LIMIT: usize = 64 << 20;
const HISTORY: usize = 16 << 20;
const QUEUE: usize = 16 << 20;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn open_at(folder: &Path, seconds: i64) -> SqliteStore {
    SqliteStore::open(folder, options(Arc::default()), at(seconds)).unwrap()
}

fn options(encryption: Arc<Encryption>) -> StoreOptions {
    StoreOptions {
        limit: LIMIT,
        history: HISTORY,
        queue: QUEUE,
        share: NamespaceLimit::WHOLE,
        encryption,
    }
}

/// Opens a store with a limit of its history in bytes.
fn open_with_history(folder: &Path, history: usize) -> SqliteStore {
    let options = StoreOptions { history, ..options(Arc::default()) };
    SqliteStore::open(folder, options, at(0)).unwrap()
}

/// The bytes of all rows in the file.
fn bytes_of_rows(folder: &Path) -> usize {
    let connection = Connection::open(folder.join("objects.db")).unwrap();
    let sql = "SELECT coalesce(sum(length(value)), 0) FROM log";
    let bytes: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    usize::try_from(bytes).unwrap()
}

/// Writes an object of this size in bytes repeatedly. Returns the last revision.
async fn overwrite(store: &SqliteStore, size: usize, times: usize) -> Revision {
    let text = "x".repeat(size);
    let mut revision = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    for _ in 0..times {
        let again = write("a", Precondition::At(revision), Some(&text));
        revision = store.commit(again).await.unwrap();
    }
    revision
}

fn refused(folder: &Path) -> String {
    refused_with(folder, Arc::default())
}

fn refused_with(folder: &Path, encryption: Arc<Encryption>) -> String {
    match SqliteStore::open(folder, options(encryption), at(0)) {
        Ok(_) => panic!("it is opened"),
        Err(why) => why,
    }
}

fn collection() -> Collection {
    Collection::new("foos.example.com")
}

fn write(name: &str, expected: Precondition, text: Option<&str>) -> Commit {
    let object = text.map(|text| {
        let metadata = json!({"name": name, "uid": "u", "labels": {"a": "b"}});
        let tree = json!({"metadata": metadata, "text": text});
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    });
    Commit { collection: collection(), key: Key::new(None, name), expected, object, marks: false }
}

/// A reader that records each call as a line.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl LogReader for Told {
    fn begin(&self, oldest: Revision) {
        self.0.lock().unwrap().push(format!("since {oldest}"));
    }

    fn damage(&self, key: Key) {
        self.0.lock().unwrap().push(format!("{key} is damaged"));
    }

    fn append(&self, LogEntry { revision, key, before, object }: LogEntry) {
        let text = |object: Option<Arc<Object>>| {
            object.map_or("-".to_owned(), |object| object.to_tree()["text"].to_string())
        };
        let line = format!("{revision} {key} {} {}", text(before), text(object));
        self.0.lock().unwrap().push(line);
    }
}

async fn told(store: &SqliteStore) -> Vec<String> {
    let told = Arc::new(Told::default());
    store.follow(&collection(), told.clone()).await.unwrap();
    std::mem::take(&mut *told.0.lock().unwrap())
}

/// Each store of the suite has its own directory. The directories are deleted at the end of the test.
#[tokio::test(flavor = "multi_thread")]
async fn passes_the_suite() {
    let folders: Mutex<Vec<TempDir>> = Mutex::default();
    suite::run(async || {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), options(Arc::default()), at(0));
        folders.lock().unwrap().push(folder);
        Arc::new(store.unwrap())
    })
    .await;
}

#[tokio::test]
async fn sqlite_objects_and_history_are_available_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    assert!(store.is_new());
    let start = store.sequencer().current();
    let first = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    let second = store.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    let third = store.commit(write("a", Precondition::At(first), Some("2"))).await.unwrap();
    let fourth = store.commit(write("b", Precondition::At(second), None)).await.unwrap();
    assert_eq!((start.number() + 1, start.number() + 4), (first.number(), fourth.number()));
    drop(store);
    let store = open_at(folder.path(), 10);
    assert!(!store.is_new());
    let kept = store.get(&collection(), &Key::new(None, "a")).await.unwrap().unwrap();
    assert_eq!((kept.revision, &kept.object.to_tree()["text"]), (third, &json!("2")));
    assert_eq!(kept.object.labels().get("a"), Some("b"));
    assert!(store.get(&collection(), &Key::new(None, "b")).await.unwrap().is_none());
    let sequencer = store.sequencer();
    let is_ours = |revision| sequencer.may_have_issued(revision);
    assert!([start, first, fourth, sequencer.current()].into_iter().all(is_ours));
    // Numbers in between were never issued, or were issued by a run whose writes were lost.
    assert!(!is_ours(Revision::new(fourth.number() + 1)));
    assert!(sequencer.current().number() - start.number() >= 10_000_000);
    let told_first = told(&store).await;
    let expected = [
        format!("since {start}"),
        format!("{first} a - \"1\""),
        format!("{second} b - \"1\""),
        format!("{third} a \"1\" \"2\""),
        format!("{fourth} b \"1\" -"),
    ];
    assert_eq!(told_first, expected);
    // A later reader receives only the current objects.
    let now = sequencer.current();
    assert_eq!(told(&store).await, [format!("{third} a - \"2\"")]);
    let fifth = store.commit(write("b", Precondition::Absent, Some("3"))).await.unwrap();
    assert_eq!(fifth, sequencer.after(now));
}

#[tokio::test]
async fn revisions_increase_even_if_the_clock_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut newest = Revision::NONE;
    for seconds in [0, -3_600, 0, 3_600, -3_600] {
        let store = open_at(folder.path(), seconds);
        assert!(store.sequencer().current() > newest);
        let name = newest.to_string();
        newest = store.commit(write(&name, Precondition::Absent, Some(""))).await.unwrap();
    }
    // A start without writes uses a number, too.
    for _ in 0..3 {
        let current = open_at(folder.path(), -7_200).sequencer().current();
        assert!(current > newest);
        newest = current;
    }
}

#[tokio::test]
async fn the_past_is_cut_off_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    let first = store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    let second = store.commit(write("b", Precondition::Absent, Some("1"))).await.unwrap();
    let third = store.commit(write("a", Precondition::At(first), Some("2"))).await.unwrap();
    let fourth = store.commit(write("a", Precondition::At(third), Some("3"))).await.unwrap();
    let fifth = store.commit(write("b", Precondition::At(second), None)).await.unwrap();
    drop(store);
    let cut = |until: Revision| {
        let mut database = Database::open(folder.path(), Sealing::default()).unwrap();
        let mut log = Log::new(HISTORY);
        let mut last = std::collections::HashMap::new();
        let note = |row: Row| {
            let before = match row.is_removal() {
                true => last.remove(&row.key),
                false => last.insert(row.key.clone(), row.revision),
            };
            let before = before.map(|before| (before, 0));
            log.note(before, row.revision, row.is_removal());
        };
        database.read(note).unwrap();
        let count = log.count_until((until, fifth), usize::MAX, usize::MAX);
        database.compact(until, log.rows(count)).unwrap();
    };
    cut(third);
    let expected = [
        format!("{second} b - \"1\""),
        format!("{third} a - \"2\""),
        format!("since {third}"),
        format!("{fourth} a \"2\" \"3\""),
        format!("{fifth} b \"1\" -"),
    ];
    assert_eq!(told(&open_at(folder.path(), 1)).await, expected);
    cut(fifth);
    let store = open_at(folder.path(), 2);
    assert_eq!(told(&store).await, [format!("{fourth} a - \"3\""), format!("since {fifth}")]);
    assert!(store.sequencer().current() > fifth, "the newest row says where numbers go on");
}

#[tokio::test]
async fn history_on_disk_is_limited_in_bytes_under_continuous_writes() {
    const SIZE: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_history(folder.path(), 1 << 20);
    overwrite(&store, SIZE, 100).await;
    drop(store);
    let bytes = bytes_of_rows(folder.path());
    assert!(bytes > 5 * SIZE && bytes < (1 << 20) + 4 * SIZE, "{bytes}");
    // The pages of removed rows are reused. Recent pages are still in the log.
    let file = fs::metadata(folder.path().join("objects.db")).unwrap().len();
    assert!(file < 3 << 20, "{file}");
}

#[tokio::test]
async fn history_over_the_limit_is_trimmed_at_startup() {
    const SIZE: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let store = open_with_history(folder.path(), usize::MAX);
    let last = overwrite(&store, SIZE, 100).await;
    drop(store);
    assert!(bytes_of_rows(folder.path()) > 100 * SIZE);
    let store = open_with_history(folder.path(), 1 << 20);
    let told = told(&store).await;
    let changes = told.iter().skip_while(|line| !line.starts_with("since")).count() - 1;
    assert!((5..=11).contains(&changes), "{changes}");
    assert!(told.last().unwrap().starts_with(&format!("{last} a ")));
    drop(store);
    let bytes = bytes_of_rows(folder.path());
    assert!(bytes > 5 * SIZE && bytes < (1 << 20) + 4 * SIZE, "{bytes}");
    // A watch continues at the beginning of the history, and the objects are unchanged.
    let store = open_with_history(folder.path(), 1 << 20);
    let kept = store.get(&collection(), &Key::new(None, "a")).await.unwrap().unwrap();
    assert_eq!(kept.revision, last);
}

#[tokio::test]
async fn unsubscribed_readers_are_freed_and_receive_no_changes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    let reader = Arc::new(Told::default());
    store.follow(&collection(), reader.clone()).await.unwrap();
    let leaving: Arc<dyn LogReader> = reader.clone();
    store.unfollow(&collection(), &leaving);
    drop(leaving);
    assert_eq!(Arc::strong_count(&reader), 1);
    reader.0.lock().unwrap().clear();
    store.commit(write("a", Precondition::Absent, Some("1"))).await.unwrap();
    assert!(reader.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn concurrent_creates_of_one_name_succeed_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    // All writes wait before the first one is written.
    let writes = (0..200).map(|number| {
        store.commit(write(&(number % 2).to_string(), Precondition::Absent, Some("")))
    });
    let answers = futures::future::join_all(writes).await;
    let won: Vec<Revision> = answers.iter().filter_map(|answer| answer.ok()).collect();
    assert_eq!(won.len(), 2);
    assert_eq!(store.sequencer().current(), won[0].max(won[1]));
    let refused = answers.into_iter().filter_map(Result::err);
    assert!(refused.into_iter().all(|error| error == StoreError::Exists));
}

#[tokio::test]
async fn unusable_database_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    assert_eq!(refused(folder.path()), "is in use by another process");
    let revision =
        store.commit(write("a", Precondition::Absent, Some("long enough"))).await.unwrap();
    drop(store);
    let file = folder.path().join("objects.db");
    let whole = fs::read(&file).unwrap();
    let place = whole.windows(11).position(|window| window == b"long enough").unwrap();
    let mut damaged = whole.clone();
    damaged[place] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let copied = back_up(folder.path(), &folder.path().join("copy")).unwrap_err();
    let expected =
        format!("foos.example.com a at revision {revision} is damaged: it is not what was written");
    assert_eq!(copied, expected);
    assert!(!folder.path().join("copy").exists());
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(refused(folder.path()).contains("objects.db"));
    fs::write(&file, "no database, whatever it is, and long enough to be one").unwrap();
    assert_eq!(refused(folder.path()), "objects.db is not a database of SQLite");
    let other = |sql: &str| -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("objects.db");
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        (folder, file)
    };
    let (foreign, _) = other("CREATE TABLE x (y)");
    assert_eq!(refused(foreign.path()), "objects.db is a database of another program");
    let (later, _) =
        other("CREATE TABLE x (y); PRAGMA application_id = 1717662317; PRAGMA user_version = 9");
    assert_eq!(
        refused(later.path()),
        "objects.db was written by a later release in format 9, and this release reads format 1; use the later release"
    );
    fs::write(&file, whole).unwrap();
    assert!(!open_at(folder.path(), 1).is_new(), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_during_writes_can_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copied) = (folder.path().join("data"), folder.path().join("copied"));
    fs::create_dir(&copied).unwrap();
    let file = copied.join("objects.db");
    let store = Arc::new(open_at(&data, 0));
    let first = store.commit(write("first", Precondition::Absent, Some("1"))).await.unwrap();
    let end = tokio_util::sync::CancellationToken::new();
    let writing = tokio::spawn({
        let (store, end) = (Arc::clone(&store), end.clone());
        async move {
            let mut revision = first;
            for number in 2.. {
                let text = number.to_string();
                let again = write("first", Precondition::At(revision), Some(&text));
                revision = store.commit(again).await.unwrap();
                if end.is_cancelled() {
                    break;
                }
            }
            revision
        }
    });
    let made = {
        let (data, file) = (data.clone(), file.clone());
        tokio::task::spawn_blocking(move || back_up(&data, &file)).await.unwrap().unwrap()
    };
    end.cancel();
    let last = writing.await.unwrap();
    assert!(made.newest >= first && made.newest <= last, "{made:?}");
    // A copy contains the stored objects. So other users may not read it, and it does not overwrite a file.
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert!(back_up(&data, &file).unwrap_err().ends_with("objects.db is there already"));
    assert_eq!(fs::read_dir(&copied).unwrap().count(), 1, "nothing is left behind");
    let mut stream = Vec::new();
    let streamed = back_up_to(&data, &mut stream).unwrap();
    assert_eq!(streamed.newest, last);
    drop(store);

    // Later changes are lost, and a watch that has received them cannot continue.
    let restored = open_at(&copied, 100);
    let kept = restored.get(&collection(), &Key::new(None, "first")).await.unwrap().unwrap();
    assert_eq!(kept.revision, made.newest);
    assert!(restored.sequencer().may_have_issued(made.newest));
    let after = Revision::new(last.number() + 1);
    assert!(!restored.sequencer().may_have_issued(after));
    assert!(restored.sequencer().current() > after);
    let (from_stream, nothing) = (folder.path().join("stream"), folder.path().join("nothing"));
    fs::create_dir(&from_stream).unwrap();
    fs::write(from_stream.join("objects.db"), stream).unwrap();
    assert!(!open_at(&from_stream, 100).is_new());
    assert!(back_up(&nothing, &file.with_extension("new")).unwrap_err().ends_with("is not there"));
}

#[tokio::test]
async fn damaged_sqlite_objects_are_reported_as_damaged_not_as_absent() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(folder.path(), 0);
    let good = store.commit(write("good", Precondition::Absent, Some("1"))).await.unwrap();
    let once = store.commit(write("bad", Precondition::Absent, Some("before"))).await.unwrap();
    let bad = store
        .commit(write("bad", Precondition::At(once), Some("damaged on the disk")))
        .await
        .unwrap();
    let then =
        store.commit(write("mended", Precondition::Absent, Some("too, but then"))).await.unwrap();
    let last = store.commit(write("mended", Precondition::At(then), Some("2"))).await.unwrap();
    drop(store);
    let file = folder.path().join("objects.db");
    let mut content = fs::read(&file).unwrap();
    for text in ["damaged on the disk", "too, but then"] {
        let is_it = |window: &[u8]| window == text.as_bytes();
        let place = content.windows(text.len()).position(is_it).unwrap();
        content[place] ^= 1;
    }
    fs::write(&file, content).unwrap();
    let store = open_at(folder.path(), 1);
    let key = |name| Key::new(None, name);
    let kept = async |name| store.get(&collection(), &key(name)).await;
    assert_eq!(kept("good").await.unwrap().unwrap().revision, good);
    assert_eq!(kept("bad").await.unwrap_err(), StoreError::Damaged);
    assert_eq!(kept("mended").await.unwrap().unwrap().revision, last);
    for write in [
        write("bad", Precondition::Absent, Some("new")),
        write("bad", Precondition::At(bad), Some("new")),
        write("bad", Precondition::At(bad), None),
    ] {
        assert_eq!(store.commit(write).await, Err(StoreError::Damaged));
    }
    // Changes cannot be sent to watches while the object cannot be read.
    let expected = [
        "bad is damaged".to_owned(),
        format!("{good} good - \"1\""),
        format!("since {then}"),
        format!("{last} mended - \"2\""),
    ];
    assert_eq!(told(&store).await, expected);
}

fn as_it_is(_: &Collection, _: &Arc<Object>) -> Option<Arc<Object>> {
    None
}

/// Whether any file of a directory, or of a copy of it, contains this string.
fn is_shown(folder: &Path, text: &str) -> bool {
    let mut copy = Vec::new();
    back_up_to(folder, &mut copy).unwrap();
    let files = fs::read_dir(folder).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
    let shows = |bytes: Vec<u8>| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    files.chain([copy]).any(shows)
}

#[tokio::test]
async fn encrypted_sqlite_objects_are_never_plaintext_and_need_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let open = |encryption| SqliteStore::open(folder.path(), options(encryption), at(0)).unwrap();
    let store = open(with_keys(&["one"], false));
    let first = store.commit(write("a", Precondition::Absent, Some("a secret"))).await.unwrap();
    let second =
        store.commit(write("a", Precondition::At(first), Some("a secret, too"))).await.unwrap();
    let gone = store.commit(write("b", Precondition::Absent, Some("a secret"))).await.unwrap();
    store.commit(write("b", Precondition::At(gone), None)).await.unwrap();
    assert!(!is_shown(folder.path(), "a secret"), "in the log");
    drop(store);
    assert!(!is_shown(folder.path(), "a secret"), "in the file");
    for (encryption, expected) in [
        (
            Arc::default(),
            "it is encrypted with the key \"one\" of aesgcm, which is not configured for it",
        ),
        (
            with_keys(&["two"], true),
            "it is encrypted with the key \"one\" of aesgcm, which is not configured for it",
        ),
    ] {
        let expected = format!(
            "foos.example.com a at revision {first} cannot be decrypted (--encryption-provider-config): {expected}"
        );
        assert_eq!(refused_with(folder.path(), Arc::clone(&encryption)), expected);
        assert_eq!(rewrite(folder.path(), encryption, &as_it_is).unwrap_err(), expected);
    }
    let store = open(with_keys(&["two", "one"], false));
    let kept = store.get(&collection(), &Key::new(None, "a")).await.unwrap().unwrap();
    assert_eq!((kept.revision, &kept.object.to_tree()["text"]), (second, &json!("a secret, too")));
}

#[tokio::test]
async fn rewriting_a_store_encrypts_objects_and_history_with_the_first_key() {
    let folder = tempfile::tempdir().unwrap();
    let open = |encryption| SqliteStore::open(folder.path(), options(encryption), at(0)).unwrap();
    let store = open(Arc::default());
    let first = store.commit(write("a", Precondition::Absent, Some("a secret"))).await.unwrap();
    let second =
        store.commit(write("a", Precondition::At(first), Some("a secret, too"))).await.unwrap();
    let gone = store.commit(write("b", Precondition::Absent, Some("a secret"))).await.unwrap();
    store.commit(write("b", Precondition::At(gone), None)).await.unwrap();
    let past = told(&store).await;
    drop(store);
    assert!(is_shown(folder.path(), "a secret"));
    let rewrite = |encryption| rewrite(folder.path(), encryption, &as_it_is);
    let done = |rewritten| Ok(Rewritten { rewritten, all: 4, damaged: Vec::new() });
    let plain_refused = rewrite(with_keys(&["one"], false)).unwrap_err();
    assert!(
        plain_refused.ends_with("it is not encrypted, and identity is not among its providers")
    );
    assert!(is_shown(folder.path(), "a secret"), "nothing was written");
    assert_eq!(rewrite(with_keys(&["one"], true)), done(3));
    assert!(!is_shown(folder.path(), "a secret"));
    assert_eq!(rewrite(with_keys(&["one"], true)), done(0));
    assert_eq!(rewrite(with_keys(&["two", "one"], false)), done(3));
    assert_eq!(rewrite(with_keys(&["two"], false)), done(0));
    // The objects are the same, with their revisions and their history.
    let store = open(with_keys(&["two"], false));
    assert_eq!(told(&store).await, past);
    let kept = store.get(&collection(), &Key::new(None, "a")).await.unwrap().unwrap();
    assert_eq!(kept.revision, second);
    let in_use = rewrite(with_keys(&["two"], false)).unwrap_err();
    assert_eq!(in_use, "is in use by another process");
}

#[cfg(feature = "kms")]
#[tokio::test]
async fn a_store_encrypted_by_kms_needs_the_plugin_at_startup() {
    use crate::encryption::kms::tests::{TestPlugin, confirm, expire};
    let folder = tempfile::tempdir().unwrap();
    let open = |encryption: &Arc<Encryption>| {
        SqliteStore::open(folder.path(), options(Arc::clone(encryption)), at(0)).unwrap()
    };
    let plugin = TestPlugin::start();
    let encryption = plugin.encryption(false);
    let store = open(&encryption);
    let first = store.commit(write("a", Precondition::Absent, Some("a secret"))).await.unwrap();
    // After the plugin has failed for too long, nothing is written, in particular no plain value. The process
    // continues.
    expire(&encryption);
    let refused = store.commit(write("b", Precondition::Absent, Some("a secret"))).await;
    assert_eq!(refused, Err(StoreError::Unavailable));
    let removed = store.commit(write("a", Precondition::At(first), None)).await;
    assert!(removed.is_ok(), "a removal needs no key");
    confirm(&encryption);
    store.commit(write("b", Precondition::Absent, Some("a secret"))).await.unwrap();
    drop(store);
    assert!(!is_shown(folder.path(), "a secret"));
    // The next process has the plugin decrypt the seed of this one. It encrypts with another key.
    plugin.set_key("second");
    let next = plugin.encryption(false);
    let store = open(&next);
    let kept = store.get(&collection(), &Key::new(None, "b")).await.unwrap().unwrap();
    assert_eq!(kept.object.to_tree()["text"], json!("a secret"));
    drop(store);
    let rewritten = rewrite(folder.path(), Arc::clone(&next), &as_it_is).unwrap();
    assert_eq!((rewritten.rewritten, rewritten.all), (2, 3));
    assert_eq!(rewrite(folder.path(), next, &as_it_is).unwrap().rewritten, 0);
    // Without the plugin no store opens, and the message contains its name.
    let last = plugin.encryption(false);
    plugin.set_healthz("locked");
    let refused = refused_with(folder.path(), last);
    let expected = format!(
        "foos.example.com a at revision {first} cannot be decrypted (--encryption-provider-config): it is encrypted by the KMS plugin \"test\": Decrypt: locked"
    );
    assert_eq!(refused, expected);
}
