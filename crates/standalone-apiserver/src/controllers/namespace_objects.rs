//! Creates the objects that each namespace of a cluster has: the ServiceAccount `default` and the ConfigMap
//! `kube-root-ca.crt`. Both are created again when they are deleted.
//!
//! Not a `kube::runtime::Controller`, because only a deletion of these objects matters, and a `Controller` would try to
//! create them whenever one is created or changed.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::stream::{StreamExt, select_all};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, PartialObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The field manager of these objects in a cluster.
const MANAGER: &str = "kube-controller-manager";
const ACCOUNT: &str = "default";
const CA: &str = "kube-root-ca.crt";
/// The pause before a failure is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runs the controller. `ca` is the CA of the API server, in PEM.
pub(crate) async fn run(client: Client, ca: String) {
    let mut changes = select_all([
        namespaces(&client),
        deletions::<ServiceAccount>(&client, ACCOUNT),
        deletions::<ConfigMap>(&client, CA),
    ]);
    let mut failed: VecDeque<String> = VecDeque::new();
    loop {
        let namespace = tokio::select! {
            changed = changes.next() => match changed {
                Some(namespace) => namespace,
                None => return,
            },
            () = tokio::time::sleep(RETRY_AFTER), if !failed.is_empty() => {
                let Some(namespace) = failed.pop_front() else { continue };
                namespace
            }
        };
        if let Err(error) = create_missing(&client, &namespace, &ca).await {
            tracing::debug!("namespace {namespace}: {error}");
            if !failed.contains(&namespace) {
                failed.push_back(namespace);
            }
        }
    }
}

/// The names of namespaces that were created or changed, and are not being deleted.
fn namespaces(client: &Client) -> BoxStream<'static, String> {
    let all: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let changes = watcher(all, watcher::Config::default());
    let changes = changes.default_backoff().applied_objects();
    let active = changes.filter_map(async |change| {
        let namespace = change.ok()?;
        namespace.metadata.deletion_timestamp.is_none().then(|| namespace.name_any())
    });
    active.boxed()
}

/// The names of namespaces in which the object of this name was deleted.
fn deletions<K>(client: &Client, name: &str) -> BoxStream<'static, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let all: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(all, named).default_backoff();
    let deleted = changes.filter_map(async |change| match change {
        Ok(watcher::Event::Delete(object)) => object.namespace(),
        _ => None,
    });
    deleted.boxed()
}

/// Creates the missing objects of a namespace, unless the namespace is being deleted or does not exist.
async fn create_missing(client: &Client, namespace: &str, ca: &str) -> kube::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let live = namespaces.get_opt(namespace).await?;
    if live.is_none_or(|live| live.metadata.deletion_timestamp.is_some()) {
        return Ok(());
    }
    let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let account = json!({"metadata": {"name": ACCOUNT}});
    let account = serde_json::from_value(account).map_err(kube::Error::SerdeError)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    unless_refused(accounts.create(&post, &account).await)?;
    let map = json!({
        "metadata": {"name": CA, "annotations": {"kubernetes.io/description": "The CA that signed the certificate of the API server."}},
        "data": {"ca.crt": ca},
    });
    let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    unless_refused(maps.create(&post, &map).await)
}

/// Ignores that an object exists already, or that its namespace accepts no new objects.
fn unless_refused<K>(made: kube::Result<K>) -> kube::Result<()> {
    match made {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [403, 404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(error),
    }
}
