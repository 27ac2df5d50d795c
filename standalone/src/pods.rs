//! Lets Pods go that are being deleted, once their time is over: nobody is there
//! who would stop them sooner.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};

/// How often Pods are looked at whose time is not over.
const AGAIN: Duration = Duration::from_millis(100);

/// Pods that are being deleted, by their uids.
type Ending = HashMap<String, Pod>;

/// Lets Pods go, for ever. What time it is, `now` says.
pub(crate) async fn keep(client: Client, now: impl Fn() -> Timestamp) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut changes = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let mut ending = Ending::new();
    loop {
        // Without Pods that end, only a change wakes it.
        let change = if ending.is_empty() {
            changes.next().await
        } else {
            match tokio::time::timeout(AGAIN, changes.next()).await {
                Ok(change) => change,
                Err(_) => {
                    let_go(&client, &ending, now()).await;
                    continue;
                }
            }
        };
        match change {
            Some(Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                if pod.metadata.deletion_timestamp.is_some() {
                    ending.insert(pod.uid().unwrap_or_default(), pod);
                }
            }
            Some(Ok(watcher::Event::Delete(pod))) => {
                ending.remove(&pod.uid().unwrap_or_default());
            }
            Some(Ok(watcher::Event::Init)) => ending.clear(),
            Some(Ok(watcher::Event::InitDone) | Err(_)) => {}
            None => return,
        }
    }
}

/// Lets those go whose time is over. What fails is tried again.
async fn let_go(client: &Client, ending: &Ending, now: Timestamp) {
    for (uid, pod) in ending {
        let ends = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        // What finalizers hold, their owners let go.
        let is_held =
            !pod.finalizers().is_empty() && pod.metadata.deletion_grace_period_seconds == Some(0);
        if is_held || ends.is_none_or(|ends| ends > now) {
            continue;
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let own = Preconditions { uid: Some(uid.clone()), ..Preconditions::default() };
        let at_once = DeleteParams::default().grace_period(0).preconditions(own);
        if let Err(error) = api.delete(&pod.name_any(), &at_once).await {
            tracing::debug!("pod {}: {error}", pod.name_any());
        }
    }
}
