//! A server with a store that the program implements.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::sync::{Arc, Mutex};

use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::store::{
    Collection, Commit, Key, LogReader, ObjectIndex, Revision, RevisionSequencer, Store,
    StoreError, Versioned,
};
use aggregated_apiserver::{ApiServer, InProcess, Kinds, ServeArgs};
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::{Value, json};
use test_server::{ask, server_with_store};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: foos, kind: Foo}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const FOOS: &str = "/apis/example.com/v1/foos";

/// A store whose next error is set by the test.
struct Told {
    sequencer: Arc<RevisionSequencer>,
    object_index: Mutex<ObjectIndex>,
    /// The error of the next writes.
    error: Mutex<Option<StoreError>>,
}

impl Told {
    fn new() -> Arc<Self> {
        let mut object_index = ObjectIndex::new(1 << 20, NamespaceLimit::WHOLE);
        let sequencer = Arc::new(RevisionSequencer::continuing(Vec::new(), 41));
        object_index.begin_past(sequencer.current());
        let (object_index, error) = (Mutex::new(object_index), Mutex::default());
        Arc::new(Self { sequencer, object_index, error })
    }

    fn write(&self, commit: Commit) -> Result<Revision, StoreError> {
        self.sequencer.publish(|revision| {
            let mut object_index = self.object_index.lock().unwrap();
            let kept = object_index.get(&commit.collection, &commit.key)?.cloned();
            object_index.take_room(&commit, kept.as_ref())?;
            if let Some(error) = *self.error.lock().unwrap() {
                object_index.give_back(&commit, kept.as_ref());
                return Err(error);
            }
            object_index.keep(revision, commit);
            Ok(revision)
        })
    }
}

impl Store for Told {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        let kept = self.object_index.lock().unwrap().get(collection, key).map(|kept| kept.cloned());
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
        self.object_index.lock().unwrap().follow(collection, reader);
        Box::pin(async { Ok(()) })
    }

    fn collections(&self) -> Vec<Collection> {
        self.object_index.lock().unwrap().collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        Arc::clone(&self.sequencer)
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

async fn server(store: &Arc<Told>) -> InProcess {
    let kinds = Kinds::new().crds_from_yaml(DEFINITION).unwrap();
    server_with_store(kinds, Arc::clone(store) as Arc<dyn Store>).await
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}})
}

#[tokio::test]
async fn a_custom_store_preserves_objects_across_servers() {
    let store = Told::new();
    let first = server(&store).await;
    let (status, created) = ask(&first, "POST", FOOS, &foo("a")).await;
    assert_eq!(
        (status, &created["metadata"]["resourceVersion"]),
        (StatusCode::CREATED, &json!("42"))
    );
    let (_, taken) = ask(&first, "POST", FOOS, &foo("a")).await;
    assert_eq!(taken["reason"], "AlreadyExists");
    drop(first);
    // Another server with the same store finds the existing objects.
    let second = server(&store).await;
    let (_, list) = ask(&second, "GET", FOOS, &Value::Null).await;
    assert_eq!(
        (list["items"][0]["metadata"]["name"].as_str(), list["items"].as_array().unwrap().len()),
        (Some("a"), 1)
    );
    assert_eq!(list["metadata"]["resourceVersion"], "42");
    assert_eq!(list["items"][0]["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test]
async fn store_errors_are_mapped_to_http_status_codes() {
    let store = Told::new();
    let server = server(&store).await;
    for (error, expected) in [
        (StoreError::Unavailable, 503),
        (StoreError::Unknown, 504),
        (StoreError::TooLarge, 413),
        (StoreError::NoDiskSpace, 507),
        (StoreError::Damaged, 500),
    ] {
        *store.error.lock().unwrap() = Some(error);
        let (status, answer) = ask(&server, "POST", FOOS, &foo("a")).await;
        assert_eq!(status, expected, "{error:?}: {answer}");
        *store.error.lock().unwrap() = None;
    }
    let (status, _) = ask(&server, "POST", FOOS, &foo("a")).await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn store_flags_are_rejected_with_a_custom_store() {
    let folder = std::path::PathBuf::from("/nowhere");
    let data_dir = with(|args| args.data_dir = Some(folder.clone()));
    let etcd = with(|args| args.etcd.etcd_servers = vec!["http://127.0.0.1:1".to_owned()]);
    let encryption = with(|args| args.encryption_provider_config = Some(folder.clone()));
    for (args, flag) in [
        (data_dir, "--data-dir"),
        (etcd, "--etcd-servers"),
        (encryption, "--encryption-provider-config"),
    ] {
        let kinds = Kinds::new().crds_from_yaml(DEFINITION).unwrap();
        let server = ApiServer::new("foos", kinds).with_store(Told::new());
        let refused = server.bind_without_cluster(&args).err().unwrap().to_string();
        let why = "cannot be used, because this program has its own store; remove the flag";
        assert_eq!(refused, format!("{flag} {why}"));
    }
}

fn with(change: impl FnOnce(&mut ServeArgs)) -> ServeArgs {
    let mut args = ServeArgs::default();
    change(&mut args);
    args
}
