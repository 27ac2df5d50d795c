//! CustomResourceDefinitions: each is served as long as it is there, and says
//! so in its status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregated_apiserver::RuntimeKinds;
use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::objects::ObjectError;

/// What holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How often a definition is looked at again whose objects are held.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves definitions, and removes what they leave behind.
#[derive(Clone)]
pub(crate) struct Definitions {
    client: Client,
    kinds: RuntimeKinds,
    /// The generation in which each is served, by uid.
    served: Arc<Mutex<HashMap<String, i64>>>,
}

impl Definitions {
    pub(crate) fn new(client: Client, kinds: RuntimeKinds) -> Self {
        Self { client, kinds, served: Arc::default() }
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Makes a definition, and serves its kind before it returns.
    pub(crate) async fn create(
        &self,
        what: &str,
        definition: &CustomResourceDefinition,
    ) -> Result<(), ObjectError> {
        let failed = |error: kube::Error| ObjectError::new(what, error);
        let created = self.api().create(&PostParams::default(), definition).await;
        self.establish(&created.map_err(failed)?).await.map_err(|why| ObjectError::new(what, why))
    }

    /// Follows definitions, for ever.
    pub(crate) async fn keep(self) {
        let changes = watcher(self.api(), watcher::Config::default()).default_backoff();
        let mut changes = changes.applied_objects().boxed();
        let mut removing = JoinSet::new();
        while let Some(change) = changes.next().await {
            while removing.try_join_next().is_some() {}
            let Ok(definition) = change else { continue };
            if definition.metadata.deletion_timestamp.is_some() {
                let definitions = self.clone();
                removing.spawn(async move { definitions.remove(&definition).await });
            } else if let Err(why) = self.establish(&definition).await {
                tracing::debug!("definition {}: {why}", definition.name_any());
            }
        }
    }

    /// Serves a definition as it is now, and notes that in its status.
    async fn establish(&self, definition: &CustomResourceDefinition) -> Result<(), String> {
        let uid = definition.uid().unwrap_or_default();
        let generation = definition.metadata.generation.unwrap_or_default();
        {
            let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            if served.insert(uid, generation) == Some(generation) {
                return Ok(());
            }
        }
        let refused = self.kinds.serve(definition).await.err().map(|error| error.to_string());
        let patch = Patch::Merge(json!({"status": status(definition, refused.as_deref())}));
        let patched =
            self.api().patch_status(&definition.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(|error| error.to_string())?;
        refused.map_or(Ok(()), Err)
    }

    /// Removes the objects of a definition, its kind, and what holds it.
    async fn remove(&self, definition: &CustomResourceDefinition) {
        let name = definition.name_any();
        if !definition.finalizers().iter().any(|one| one == FINALIZER) {
            self.kinds.withdraw(&name).await;
            return;
        }
        loop {
            match self.empty(definition).await {
                Ok(0) => break,
                Ok(left) => tracing::debug!("definition {name}: {left} objects are held"),
                Err(error) => tracing::debug!("definition {name}: {error}"),
            }
            tokio::time::sleep(AGAIN).await;
            if let Ok(None) = self.api().get_opt(&name).await {
                return;
            }
        }
        self.kinds.withdraw(&name).await;
        let others = definition.finalizers().iter().filter(|one| *one != FINALIZER);
        let others: Vec<&String> = others.collect();
        let released = Patch::Merge(json!({"metadata": {"finalizers": others}}));
        let released = self.api().patch(&name, &PatchParams::default(), &released).await;
        if let Err(error) = released {
            tracing::debug!("definition {name}: {error}");
        }
    }

    /// Deletes all objects of a definition; answers with how many are left.
    async fn empty(&self, definition: &CustomResourceDefinition) -> kube::Result<usize> {
        let spec = &definition.spec;
        let Some(version) = spec.versions.iter().find(|version| version.served) else {
            return Ok(0);
        };
        let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = match all.list(&ListParams::default()).await {
            Ok(found) => found.items,
            // It was never served.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(0),
            Err(error) => return Err(error),
        };
        for object in found {
            let api: Api<DynamicObject> = match object.namespace() {
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

fn status(definition: &CustomResourceDefinition, refused: Option<&str>) -> Value {
    let now = jiff::Timestamp::now();
    let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let condition = |name: &str, (status, reason, message): (&str, &str, &str)| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now,
        })
    };
    let (names, established) = match refused {
        None => (
            ("True", "NoConflicts", "no conflicts found"),
            ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        ),
        Some(why) => {
            (("False", "NotServed", why), ("False", "NotAccepted", "not all names are accepted"))
        }
    };
    let stored = definition.spec.versions.iter().find(|version| version.storage);
    let before = definition.status.as_ref().and_then(|status| status.stored_versions.clone());
    let mut versions = before.unwrap_or_default();
    if let Some(stored) = stored.filter(|stored| !versions.contains(&stored.name)) {
        versions.push(stored.name.clone());
    }
    json!({
        "acceptedNames": if refused.is_none() { json!(definition.spec.names) } else { json!({}) },
        "conditions": [condition("NamesAccepted", names), condition("Established", established)],
        "storedVersions": versions,
    })
}
