//! The removal of definitions that are deleted, with their objects.

use std::pin::pin;

use aggregated_apiserver::StoredKind;
use futures::{FutureExt, TryFutureExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{DeleteParams, PartialObjectMeta};
use serde_json::json;

use super::super::left_behind::{LeftBehind, resource};
use super::status::set_condition;
use super::{DEFINITIONS, Definitions, FINALIZER, RETRY_AFTER, RETRY_AT_LEAST_EVERY};

impl Definitions {
    /// Deletes the objects of a definition that is being deleted, then withdraws its kind
    /// and removes the definition. Tries until that is done.
    pub(super) async fn remove(&self, definition: &PartialObjectMeta<CustomResourceDefinition>) {
        let (name, uid) = (definition.name_any(), definition.uid().unwrap_or_default());
        let (mut pause, mut before) = (RETRY_AFTER, 0);
        loop {
            let live = match self.api().get_opt(&name).await {
                Ok(Some(live)) if live.uid().as_deref() == Some(&uid) => live,
                // It is gone: the watch withdraws its kind.
                Ok(_) => return,
                Err(_) => {
                    tokio::time::sleep(RETRY_AFTER).await;
                    continue;
                }
            };
            self.set_terminating(&live).await;
            // Only a kind that is served can have objects.
            let is_served = {
                let _locked = self.known.lock().await;
                self.kinds.close(&name).await;
                self.kinds.is_served(&name)
            };
            let left = if is_served { self.delete_objects(&live).await } else { Ok(Some(0)) };
            let is_held = live.finalizers().iter().any(|one| one != FINALIZER);
            match left {
                // The watch withdraws its kind.
                Ok(None) => return,
                Ok(Some(0)) if !is_held => break,
                Ok(Some(left)) => {
                    tracing::debug!("definition {name}: {left} objects have finalizers");
                    pause = if left == before {
                        RETRY_AT_LEAST_EVERY.min(pause * 2)
                    } else {
                        RETRY_AFTER
                    };
                    before = left;
                }
                Err(error) => tracing::debug!("definition {name}: {error}"),
            }
            tokio::time::sleep(pause).await;
        }
        let mut known = self.known.lock().await;
        self.withdraw(&mut known, definition).await;
        while !self.kinds.remove(DEFINITIONS, None, &name, &uid).await {
            tokio::time::sleep(RETRY_AT_LEAST_EVERY).await;
        }
    }

    /// Sets the condition `Terminating`. If the definition has changed meanwhile, the next
    /// attempt sets it.
    async fn set_terminating(&self, live: &CustomResourceDefinition) {
        let status = live.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default();
        let before = conditions.clone();
        let why = "CustomResource deletion is in progress";
        let condition = ("True", "InstanceDeletionInProgress", why);
        set_condition(&mut conditions, "Terminating", condition, (self.now)());
        if conditions != before
            && let Err(why) = self.patch_status(live, json!({"conditions": conditions})).await
        {
            tracing::debug!("definition {}: {why}", live.name_any());
        }
    }

    /// Deletes all objects of a definition; answers with how many are left, or `None` if it is gone.
    async fn delete_objects(
        &self,
        definition: &CustomResourceDefinition,
    ) -> kube::Result<Option<usize>> {
        // As it is served here: its names and versions may be those that were accepted before.
        let spec = &definition.spec;
        let is_it =
            |kind: &StoredKind| kind.group == spec.group && kind.plural == spec.names.plural;
        let Some(kind) = self.kinds.stored_kinds().into_iter().find(is_it) else {
            return Ok(Some(0));
        };
        let resource = &resource(&kind);
        let objects = LeftBehind { client: &self.client, resource, namespace: None };
        let (api, name, uid) = (self.api(), definition.name_any(), definition.uid());
        let is_there = || {
            let live = api.get_metadata_opt(&name);
            live.map_ok(|live| live.is_some_and(|live| live.uid() == uid)).boxed()
        };
        if !objects.delete(&DeleteParams::default(), is_there).await? {
            return Ok(None);
        }
        let (mut left, mut remaining) = (0, pin!(objects.pages()));
        while let Some(page) = remaining.try_next().await? {
            left += page.len();
        }
        Ok(Some(left))
    }
}
