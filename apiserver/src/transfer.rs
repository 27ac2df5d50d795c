//! All objects of a store as lines of text, and back: from one store to another.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use crate::error::StartError;
use crate::object::{Key, Object, Shape};
use crate::server::EtcdArgs;
use crate::storage::{
    self, Collection, Commit, Expected, LogEntry, LogReader, NamespaceShare, Store, StoreError,
};

/// How long a store in etcd may take until it is known what is in it.
const KNOWN: Duration = Duration::from_secs(60);
/// A server says what it takes; here all there is has room.
const ROOM: usize = usize::MAX >> 8;

/// Which store is read or written, while no server keeps its objects in that folder.
#[derive(Clone, Debug, clap::Args)]
pub struct TransferOptions {
    /// The folder in which a server keeps its objects; it must not run
    #[arg(long, value_name = "FOLDER", env = "DATA_DIR", required_unless_present = "etcd_servers")]
    pub data_dir: Option<PathBuf>,

    /// Or where etcd is.
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

/// An object, a line.
#[derive(Deserialize, Serialize)]
struct Line {
    collection: String,
    object: Value,
}

impl TransferOptions {
    /// Writes every object that a server of this name keeps, a line of JSON each, in the order in which
    /// they were written last. Answers with a line that says how many.
    ///
    /// # Errors
    /// When the store cannot be read, or something in it cannot: the rest is written all the same.
    pub async fn export(&self, name: &str, mut out: impl Write) -> Result<String, StartError> {
        let failed = |why: String| StartError::Transfer(format!("not all was exported: {why}"));
        let store = self.open(name).await?;
        let mut kept = Kept::default();
        for collection in store.collections() {
            let reader = Arc::new(Taken::default());
            let followed = store.follow(&collection, reader.clone()).await;
            followed.map_err(|error| failed(error.to_string()))?;
            kept.add(&collection, &reader);
        }
        kept.objects.sort_by_key(|(entry, _)| entry.revision);
        for (entry, collection) in &kept.objects {
            let Some(object) = &entry.object else { continue };
            let object = Value::Object(object.to_tree());
            let line = Line { collection: collection.to_string(), object };
            let line = serde_json::to_string(&line).map_err(|error| failed(error.to_string()))?;
            writeln!(out, "{line}").map_err(|error| failed(error.to_string()))?;
        }
        out.flush().map_err(|error| failed(error.to_string()))?;
        if !kept.damaged.is_empty() {
            return Err(failed(format!("damaged are {}", kept.damaged.join(", "))));
        }
        Ok(format!("{} objects", kept.objects.len()))
    }

    /// Keeps every object that was [exported](Self::export), with its uid, unless there is one of its name.
    /// Answers with a line that says how many.
    ///
    /// # Errors
    /// When the store cannot be written, or a line is none of an export: those before it are kept.
    pub async fn import(&self, name: &str, lines: impl BufRead) -> Result<String, StartError> {
        let store = self.open(name).await?;
        let (mut count, mut there) = (0, 0);
        for (index, line) in lines.lines().enumerate() {
            let failed = |why: String| {
                StartError::Transfer(format!("line {} was not imported: {why}", index + 1))
            };
            let line = line.map_err(|error| failed(error.to_string()))?;
            let commit = commit(&line).map_err(failed)?;
            match store.commit(commit).await {
                Ok(_) => count += 1,
                Err(StoreError::Exists) => there += 1,
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        let noted = store.note_begun().await;
        noted.map_err(|error| StartError::Transfer(error.to_string()))?;
        Ok(format!("{count} objects; {there} of the same names were there already"))
    }

    async fn open(&self, name: &str) -> Result<Arc<dyn Store>, StartError> {
        let limits = (ROOM, NamespaceShare::WHOLE);
        if let Some(etcd) = self.etcd.options(name) {
            let store = storage::open_etcd(etcd, limits).map_err(StartError::Etcd)?;
            return tokio::select! {
                known = timeout(KNOWN, store.known()) => match known {
                    Ok(()) => Ok(Arc::clone(&store)),
                    Err(_) => Err(StartError::Store(store.trouble().unwrap_or_default())),
                },
                why = store.failed() => Err(StartError::Store(why)),
            };
        }
        let Some(folder) = &self.data_dir else {
            let why = "neither --data-dir nor --etcd-servers says where objects are";
            return Err(StartError::Transfer(why.to_owned()));
        };
        let opened = storage::open(folder, limits, Timestamp::now());
        opened.map_err(|why| StartError::file("data-dir", folder, why))
    }
}

/// What a line says is to be kept.
fn commit(line: &str) -> Result<Commit, String> {
    let Line { collection, object } =
        serde_json::from_str(line).map_err(|error| format!("it is none of an export: {error}"))?;
    let Value::Object(tree) = object else { return Err("it holds no object".to_owned()) };
    let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
    if object.key().name().is_empty() || collection.is_empty() || collection.contains('/') {
        return Err("it names no object".to_owned());
    }
    // Which definition it was written by nobody knows here.
    let object = object.of_shape(Shape::of_another_server());
    Ok(Commit {
        collection: Collection::new(&collection),
        key: object.key().clone(),
        expected: Expected::Absent,
        object: Some(Arc::new(object)),
        marks: false,
    })
}

/// What there is, of all collections.
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

/// What a collection holds.
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
