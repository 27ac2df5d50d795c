//! CustomResourceDefinitions: each is served as long as it is there, and says
//! so in its status.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aggregated_apiserver::RuntimeKinds;
use futures::StreamExt;
use jiff::Timestamp;
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
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// How often a definition is looked at again whose objects are held.
const AGAIN: Duration = Duration::from_millis(100);
/// And at most, while nothing changes.
const LATER: Duration = Duration::from_secs(2);

/// The clock of a server.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Serves definitions, and removes what they leave behind.
#[derive(Clone)]
pub(crate) struct Definitions {
    client: Client,
    kinds: RuntimeKinds,
    now: Now,
    known: Arc<Mutex<Known>>,
}

/// What became of definitions: the generation that was looked at, by uid.
#[derive(Default)]
struct Known {
    served: HashMap<String, i64>,
    refused: HashMap<String, i64>,
}

impl Definitions {
    pub(crate) fn new(client: Client, kinds: RuntimeKinds, now: Now) -> Self {
        Self { client, kinds, now, known: Arc::default() }
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
        let mut changes = changes.boxed();
        let mut removing = JoinSet::new();
        let mut begun: HashSet<String> = HashSet::new();
        while let Some(change) = changes.next().await {
            while removing.try_join_next().is_some() {}
            match change {
                Ok(watcher::Event::Apply(definition) | watcher::Event::InitApply(definition)) => {
                    let uid = definition.uid().unwrap_or_default();
                    if definition.metadata.deletion_timestamp.is_none() {
                        self.try_to_establish(&definition).await;
                    } else if begun.insert(uid) {
                        let definitions = self.clone();
                        removing.spawn(async move { definitions.remove(&definition).await });
                    }
                }
                Ok(watcher::Event::Delete(definition)) => {
                    begun.remove(&definition.uid().unwrap_or_default());
                    self.withdraw(&definition).await;
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    }

    async fn try_to_establish(&self, definition: &CustomResourceDefinition) {
        if let Err(why) = self.establish(definition).await {
            tracing::debug!("definition {}: {why}", definition.name_any());
        }
    }

    /// Serves a definition as it is now, and notes that in its status.
    async fn establish(&self, definition: &CustomResourceDefinition) -> Result<(), String> {
        let uid = definition.uid().unwrap_or_default();
        let generation = definition.metadata.generation.unwrap_or_default();
        if self.known().served.get(&uid) == Some(&generation)
            || self.known().refused.get(&uid) == Some(&generation)
        {
            return Ok(());
        }
        let refused = self.kinds.serve(definition).await.err().map(|error| error.to_string());
        {
            let mut known = self.known();
            let map = if refused.is_none() { &mut known.served } else { &mut known.refused };
            map.insert(uid.clone(), generation);
            if refused.is_none() {
                known.refused.remove(&uid);
            }
        }
        let status = json!({"metadata": {"uid": uid}, "status": status(definition, refused.as_deref(), (self.now)())});
        let patch = Patch::Merge(status);
        let patched =
            self.api().patch_status(&definition.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(|error| error.to_string())?;
        refused.map_or(Ok(()), Err)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a definition no more, if it was served; its names are free then.
    async fn withdraw(&self, definition: &CustomResourceDefinition) {
        let uid = definition.uid().unwrap_or_default();
        let was_served = {
            let mut known = self.known();
            known.refused.remove(&uid);
            known.served.remove(&uid).is_some()
        };
        if !was_served {
            return;
        }
        self.kinds.withdraw(&definition.name_any()).await;
        self.known().refused.clear();
        let others = self.api().list(&ListParams::default()).await;
        for other in others.map(|found| found.items).unwrap_or_default() {
            if other.metadata.deletion_timestamp.is_none() {
                self.try_to_establish(&other).await;
            }
        }
    }

    /// Removes the objects of a definition, its kind, and the definition.
    async fn remove(&self, definition: &CustomResourceDefinition) {
        let (name, uid) = (definition.name_any(), definition.uid().unwrap_or_default());
        let (mut pause, mut before) = (AGAIN, 0);
        loop {
            let live = match self.api().get_opt(&name).await {
                Ok(Some(live)) if live.uid().as_deref() == Some(&uid) => live,
                // It was let go by somebody else: the watch tells.
                Ok(_) => return,
                Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            // Whoever is not served has no objects.
            let is_served = self.known().served.contains_key(&uid);
            if is_served {
                self.kinds.close(&name).await;
            }
            let left = if is_served { self.empty(definition).await } else { Ok(0) };
            let is_held = live.finalizers().iter().any(|one| one != FINALIZER);
            match left {
                Ok(0) if !is_held => break,
                Ok(left) => {
                    tracing::debug!("definition {name}: {left} objects are held");
                    pause = if left == before { LATER.min(pause * 2) } else { AGAIN };
                    before = left;
                }
                Err(error) => tracing::debug!("definition {name}: {error}"),
            }
            tokio::time::sleep(pause).await;
        }
        self.withdraw(definition).await;
        self.kinds.remove(DEFINITIONS, None, &name, &uid).await;
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

fn status(definition: &CustomResourceDefinition, refused: Option<&str>, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let before = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    // It is the time of the last change.
    let since = |name: &str, status: &str| {
        let same =
            before.into_iter().flatten().find(|one| one.type_ == name && one.status == status);
        let since = same.and_then(|one| one.last_transition_time.as_ref());
        since.map_or_else(|| now.clone(), |since| since.0.to_string())
    };
    let condition = |name: &str, (status, reason, message): (&str, &str, &str)| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since(name, status),
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
