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

use super::definitions::Now;
use crate::built_in::dangling;

/// The field manager of the condition, same as in kube-apiserver.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The pause before a failure is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
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
    let mut is_stale = false;
    loop {
        tokio::select! {
            level = levels.next() => match level {
                None => return,
                Some(Ok(event)) => is_stale |= known.follow(event),
                Some(Err(_)) => {}
            },
            schema = changes.next() => match schema {
                None => return,
                // All FlowSchemas are updated later if the levels are not known yet.
                Some(Ok(schema)) if known.is_synced && !is_stale => {
                    is_stale = !update(&schemas, &schema, &known, &now).await;
                }
                Some(_) => {}
            },
            () = tokio::time::sleep(RETRY_AFTER), if is_stale => {}
        }
        if is_stale {
            is_stale = !update_all(&schemas, &known, &now).await;
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
