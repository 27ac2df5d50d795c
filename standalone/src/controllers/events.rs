//! Forgets events after an hour, as kube-apiserver does: else they would fill the
//! store.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::{Client, ResourceExt};

use super::definitions::Now;

/// So long an event is kept after it was last told.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How often events are looked at.
const AGAIN: Duration = Duration::from_secs(60);
/// So many are looked at together.
const PAGE: u32 = 500;

/// Forgets events, for ever. What time it is, `now` says.
pub(crate) async fn forget(client: Client, now: Now) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Err(error) = forget_old(&client, now()).await {
            tracing::debug!("events: {error}");
        }
    }
}

async fn forget_old(client: &Client, now: Timestamp) -> kube::Result<()> {
    let all: Api<Event> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = all.list(&page).await?;
        for event in found.items.iter().filter(|event| is_old(event, now)) {
            let namespace = event.namespace().unwrap_or_default();
            let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
            // Told again meanwhile, it stays.
            let same =
                Preconditions { uid: event.uid(), resource_version: event.resource_version() };
            let forgotten = DeleteParams::default().preconditions(same);
            match api.delete(&event.name_any(), &forgotten).await {
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
    let told = [
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        series.map(|time| time.0),
    ];
    // What is said to be later than now, nobody has seen.
    let last = told.into_iter().flatten().filter(|time| *time <= now).max();
    last.is_some_and(|last| now.duration_since(last) > KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestServer;
    use serde_json::json;

    #[tokio::test]
    async fn what_was_told_long_ago_is_forgotten() {
        let server = TestServer::builder().start().await.unwrap();
        let events: Api<Event> = Api::default_namespaced(server.client());
        let now = server.now();
        for name in ["old", "told-again"] {
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            });
            let event = serde_json::from_value(event).unwrap();
            events.create(&Default::default(), &event).await.unwrap();
        }
        forget_old(&server.client(), now).await.unwrap();
        assert_eq!(events.list(&Default::default()).await.unwrap().items.len(), 2);
        let later = now + SignedDuration::from_mins(90);
        let told = json!({"lastTimestamp": (now + SignedDuration::from_hours(1)).to_string()});
        let told = kube::api::Patch::Merge(told);
        events.patch("told-again", &Default::default(), &told).await.unwrap();
        forget_old(&server.client(), later).await.unwrap();
        let left = events.list(&Default::default()).await.unwrap().items;
        let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        assert_eq!(left, ["told-again"]);
    }
}
