//! Sets the condition `Dangling` of FlowSchemas, which reports whether their priority level exists, same as the controller
//! within kube-apiserver.
//!
//! Not a `kube::runtime::Controller`, because a priority level that is created or deleted may affect all FlowSchemas.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::definitions::Now;
use crate::built_in::dangling;

/// The field manager of the condition, same as in kube-apiserver.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The pause before failed updates are retried: it doubles up to the second value.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The number of FlowSchemas in a page of a list.
const PAGE: u32 = 100;

/// Runs the controller.
pub(crate) async fn run(client: Client, now: Now) {
    let schemas: Api<FlowSchema> = Api::all(client.clone());
    let levels: Api<PartialObjectMeta<PriorityLevelConfiguration>> = Api::all(client.clone());
    let config = watcher::Config::default;
    let changes = watcher(schemas.clone(), config()).default_backoff().applied_objects();
    let mut changes = pin!(changes);
    let mut levels = pin!(watcher(levels, config()).default_backoff());
    let mut known = Levels::default();
    let mut retry = Retry::default();
    loop {
        let updates_all = tokio::select! {
            level = levels.next() => match level {
                None => return,
                Some(Ok(event)) => known.follow(event),
                Some(Err(_)) => false,
            },
            schema = changes.next() => match schema {
                None => return,
                Some(Ok(schema)) if known.is_synced => {
                    if !update(&schemas, &schema, &known, &now).await {
                        retry.schedule(Instant::now());
                    }
                    false
                }
                // All FlowSchemas are updated when the levels are known.
                Some(_) => false,
            },
            () = sleep_until(retry.at.unwrap_or_else(Instant::now)), if retry.at.is_some() => true,
        };
        if updates_all {
            retry.at = None;
            match update_all(&schemas, &known, &now).await {
                true => retry = Retry::default(),
                false => retry.schedule(Instant::now()),
            }
        }
    }
}

/// The next attempt to update all FlowSchemas after a failure.
struct Retry {
    at: Option<Instant>,
    /// The pause before the next attempt that is scheduled.
    pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { at: None, pause: RETRY_AFTER.0 }
    }
}

impl Retry {
    /// Schedules the next attempt, unless it is scheduled already.
    fn schedule(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.pause);
            self.pause = RETRY_AFTER.1.min(self.pause * 2);
        }
    }
}

/// The names of the priority levels.
#[derive(Default)]
struct Levels {
    names: HashSet<String>,
    /// The names in a list that is being read.
    listed: HashSet<String>,
    is_synced: bool,
}

impl Levels {
    /// Applies a change. Returns whether FlowSchemas may need another condition.
    fn follow(&mut self, event: Event<PartialObjectMeta<PriorityLevelConfiguration>>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(level) => drop(self.listed.insert(level.name_any())),
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let is_changed = !self.is_synced || listed != self.names;
                (self.names, self.is_synced) = (listed, true);
                return is_changed;
            }
            Event::Apply(level) => return self.names.insert(level.name_any()),
            Event::Delete(level) => return self.names.remove(&level.name_any()),
        }
        false
    }
}

/// Updates all FlowSchemas. Returns false if one of them could not be read or written.
async fn update_all(schemas: &Api<FlowSchema>, known: &Levels, now: &Now) -> bool {
    let mut page = ListParams::default().limit(PAGE);
    let mut is_done = true;
    loop {
        let Ok(found) = schemas.list(&page).await else { return false };
        for schema in &found.items {
            is_done &= update(schemas, schema, known, now).await;
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return is_done,
        }
    }
}

/// Updates the condition of a FlowSchema. Returns false if it could not be written.
async fn update(schemas: &Api<FlowSchema>, schema: &FlowSchema, known: &Levels, now: &Now) -> bool {
    let level = schema.spec.as_ref().map(|spec| spec.priority_level_configuration.name.as_str());
    let level = level.unwrap_or_default();
    let wanted = dangling(level, known.names.contains(level), now());
    if is_set(schema, &wanted) {
        return true;
    }
    let name = schema.name_any();
    let applied = Patch::Apply(json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name}, "status": {"conditions": [wanted]},
    }));
    match schemas.patch_status(&name, &PatchParams::apply(MANAGER).force(), &applied).await {
        Ok(_) => true,
        // The FlowSchema was deleted.
        Err(kube::Error::Api(status)) if status.code == 404 => true,
        Err(error) => {
            tracing::debug!("FlowSchema {name}: {error}");
            false
        }
    }
}

/// Whether a FlowSchema has a condition, of any time.
fn is_set(schema: &FlowSchema, wanted: &Value) -> bool {
    let conditions = schema.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        let fields = [
            ("type", &condition.type_),
            ("status", &condition.status),
            ("reason", &condition.reason),
            ("message", &condition.message),
        ];
        fields.iter().all(|(field, value)| wanted[*field].as_str() == value.as_deref())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_failed_updates_double() {
        let (mut retry, now) = (Retry::default(), Instant::now());
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            retry.schedule(now);
            // Another failure does not change the time of the attempt.
            retry.schedule(now + Duration::from_secs(1));
            assert_eq!(retry.at.take(), Some(now + Duration::from_secs(pause)));
        }
    }

    #[test]
    fn only_changes_of_the_levels_affect_all_flow_schemas() {
        let level = |name: &str| {
            let mut level = PartialObjectMeta::<PriorityLevelConfiguration>::default();
            level.metadata.name = Some(name.to_owned());
            level
        };
        let mut known = Levels::default();
        assert!(!known.follow(Event::Init));
        assert!(!known.follow(Event::InitApply(level("a"))));
        assert!(known.follow(Event::InitDone));
        assert!(!known.follow(Event::Apply(level("a"))));
        assert!(known.follow(Event::Apply(level("b"))));
        assert!(known.follow(Event::Delete(level("a"))));
        assert!(!known.follow(Event::Init));
        assert!(!known.follow(Event::InitApply(level("b"))));
        assert!(!known.follow(Event::InitDone));
    }
}
