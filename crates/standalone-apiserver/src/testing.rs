//! Servers with a shared store, for tests of their interaction.

use std::sync::{Arc, Mutex};

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::serving::ClusterClient;
use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, ObjectIndex, Revision, RevisionSequencer, Store,
    StoreError, Versioned,
};
use aggregated_apiserver::{ApiServer, InProcess};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use rcgen::KeyPair;

use crate::built_in;
use crate::controllers::definitions::Definitions;
use crate::pods::PodHandlers;
use crate::service_account_tokens::ServiceAccountTokens;
use crate::test_server::admin;

/// A store that several servers write to. Each server opens it as a new store.
struct SharedStore {
    sequencer: Arc<RevisionSequencer>,
    index: Mutex<ObjectIndex>,
}

impl SharedStore {
    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequencer.publish(|revision| {
            let mut index = self.index.lock().unwrap();
            let kept = index.get(&commit.collection, &commit.key)?.cloned();
            index.take_room(&commit, kept.as_ref())?;
            index.keep(revision, commit);
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
        let kept = self.index.lock().unwrap().get(collection, key).map(|kept| kept.cloned());
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
        self.index.lock().unwrap().follow(collection, reader);
        Box::pin(async { Ok(()) })
    }

    fn collections(&self) -> Vec<Collection> {
        self.index.lock().unwrap().collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A new store for several servers.
pub(crate) fn shared_store() -> Arc<dyn Store> {
    let mut index = ObjectIndex::new(1 << 24, NamespaceLimit::WHOLE);
    let sequencer = Arc::new(RevisionSequencer::continuing(Vec::new(), 41));
    index.begin_past(sequencer.current());
    Arc::new(SharedStore { sequencer, index: Mutex::new(index) })
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
        let kinds = built_in::kinds(
            &accounts,
            built_in::PodSecurityConfiguration::default(),
            PodHandlers::default(),
        );
        let kinds = kinds.unwrap().merge(built_in::views().unwrap());
        let server = ApiServer::new("member", kinds).with_store(Arc::clone(store));
        let server = server.in_process(ClusterClient::Loopback).await.unwrap();
        let (client, kinds) = (server.client(admin()), server.runtime_kinds());
        accounts.set_objects(kinds.clone());
        let now = Arc::new(Timestamp::now);
        let definitions = Definitions::new(client.clone(), kinds.clone(), now);
        Self { client, kinds, definitions, _server: server }
    }
}
