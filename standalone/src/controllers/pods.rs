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
use tokio::time::MissedTickBehavior;

use super::definitions::Now;

/// How often Pods are looked at whose time is not over.
const AGAIN: Duration = Duration::from_millis(100);

/// Pods that are being deleted, by their uids.
type Ending = HashMap<String, Pod>;

/// Lets Pods go, for ever. What time it is, `now` says.
pub(crate) async fn keep(client: Client, now: Now) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut changes = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let mut ending = Ending::new();
    let mut again = tokio::time::interval(AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(change) => note(&mut ending, change),
                None => return,
            },
            // However much happens meanwhile; without Pods that end, never.
            _ = again.tick(), if !ending.is_empty() => let_go(&client, &mut ending, now()).await,
        }
    }
}

fn note(ending: &mut Ending, change: Result<watcher::Event<Pod>, watcher::Error>) {
    match change {
        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
            if pod.metadata.deletion_timestamp.is_some() && !is_held(&pod) {
                ending.insert(pod.uid().unwrap_or_default(), pod);
            }
        }
        Ok(watcher::Event::Delete(pod)) => {
            ending.remove(&pod.uid().unwrap_or_default());
        }
        Ok(watcher::Event::Init) => ending.clear(),
        Ok(watcher::Event::InitDone) | Err(_) => {}
    }
}

/// What finalizers alone hold, their owners let go.
fn is_held(pod: &Pod) -> bool {
    !pod.finalizers().is_empty() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Lets those go whose time is over. What fails is tried again.
async fn let_go(client: &Client, ending: &mut Ending, now: Timestamp) {
    let ends = |pod: &Pod| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let over: Vec<String> = ending
        .iter()
        .filter(|(_, pod)| ends(pod).is_some_and(|ends| ends <= now))
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in over {
        let Some(pod) = ending.get(&uid) else { continue };
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let own = Preconditions { uid: Some(uid.clone()), ..Preconditions::default() };
        let at_once = DeleteParams::default().grace_period(0).preconditions(own);
        match api.delete(&pod.name_any(), &at_once).await {
            Ok(_) => drop(ending.remove(&uid)),
            // It is gone, or another one.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                ending.remove(&uid);
            }
            Err(error) => tracing::debug!("pod {}: {error}", pod.name_any()),
        }
    }
}
