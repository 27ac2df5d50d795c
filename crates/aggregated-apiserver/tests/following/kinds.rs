//! The same kind of objects as a stored, a virtual and a computed kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Delete, Item, Listing, Poll, Update, VirtualKind, WriteContext,
};
use aggregated_apiserver::store::{NamespaceLimit, RevisionSequencer, Store};
use aggregated_apiserver::{Computed, InProcess, Kind, Kinds, Stored, Visibility};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
#[cfg(feature = "sqlite")]
use k8s_openapi::jiff::Timestamp;
use kube::{CustomResourceExt, ResourceExt};
use kubernetes_storage::MemoryStore;
use serde_json::{Value, json};
use test_server::{FakeCluster, admin, api_server, ask_as, permissive_cluster};
use tokio::sync::watch as channel;

use crate::{NOTES, Note, NoteSpec, Teams, visibility};

const CONFIG_MAPS: &str = "/api/v1/configmaps";

impl Stored for Note {}

impl Computed for Note {
    type Source = ConfigMap;
    type Related = ();

    fn compute(source: &ConfigMap, (): &()) -> Option<Self> {
        let data = source.data.as_ref()?;
        let spec =
            NoteSpec { team: data.get("team")?.clone(), step: data.get("step")?.parse().ok()? };
        let mut note = Self::new(source.metadata.name.as_deref()?, spec);
        note.metadata.labels.clone_from(&source.metadata.labels);
        Some(note)
    }

    fn visibility() -> Visibility<Self> {
        Visibility::everything()
    }
}

/// A backend with notes.
#[derive(Default)]
struct Table(Mutex<BTreeMap<String, Note>>);

impl Backend for Table {
    type Object = Note;
}

impl Poll for Table {
    async fn list(&self) -> Result<Listing<Note>, BackendError> {
        Ok(Listing::complete(self.0.lock().unwrap().values().cloned().map(Item::new)))
    }
}

impl Create for Table {
    async fn create(&self, _: &WriteContext, note: Note) -> Result<Item<Note>, BackendError> {
        self.0.lock().unwrap().insert(note.name_any(), note.clone());
        Ok(Item::new(note))
    }
}

impl Update for Table {
    async fn update(
        &self,
        _: &WriteContext,
        _: Item<Note>,
        note: Note,
    ) -> Result<Item<Note>, BackendError> {
        self.0.lock().unwrap().insert(note.name_any(), note.clone());
        Ok(Item::new(note))
    }
}

impl Delete for Table {
    async fn delete(&self, _: &WriteContext, old: Item<Note>) -> Result<(), BackendError> {
        self.0.lock().unwrap().remove(&old.object.name_any());
        Ok(())
    }
}

/// The backend of the notes.
#[derive(Clone, Copy, Debug)]
pub enum Sort {
    /// A store with the revisions of the process.
    Stored,
    /// A store with revisions of its own.
    OwnRevisions,
    /// A store on a disk.
    #[cfg(feature = "sqlite")]
    Sqlite,
    Virtual,
    Computed,
}

pub const SORTS: &[Sort] = &[
    Sort::Stored,
    Sort::OwnRevisions,
    #[cfg(feature = "sqlite")]
    Sort::Sqlite,
    Sort::Virtual,
    Sort::Computed,
];

/// A server of notes.
pub struct World {
    pub server: InProcess,
    cluster: Option<FakeCluster>,
    versions: Mutex<u64>,
    names: Mutex<BTreeMap<String, Value>>,
    _directory: Option<tempfile::TempDir>,
}

/// A store that several servers share.
pub fn shared_store() -> Arc<dyn Store> {
    let sequencer = Arc::new(RevisionSequencer::shared());
    Arc::new(MemoryStore::new(64 << 20, sequencer, NamespaceLimit::WHOLE))
}

pub async fn stored(store: Arc<dyn Store>, state: channel::Receiver<Teams>) -> World {
    let kinds = Kinds::new().kind(Kind::stored::<Note>().visibility(visibility(state)));
    let server = api_server(kinds).with_store(store);
    World::new(server.in_process(permissive_cluster()).await.unwrap(), None).await
}

impl World {
    async fn new(server: InProcess, cluster: Option<FakeCluster>) -> Self {
        server.wait_synced().await;
        Self { server, cluster, versions: Mutex::new(2), names: Mutex::default(), _directory: None }
    }

    pub async fn start(sort: Sort, state: channel::Receiver<Teams>) -> Self {
        let visibility = visibility(state.clone());
        let (kind, cluster) = match sort {
            Sort::OwnRevisions => return stored(shared_store(), state).await,
            #[cfg(feature = "sqlite")]
            Sort::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let options = kubernetes_storage::StoreOptions {
                    limit: 64 << 20,
                    history: 1 << 20,
                    queue: 1 << 20,
                    share: NamespaceLimit::WHOLE,
                    encryption: Arc::default(),
                };
                let now = Timestamp::now();
                let store = kubernetes_storage::open(directory.path(), options, now).unwrap();
                let mut world = stored(store, state).await;
                world._directory = Some(directory);
                return world;
            }
            Sort::Stored => (Kind::stored::<Note>(), None),
            Sort::Virtual => {
                let table = Arc::new(Table::default());
                let kind = VirtualKind::polled(Note::crd(), table, Duration::from_millis(100));
                (kind.create().update().delete().into(), None)
            }
            Sort::Computed => {
                let cluster = FakeCluster::without_objects(CONFIG_MAPS);
                (Kind::computed::<Note>(), Some(cluster))
            }
        };
        let server = api_server(Kinds::new().kind(kind.visibility(visibility)));
        let client = cluster.as_ref().map_or_else(permissive_cluster, FakeCluster::client);
        Self::new(server.in_process(client).await.unwrap(), cluster).await
    }

    /// Creates or changes a note.
    pub async fn put(&self, name: &str, team: &str, label: &str, step: usize) {
        let labels = json!({"x": label});
        if let Some(cluster) = &self.cluster {
            let version = self.next_version();
            let object = json!({
                "metadata": {
                    "name": name, "namespace": "n", "uid": name, "resourceVersion": version,
                    "labels": labels,
                },
                "data": {"team": team, "step": step.to_string()},
            });
            let before = self.names.lock().unwrap().insert(name.to_owned(), object.clone());
            let event = if before.is_some() { "MODIFIED" } else { "ADDED" };
            return cluster.tell(CONFIG_MAPS, event, &object);
        }
        let note = json!({
            "apiVersion": "example.com/v1", "kind": "Note",
            "metadata": {"name": name, "namespace": "n", "labels": labels},
            "spec": {"team": team, "step": step},
        });
        let (status, answer) = ask_as(&self.server, admin(), Method::POST, NOTES, &note).await;
        if status != 409 {
            assert_eq!(status, 201, "{answer}");
            return;
        }
        let path = format!("{NOTES}/{name}");
        let mut live = ask_as(&self.server, admin(), Method::GET, &path, &Value::Null).await.1;
        live["spec"] = note["spec"].clone();
        live["metadata"]["labels"] = labels;
        let (status, answer) = ask_as(&self.server, admin(), Method::PUT, &path, &live).await;
        assert_eq!(status, 200, "{answer}");
    }

    pub async fn delete(&self, name: &str) {
        match &self.cluster {
            Some(cluster) => {
                let before = self.names.lock().unwrap().remove(name);
                if let Some(mut before) = before {
                    before["metadata"]["resourceVersion"] = self.next_version().into();
                    cluster.tell(CONFIG_MAPS, "DELETED", &before);
                }
            }
            None => {
                let path = format!("{NOTES}/{name}");
                ask_as(&self.server, admin(), Method::DELETE, &path, &Value::Null).await;
            }
        }
    }

    fn next_version(&self) -> String {
        let mut version = self.versions.lock().unwrap();
        *version += 1;
        version.to_string()
    }
}
