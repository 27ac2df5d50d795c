//! Servers with a shared store, for tests of their interaction.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::serving::ClusterClient;
use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, Revision, Shelves, Store, StoreError, Timeline, Versioned,
};
use aggregated_apiserver::{ApiServer, InProcess};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use rcgen::KeyPair;

use crate::built_in;
use crate::controllers::definitions::Definitions;
use crate::service_account_tokens::ServiceAccountTokens;
use crate::test_server::admin;

/// A store that several servers write to. Each server opens it as a new store.
struct SharedStore {
    timeline: Arc<Timeline>,
    shelves: Mutex<Shelves>,
}

impl SharedStore {
    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.timeline.publish(|revision| {
            let mut shelves = self.shelves.lock().unwrap();
            let kept = shelves.get(&commit.collection, &commit.key)?.cloned();
            shelves.take_room(&commit, kept.as_ref())?;
            shelves.keep(revision, commit);
            Ok(revision)
        })
    }
}

impl Store for SharedStore {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self.shelves.lock().unwrap().get(collection, key).map(|kept| kept.cloned());
        Box::pin(async move { kept })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        let written = self.write(commit);
        Box::pin(async move { written })
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shelves.lock().unwrap().follow(collection, reader);
        Box::pin(async { Ok(()) })
    }

    fn collections(&self) -> Vec<Collection> {
        self.shelves.lock().unwrap().collections()
    }

    fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.timeline)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A new store for several servers.
pub(crate) fn shared_store() -> Arc<dyn Store> {
    let mut shelves = Shelves::new(1 << 24, NamespaceLimit::WHOLE);
    let timeline = Arc::new(Timeline::continuing(Vec::new(), 41));
    shelves.begin_past(timeline.current());
    Arc::new(SharedStore { timeline, shelves: Mutex::new(shelves) })
}

/// A server of a shared store. None of its controllers is started automatically.
pub(crate) struct Member {
    pub client: Client,
    pub kinds: RuntimeKinds,
    pub definitions: Definitions,
    _server: InProcess,
}

impl Member {
    pub(crate) async fn start(store: &Arc<dyn Store>) -> Self {
        let accounts = ServiceAccountTokens::new(&KeyPair::generate().unwrap()).unwrap();
        let kinds = built_in::kinds(&accounts, built_in::PodSecurityConfiguration::default());
        let kinds = kinds.unwrap().kind(built_in::events().unwrap());
        let server = ApiServer::new("member", kinds).with_store(Arc::clone(store));
        let server = server.in_process(ClusterClient::Loopback).await.unwrap();
        let (client, kinds) = (server.client(admin()), server.runtime_kinds());
        accounts.set_objects(kinds.clone());
        let now = Arc::new(Timestamp::now);
        let definitions = Definitions::new(client.clone(), kinds.clone(), now);
        Self { client, kinds, definitions, _server: server }
    }
}
