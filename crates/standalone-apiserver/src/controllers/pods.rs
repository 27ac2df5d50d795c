//! Removes Pods that are being deleted at the end of their grace period, because no kubelet removes them.
//!
//! Not a `kube::runtime::Controller`, because that requeues by the system clock, and grace periods end by the clock of
//! the server, which tests advance.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::time::MissedTickBehavior;

use super::definitions::Now;

/// The interval between two checks of the server's clock, while Pods are being deleted.
const TICK: Duration = Duration::from_millis(100);

/// Pods that are being deleted, by their uids.
type Ending = HashMap<String, PartialObjectMeta<Pod>>;

/// Runs the controller, by the clock `now`.
pub(crate) async fn run(client: Client, now: Now) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client.clone());
    let mut changes = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let mut ending = Ending::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(change) => observe(&mut ending, change),
                None => return,
            },
            // An interval instead of a sleep, because many changes would restart a sleep again and again.
            _ = tick.tick(), if !ending.is_empty() => remove_expired(&client, &mut ending, now()).await,
        }
    }
}

/// Adds Pods that are being deleted, and removes deleted ones.
fn observe(
    ending: &mut Ending,
    change: Result<watcher::Event<PartialObjectMeta<Pod>>, watcher::Error>,
) {
    match change {
        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
            if pod.metadata.deletion_timestamp.is_some() && !waits_for_finalizers(&pod) {
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

/// Whether only finalizers hold a Pod. The owners of the finalizers remove them.
fn waits_for_finalizers(pod: &PartialObjectMeta<Pod>) -> bool {
    !pod.finalizers().is_empty() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Removes the Pods whose grace period is over. The next tick retries failures.
async fn remove_expired(client: &Client, ending: &mut Ending, now: Timestamp) {
    let ends =
        |pod: &PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let over: Vec<String> = ending
        .iter()
        .filter(|(_, pod)| ends(pod).is_some_and(|ends| ends <= now))
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in over {
        let Some(pod) = ending.get(&uid) else { continue };
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), &namespace);
        let own = Preconditions { uid: Some(uid.clone()), ..Preconditions::default() };
        let at_once = DeleteParams::default().grace_period(0).preconditions(own);
        match api.delete(&pod.name_any(), &at_once).await {
            Ok(_) => drop(ending.remove(&uid)),
            // The Pod was deleted, or another Pod has its name.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                ending.remove(&uid);
            }
            Err(error) => tracing::debug!("pod {}: {error}", pod.name_any()),
        }
    }
}
