//! Removes deleted definitions, with their objects.

use std::pin::pin;

use aggregated_apiserver::runtime_kinds::StoredKind;
use futures::{FutureExt, TryFutureExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::ResourceExt;
use kube::api::{DeleteParams, PartialObjectMeta};
use serde_json::json;

use super::super::content_deletion::{ContentDeletion, resource};
use super::status::set_condition;
use super::{
    DEFINITIONS, Definitions, FINALIZER, Known, RETRY_AFTER, RETRY_AT_LEAST_EVERY, accepted,
};

/// The reason of the condition `Terminating` if objects cannot be deleted.
const FAILED: &str = "InstanceDeletionFailed";
/// The reason and message of the condition `Terminating` while objects are deleted.
const IN_PROGRESS: (&str, &str) =
    ("InstanceDeletionInProgress", "CustomResource deletion is in progress");

impl Definitions {
    /// Deletes the objects of a definition that is being deleted, then withdraws its kind and removes the definition.
    /// Retries until that is done.
    pub(super) async fn remove(&self, definition: &PartialObjectMeta<CustomResourceDefinition>) {
        let (name, uid) = (definition.name_any(), definition.uid().unwrap_or_default());
        let (mut pause, mut before) = (RETRY_AFTER, 0);
        loop {
            let mut known = self.known.lock().await;
            let live = match self.api().get_opt(&name).await {
                Ok(Some(live)) if live.uid().as_deref() == Some(&uid) => live,
                // The definition was removed; the watch withdraws its kind.
                Ok(_) => return,
                Err(_) => {
                    drop(known);
                    tokio::time::sleep(RETRY_AFTER).await;
                    continue;
                }
            };
            let closed = self.close(&mut known, &live).await;
            drop(known);
            let left = match closed {
                Ok(is_served) => {
                    self.set_terminating(&live, IN_PROGRESS).await;
                    let left =
                        if is_served { self.delete_objects(&live).await } else { Ok(Some(0)) };
                    left.map_err(|error| error.to_string())
                }
                Err(why) => {
                    let message = format!("could not serve instances: {why}");
                    self.set_terminating(&live, (FAILED, &message)).await;
                    Err(why)
                }
            };
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
                Err(error) => {
                    tracing::debug!("definition {name}: {error}");
                    pause = RETRY_AT_LEAST_EVERY.min(pause * 2);
                }
            }
            tokio::time::sleep(pause).await;
        }
        let mut known = self.known.lock().await;
        self.withdraw(&mut known, definition).await;
        while !self.kinds.remove(DEFINITIONS, None, &name, &uid).await {
            tokio::time::sleep(RETRY_AT_LEAST_EVERY).await;
        }
    }

    /// Rejects new objects of a definition that is being deleted. Another server may have accepted objects while this
    /// server did not serve the kind. In that case the kind is served until the objects are deleted, because their
    /// finalizers would be ignored otherwise. Returns whether there may be objects.
    async fn close(
        &self,
        known: &mut Known,
        live: &CustomResourceDefinition,
    ) -> Result<bool, String> {
        let name = live.name_any();
        let seen = known.get_mut(&name).filter(|seen| Some(&seen.uid) == live.uid().as_ref());
        let is_served = self.kinds.is_served(&name) && self.served_kind(live).is_some();
        if let Some(seen) = seen.filter(|_| is_served) {
            self.kinds.close(&name).await;
            seen.version = live.resource_version();
            return Ok(true);
        }
        let has_objects = self.kinds.has_objects(&name).await;
        if !has_objects.map_err(|error| error.to_string())? {
            return Ok(false);
        }
        let mut terminating = live.clone();
        if let Some(names) = accepted(live) {
            terminating.spec.names = names;
        }
        // Objects are deleted in a served version. A definition without a served version is served in its storage
        // version until the objects are deleted.
        let versions = &mut terminating.spec.versions;
        if !versions.iter().any(|version| version.served) {
            versions.iter_mut().for_each(|version| version.served = version.storage);
        }
        self.serve_terminating(known, &terminating).await?;
        Ok(true)
    }

    /// Sets the condition `Terminating`. If the definition was changed concurrently, the next attempt sets it.
    async fn set_terminating(
        &self,
        live: &CustomResourceDefinition,
        (reason, message): (&str, &str),
    ) {
        let status = live.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default();
        let is_said = |said: &CustomResourceDefinitionCondition| {
            said.type_ == "Terminating" && said.reason.as_deref() == Some(FAILED)
        };
        // Another server may be able to delete the objects, so the failure remains, and the servers do not overwrite
        // the condition alternately.
        if reason == IN_PROGRESS.0 && conditions.iter().any(is_said) {
            return;
        }
        let before = conditions.clone();
        set_condition(&mut conditions, "Terminating", ("True", reason, message), (self.now)());
        if conditions != before
            && let Err(why) = self.patch_status(live, json!({"conditions": conditions})).await
        {
            tracing::debug!("definition {}: {why}", live.name_any());
        }
    }

    /// The kind of a definition as it is served here, in any version. Its names and versions may be those that were
    /// accepted before.
    fn served_kind(&self, definition: &CustomResourceDefinition) -> Option<StoredKind> {
        let spec = &definition.spec;
        let is_it =
            |kind: &StoredKind| kind.group == spec.group && kind.plural == spec.names.plural;
        self.kinds.stored_kinds().into_iter().find(is_it)
    }

    /// Deletes all objects of a definition. Returns the number of remaining objects, or `None` if the definition was
    /// removed.
    async fn delete_objects(
        &self,
        definition: &CustomResourceDefinition,
    ) -> kube::Result<Option<usize>> {
        let Some(kind) = self.served_kind(definition) else { return Ok(Some(0)) };
        let resource = &resource(&kind);
        let objects = ContentDeletion { client: &self.client, resource, namespace: None };
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
