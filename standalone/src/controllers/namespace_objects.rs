//! What each namespace of a cluster has: a service account for Pods that name none,
//! and the CA of the API. Both come back when they are deleted.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::stream::{StreamExt, select_all};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

const ACCOUNT: &str = "default";
const CA: &str = "kube-root-ca.crt";
/// How soon what could not be made is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Gives namespaces what they have, for ever. `ca` is the CA of the API, PEM.
pub(crate) async fn keep(client: Client, ca: String) {
    let mut changes = select_all([
        namespaces(&client),
        losing::<ServiceAccount>(&client, ACCOUNT),
        losing::<ConfigMap>(&client, CA),
    ]);
    let mut failed: VecDeque<String> = VecDeque::new();
    loop {
        let namespace = tokio::select! {
            changed = changes.next() => match changed {
                Some(namespace) => namespace,
                None => return,
            },
            () = tokio::time::sleep(AGAIN), if !failed.is_empty() => {
                let Some(namespace) = failed.pop_front() else { continue };
                namespace
            }
        };
        if let Err(error) = give(&client, &namespace, &ca).await {
            tracing::debug!("namespace {namespace}: {error}");
            if !failed.contains(&namespace) {
                failed.push_back(namespace);
            }
        }
    }
}

/// Namespaces that are there and not going.
fn namespaces(client: &Client) -> BoxStream<'static, String> {
    let all: Api<Namespace> = Api::all(client.clone());
    let changes = watcher(all, watcher::Config::default()).default_backoff().applied_objects();
    let active = changes.filter_map(async |change| {
        let namespace = change.ok()?;
        namespace.metadata.deletion_timestamp.is_none().then(|| namespace.name_any())
    });
    active.boxed()
}

/// Namespaces that have lost their object of this name.
fn losing<K>(client: &Client, name: &str) -> BoxStream<'static, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let all: Api<K> = Api::all(client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(all, named).default_backoff();
    let lost = changes.filter_map(async |change| match change {
        Ok(watcher::Event::Delete(object)) => object.namespace(),
        _ => None,
    });
    lost.boxed()
}

/// Makes what is missing in a namespace, unless that is going or gone.
async fn give(client: &Client, namespace: &str, ca: &str) -> kube::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let live = namespaces.get_opt(namespace).await?;
    if live.is_none_or(|live| live.metadata.deletion_timestamp.is_some()) {
        return Ok(());
    }
    let post = PostParams::default();
    let account = json!({"metadata": {"name": ACCOUNT}});
    let account = serde_json::from_value(account).map_err(kube::Error::SerdeError)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    settle(accounts.create(&post, &account).await)?;
    let map = json!({
        "metadata": {"name": CA, "annotations": {"kubernetes.io/description": "The CA that signed the certificate of the API server."}},
        "data": {"ca.crt": ca},
    });
    let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    settle(maps.create(&post, &map).await)
}

/// It is there, or the namespace takes none any more.
fn settle<K>(made: kube::Result<K>) -> kube::Result<()> {
    match made {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [403, 404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(error),
    }
}
