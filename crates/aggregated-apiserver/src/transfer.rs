//! Export, import and migration: all objects of a store as lines of JSON, and back into another store.

mod renewal;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use self::renewal::Renewal;
use crate::error::StartError;
use crate::object::{Key, Object, Shape};
use crate::progress::Progress;
use crate::served_kind::Marker;
use crate::server::{ApiServer, EtcdArgs, encryption};
use crate::storage::{
    self, Collection, Commit, Encryption, LogEntry, LogReader, NamespaceLimit, Precondition,
    Rewritten, Store, StoreError, StoreOptions,
};

/// The number of objects that are written to a store concurrently.
const AT_ONCE: usize = 64;
/// The largest time that a store in etcd may take to load its objects.
const KNOWN: Duration = Duration::from_secs(60);
/// The memory limit of the store. A server has its own limits; here the memory is not limited.
const ROOM: usize = usize::MAX >> 8;
/// The history that remains in a directory, in bytes: same as a server with enough memory.
const HISTORY: usize = 16 << 20;
const QUEUE: usize = 16 << 20;

/// The store that a command reads or writes. A server may not use the directory at the same time.
#[derive(Clone, Debug, clap::Args)]
pub struct TransferOptions {
    /// Directory of a server's database; the server must be stopped
    #[arg(long, value_name = "DIR", env = "DATA_DIR", required_unless_present = "etcd_servers")]
    pub data_dir: Option<PathBuf>,

    /// The flags of the store in etcd.
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// EncryptionConfiguration of the server
    #[arg(long, value_name = "FILE", env = "ENCRYPTION_PROVIDER_CONFIG")]
    pub encryption_provider_config: Option<PathBuf>,
}

/// A line with one object.
#[derive(Deserialize, Serialize)]
struct Line {
    collection: String,
    object: Value,
}

impl TransferOptions {
    /// Writes all objects that a server of this name stores as lines of JSON, in the order of their last writes.
    /// Returns a line with their number.
    ///
    /// # Errors
    /// The reason, if the store or an object in it cannot be read. The other objects are written nevertheless.
    pub async fn export(&self, name: &str, mut out: impl Write) -> Result<String, StartError> {
        let failed = |why: String| StartError::Transfer(format!("the export is incomplete: {why}"));
        let store = self.open(name).await?;
        let mut kept = Kept::default();
        let collections = store.collections().into_iter();
        for collection in collections.filter(|collection| !Marker::are_in(collection)) {
            let reader = Arc::new(Taken::default());
            let followed = store.follow(&collection, reader.clone()).await;
            followed.map_err(|error| failed(error.to_string()))?;
            kept.add(&collection, &reader);
        }
        kept.objects.sort_by_key(|(entry, _)| entry.revision);
        let progress = Progress::counting_to(kept.objects.len(), "exporting");
        for (entry, collection) in &kept.objects {
            let Some(object) = &entry.object else { continue };
            let object = Value::Object(object.to_tree());
            let line = Line { collection: collection.to_string(), object };
            let line = serde_json::to_string(&line).map_err(|error| failed(error.to_string()))?;
            writeln!(out, "{line}").map_err(|error| failed(error.to_string()))?;
            progress.advance();
        }
        out.flush().map_err(|error| failed(error.to_string()))?;
        if !kept.damaged.is_empty() {
            return Err(failed(format!("these objects are damaged: {}", kept.damaged.join(", "))));
        }
        Ok(format!("{} objects", kept.objects.len()))
    }

    /// Stores all objects that were [exported](Self::export), with their uids. Objects are skipped if an object of the
    /// same name exists already. Returns a line with the numbers of both.
    ///
    /// # Errors
    /// The reason, if the store cannot be written, or if a line is not from an export. The lines before it are stored,
    /// and some lines after it may be stored, too.
    pub async fn import(&self, name: &str, lines: impl BufRead) -> Result<String, StartError> {
        let store = self.open(name).await?;
        let written = stream::iter(lines.lines().enumerate()).map(async |(index, line)| {
            let failed = |why: String| {
                StartError::Transfer(format!("line {} cannot be imported: {why}", index + 1))
            };
            let line = line.map_err(|error| failed(error.to_string()))?;
            match store.commit(commit(&line).map_err(failed)?).await {
                Ok(_) => Ok(true),
                Err(StoreError::Exists) => Ok(false),
                Err(error) => Err(failed(error.to_string())),
            }
        });
        let progress = Progress::counting("importing");
        let (mut count, mut there) = (0, 0);
        let mut written = pin!(written.buffered(AT_ONCE));
        while let Some(is_new) = written.try_next().await? {
            if is_new {
                count += 1;
            } else {
                there += 1;
            }
            progress.advance();
        }
        let noted = store.note_begun().await;
        noted.map_err(|error| StartError::Transfer(error.to_string()))?;
        Ok(format!("{count} objects; {there} with the same names existed already"))
    }

    /// Rewrites all objects that are stored in another form than the server would use now: without encryption, with
    /// another key, or, for kinds that the program registers, in another version than the storage version. In a
    /// directory, revisions do not change, and no server may use the directory. In etcd, servers may keep running, and
    /// a rewritten object gets a new revision. Returns a line with the numbers of objects.
    ///
    /// # Errors
    /// The reason, if the store cannot be used, if an object cannot be read or converted, or if its version is unknown
    /// here. The other objects are rewritten nevertheless, unless a key is missing.
    pub async fn migrate(&self, server: &ApiServer) -> Result<String, StartError> {
        let encryption = self.encryption()?;
        let renewal = Renewal::new(server.stored_kinds()?);
        let progress = Progress::counting("migrating");
        let renewed = |collection: &Collection, object: &Arc<Object>| {
            progress.advance();
            renewal.of(collection, object)
        };
        let rewritten = if let Some(etcd) = self.etcd.options(server.name()) {
            let rewritten = storage::rewrite_etcd(&etcd, encryption, &renewed).await;
            rewritten.map_err(StartError::Etcd)?
        } else {
            let folder = self.folder()?;
            let rewritten = storage::rewrite(folder, encryption, &renewed);
            rewritten.map_err(|why| StartError::file("data-dir", folder, why))?
        };
        drop(progress);
        let Rewritten { rewritten, all, damaged } = rewritten;
        let said = format!("{rewritten} of {all}");
        renewal.report(said, damaged).map_err(StartError::Transfer)
    }

    fn encryption(&self) -> Result<Arc<Encryption>, StartError> {
        encryption(self.encryption_provider_config.as_deref())
    }

    fn folder(&self) -> Result<&Path, StartError> {
        self.data_dir.as_deref().ok_or_else(|| {
            let why = "set --data-dir or --etcd-servers: one of them must name the store";
            StartError::Transfer(why.to_owned())
        })
    }

    async fn open(&self, name: &str) -> Result<Arc<dyn Store>, StartError> {
        let encryption = self.encryption()?;
        let share = NamespaceLimit::WHOLE;
        let options =
            StoreOptions { limit: ROOM, history: HISTORY, queue: QUEUE, share, encryption };
        if let Some(etcd) = self.etcd.options(name) {
            let store = storage::open_etcd(&etcd, options).map_err(StartError::Etcd)?;
            return tokio::select! {
                known = timeout(KNOWN, store.known()) => match known {
                    Ok(()) => Ok(Arc::clone(&store)),
                    Err(_) => {
                        let unknown = || "it does not answer".to_owned();
                        Err(StartError::Store(store.trouble().unwrap_or_else(unknown)))
                    }
                },
                why = store.failed() => Err(StartError::Store(why)),
            };
        }
        let folder = self.folder()?;
        let opened = storage::open(folder, options, Timestamp::now());
        opened.map_err(|why| StartError::file("data-dir", folder, why))
    }
}

/// The commit for a line.
fn commit(line: &str) -> Result<Commit, String> {
    let Line { collection, object } = serde_json::from_str(line)
        .map_err(|error| format!("it is not a line of an export: {error}"))?;
    let Value::Object(tree) = object else {
        return Err("its object is not a JSON object".to_owned());
    };
    let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
    if object.key().name().is_empty() || collection.is_empty() || collection.contains('/') {
        return Err("its object has no name, or its collection is invalid".to_owned());
    }
    // The definition by which the object was written is unknown here.
    let object = object.of_shape(Shape::of_another_server());
    Ok(Commit {
        collection: Collection::new(&collection),
        key: object.key().clone(),
        expected: Precondition::Absent,
        object: Some(Arc::new(object)),
        marks: false,
    })
}

/// The objects of all collections.
#[derive(Default)]
struct Kept {
    objects: Vec<(LogEntry, Collection)>,
    damaged: Vec<String>,
}

impl Kept {
    fn add(&mut self, collection: &Collection, taken: &Taken) {
        let mut taken = taken.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (objects, damaged) = std::mem::take(&mut *taken);
        self.objects.extend(objects.into_values().map(|entry| (entry, collection.clone())));
        self.damaged.extend(damaged.iter().map(|key| format!("{collection} {key}")));
    }
}

type Objects = std::collections::HashMap<Key, LogEntry>;

/// The objects of one collection.
#[derive(Default)]
struct Taken(Mutex<(Objects, Vec<Key>)>);

impl LogReader for Taken {
    fn damage(&self, key: Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.push(key);
    }

    fn append(&self, entry: LogEntry) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.object {
            Some(_) => drop(taken.0.insert(entry.key.clone(), entry)),
            None => drop(taken.0.remove(&entry.key)),
        }
    }
}
