//! Removes Pods that are being deleted when their grace period is over: no kubelet does
//! it sooner.
//!
//! Not a `kube::runtime::Controller`, because that requeues by the clock of the machine,
//! and grace periods end by the clock of the server, which tests move.

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

/// How often the clock of the server is looked at while Pods are ending.
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
            // An interval, and no sleep: however many changes come, it is due.
            _ = tick.tick(), if !ending.is_empty() => remove_expired(&client, &mut ending, now()).await,
        }
    }
}

/// Remembers Pods that are being deleted, and forgets those that are gone.
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

/// Whether only finalizers keep a Pod, whose owners remove them.
fn waits_for_finalizers(pod: &PartialObjectMeta<Pod>) -> bool {
    !pod.finalizers().is_empty() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Removes the Pods whose grace period is over. The next tick tries again what fails.
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
            // It is gone, or another Pod has its name.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                ending.remove(&uid);
            }
            Err(error) => tracing::debug!("pod {}: {error}", pod.name_any()),
        }
    }
}
