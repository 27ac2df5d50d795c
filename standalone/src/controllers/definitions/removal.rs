//! The removal of definitions that are deleted, with their objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use serde_json::json;

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
            let left = if is_served { self.delete_objects(&live).await } else { Ok(0) };
            let is_held = live.finalizers().iter().any(|one| one != FINALIZER);
            match left {
                Ok(0) if !is_held => break,
                Ok(left) => {
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

    /// Deletes all objects of a definition; answers with how many are left.
    async fn delete_objects(&self, definition: &CustomResourceDefinition) -> kube::Result<usize> {
        let spec = &definition.spec;
        let Some(version) = spec.versions.iter().find(|version| version.served) else {
            return Ok(0);
        };
        let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let all: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &resource);
        let found = match all.list(&ListParams::default()).await {
            Ok(found) => found.items,
            // The kind was never served.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(0),
            Err(error) => return Err(error),
        };
        for object in found {
            let api: Api<PartialObjectMeta<DynamicObject>> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            match api.delete(&object.name_any(), &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all.list(&ListParams::default()).await?.items.len())
    }
}
