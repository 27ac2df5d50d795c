//! Deletes events after an hour, same as kube-apiserver, so that they do not fill the store.
//!
//! Not a `kube::runtime::Controller`, because that stores a copy of each object that it watches. Here a page of the
//! events per minute is enough.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::{Client, ResourceExt};

use super::definitions::Now;

/// The time for which an event is stored after it was last reported.
const TTL: SignedDuration = SignedDuration::from_hours(1);
/// The interval between two checks for old events.
const PERIOD: Duration = Duration::from_secs(60);
/// The number of events in a page of a list.
const PAGE: u32 = 500;

/// Runs the controller, by the clock `now`.
pub(crate) async fn run(client: Client, now: Now) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(error) = delete_old(&client, now()).await {
            tracing::debug!("events: {error}");
        }
    }
}

async fn delete_old(client: &Client, now: Timestamp) -> kube::Result<()> {
    let all: Api<Event> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = all.list(&page).await?;
        for event in found.items.iter().filter(|event| is_old(event, now)) {
            let namespace = event.namespace().unwrap_or_default();
            let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
            // An event that was reported again concurrently is not deleted.
            let same =
                Preconditions { uid: event.uid(), resource_version: event.resource_version() };
            let parameters = DeleteParams::default().preconditions(same);
            match api.delete(&event.name_any(), &parameters).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                Err(error) => return Err(error),
            }
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn is_old(event: &Event, now: Timestamp) -> bool {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let reported = [
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        series.map(|time| time.0),
    ];
    // A time in the future is a mistake of the reporting client.
    let last = reported.into_iter().flatten().filter(|time| *time <= now).max();
    last.is_some_and(|last| now.duration_since(last) > TTL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestServer;
    use serde_json::json;

    #[tokio::test]
    async fn events_that_were_reported_long_ago_are_deleted() {
        let server = TestServer::builder().start().await.unwrap();
        let events: Api<Event> = Api::default_namespaced(server.client());
        let now = server.now();
        for name in ["old", "reported-again"] {
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            });
            let event = serde_json::from_value(event).unwrap();
            events.create(&Default::default(), &event).await.unwrap();
        }
        delete_old(&server.client(), now).await.unwrap();
        assert_eq!(events.list(&Default::default()).await.unwrap().items.len(), 2);
        let later = now + SignedDuration::from_mins(90);
        let reported = json!({"lastTimestamp": (now + SignedDuration::from_hours(1)).to_string()});
        let reported = kube::api::Patch::Merge(reported);
        events.patch("reported-again", &Default::default(), &reported).await.unwrap();
        delete_old(&server.client(), later).await.unwrap();
        let left = events.list(&Default::default()).await.unwrap().items;
        let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        assert_eq!(left, ["reported-again"]);
    }
}
