//! Serves the kinds of CustomResourceDefinitions, writes their status, and removes the
//! objects of those that are deleted.
//!
//! Not a `kube::runtime::Controller`, because that is not called for an object that is gone,
//! where this one withdraws a kind, and because definitions are served one at a time, also
//! those of [`Definitions::create`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::{RuntimeKinds, whole_seconds};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition, CustomResourceDefinitionNames,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::built_in::approval;
use crate::cluster_objects::keep_api_services;
use crate::objects::ObjectError;

/// The finalizer of a definition that has objects.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// How soon a failure is tried again, and a definition looked at whose objects have
/// finalizers.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The longest pause between two looks, while the number of objects stays the same.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// How often a status is tried to be written.
const STATUS_ATTEMPTS: usize = 5;

/// The clock of a server.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Serves definitions, and removes what they leave behind.
#[derive(Clone)]
pub(crate) struct Definitions {
    client: Client,
    kinds: RuntimeKinds,
    now: Now,
    /// Locked while a definition is served or withdrawn, so that this happens one at a
    /// time.
    known: Arc<Mutex<Known>>,
    /// Whether the controller runs: before, while objects are loaded, it writes no
    /// APIServices.
    registers: Arc<AtomicBool>,
}

/// What was served last of each definition, by its uid.
type Known = HashMap<String, Seen>;

/// What was served last of a definition.
#[derive(PartialEq)]
struct Seen {
    generation: i64,
    /// Whether all names in its spec were accepted.
    is_accepted: bool,
}

impl Definitions {
    pub(crate) fn new(client: Client, kinds: RuntimeKinds, now: Now) -> Self {
        Self { client, kinds, now, known: Arc::default(), registers: Arc::default() }
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Creates a definition, and serves its kind before it returns.
    pub(crate) async fn create(
        &self,
        what: &str,
        definition: &CustomResourceDefinition,
    ) -> Result<(), ObjectError> {
        let failed = |error: kube::Error| ObjectError::new(what, error);
        let created = self.api().create(&PostParams::default(), definition).await;
        let name = created.map_err(failed)?.name_any();
        let established = self.establish(&mut *self.known.lock().await, &name).await;
        established.map(drop).map_err(|why| ObjectError::new(what, why))
    }

    /// Runs the controller.
    pub(crate) async fn run(self) {
        self.registers.store(true, Ordering::Relaxed);
        self.update_api_services().await;
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
                        self.reconcile(&definition.name_any()).await;
                    } else if begun.insert(uid) {
                        let definitions = self.clone();
                        removing.spawn(async move { definitions.remove(&definition).await });
                    }
                }
                Ok(watcher::Event::Delete(definition)) => {
                    begun.remove(&definition.uid().unwrap_or_default());
                    self.withdraw(&mut *self.known.lock().await, &definition).await;
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    }

    /// Creates and deletes APIServices, so that there is one for each version that is served.
    async fn update_api_services(&self) {
        if self.registers.load(Ordering::Relaxed) {
            keep_api_services(&self.client, &self.kinds).await;
        }
    }

    /// Serves a definition, and those that wait for the names it gave up.
    async fn reconcile(&self, name: &str) {
        let mut known = self.known.lock().await;
        match self.establish(&mut known, name).await {
            Ok(has_released) if has_released => self.retry_refused(&mut known).await,
            Ok(_) => {}
            Err(why) => tracing::debug!("definition {name}: {why}"),
        }
    }

    /// Tries again to accept the names that were taken.
    async fn retry_refused(&self, known: &mut Known) {
        known.retain(|_, seen| seen.is_accepted);
        let others = self.api().list(&ListParams::default()).await;
        for other in others.map(|found| found.items).unwrap_or_default() {
            let name = other.name_any();
            if let Err(why) = self.establish(known, &name).await {
                tracing::debug!("definition {name}: {why}");
            }
        }
    }

    /// Serves a definition as it is now, and writes its status. Answers whether it gave up
    /// names, which another definition may wait for.
    async fn establish(&self, known: &mut Known, name: &str) -> Result<bool, String> {
        let mut attempt = 1;
        loop {
            let live = self.api().get_opt(name).await.map_err(|error| error.to_string())?;
            let live = live.filter(|live| live.metadata.deletion_timestamp.is_none());
            let Some(live) = live else { return Ok(false) };
            let uid = live.uid().unwrap_or_default();
            let generation = live.metadata.generation.unwrap_or_default();
            let (names, mut conflict) = self.accepted_names(&live);
            let is_accepted = conflict.is_none();
            let is_new = known.get(&uid) != Some(&Seen { generation, is_accepted })
                || !self.kinds.is_served(name);
            let mut refused = None;
            // A definition that is served goes on with the names that were accepted before.
            if is_new && (is_accepted || self.kinds.is_served(name)) {
                let mut accepted = live.clone();
                accepted.spec.names = names.clone();
                refused = self.kinds.serve(&accepted).await.err().map(|error| error.to_string());
            }
            if let Some(why) = &refused {
                conflict.get_or_insert(("NotServed", why.clone()));
            }
            known.insert(uid, Seen { generation, is_accepted });
            let is_served = self.kinds.is_served(name);
            let status = status(&live, &names, conflict, is_served, (self.now)());
            if let Some(status) = status {
                match self.patch_status(&live, status).await {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) if attempt == STATUS_ATTEMPTS => return Err(error),
                    Err(_) => {
                        attempt += 1;
                        tokio::time::sleep(RETRY_AFTER).await;
                        continue;
                    }
                }
            }
            if is_new && is_served {
                self.update_api_services().await;
            }
            let before = live.status.as_ref().and_then(|status| status.accepted_names.as_ref());
            let has_released = before.is_some_and(|before| *before != names);
            return refused.map_or(Ok(has_released), Err);
        }
    }

    /// Writes the status of a definition; `false` if the definition has changed meanwhile,
    /// or is gone.
    async fn patch_status(
        &self,
        seen: &CustomResourceDefinition,
        status: Value,
    ) -> Result<bool, String> {
        let metadata = json!({"uid": seen.uid(), "resourceVersion": seen.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let name = seen.name_any();
        match self.api().patch_status(&name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The names that are accepted, and why not all of the spec are. A name that was
    /// accepted before stays.
    fn accepted_names(
        &self,
        definition: &CustomResourceDefinition,
    ) -> (CustomResourceDefinitionNames, Option<Conflict>) {
        let asked = &definition.spec.names;
        let before = definition.status.as_ref().and_then(|status| status.accepted_names.clone());
        let mut names = before.unwrap_or_default();
        let taken = self.kinds.taken_names(&definition.spec.group, &asked.plural);
        let mut conflict = None;
        let mut refuse = |reason, name: &str| {
            conflict = Some((reason, format!("{name:?} is already in use")));
        };
        let is_resource = |name: &str| taken.resources.contains(name);
        let is_kind = |name: &str| taken.kinds.contains(name);
        match &asked.plural {
            name if names.plural != *name && is_resource(name) => refuse("PluralConflict", name),
            name => names.plural.clone_from(name),
        }
        match &asked.singular {
            Some(name) if names.singular.as_ref() != Some(name) && is_resource(name) => {
                refuse("SingularConflict", name);
            }
            name => names.singular.clone_from(name),
        }
        let known = names.short_names.clone().unwrap_or_default();
        let of_others = |name: &&String| !known.contains(*name) && is_resource(name);
        match asked.short_names.iter().flatten().find(of_others) {
            Some(name) => refuse("ShortNamesConflict", name),
            None => names.short_names.clone_from(&asked.short_names),
        }
        match &asked.kind {
            name if names.kind != *name && is_kind(name) => refuse("KindConflict", name),
            name => names.kind.clone_from(name),
        }
        match &asked.list_kind {
            Some(name) if names.list_kind.as_ref() != Some(name) && is_kind(name) => {
                refuse("ListKindConflict", name);
            }
            name => names.list_kind.clone_from(name),
        }
        names.categories.clone_from(&asked.categories);
        (names, conflict)
    }

    /// Withdraws the kind of a definition, so that others may have its names.
    async fn withdraw(&self, known: &mut Known, definition: &CustomResourceDefinition) {
        let (name, uid) = (definition.name_any(), definition.uid().unwrap_or_default());
        if known.remove(&uid).is_some() && self.kinds.is_served(&name) {
            self.kinds.withdraw(&name).await;
            self.update_api_services().await;
            self.retry_refused(known).await;
        }
    }

    /// Deletes the objects of a definition that is being deleted, then withdraws its kind
    /// and removes the definition. Tries until that is done.
    async fn remove(&self, definition: &CustomResourceDefinition) {
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
            let left = if is_served { self.delete_objects(definition).await } else { Ok(0) };
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
        self.kinds.remove(DEFINITIONS, None, &name, &uid).await;
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
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = match all.list(&ListParams::default()).await {
            Ok(found) => found.items,
            // The kind was never served.
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

/// Why a name is not accepted: the reason of the condition, and its message.
type Conflict = (&'static str, String);

/// The status of a definition with these accepted names; `None` if it is so already.
fn status(
    definition: &CustomResourceDefinition,
    names: &CustomResourceDefinitionNames,
    conflict: Option<Conflict>,
    is_served: bool,
    now: Timestamp,
) -> Option<Value> {
    let before = definition.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let mut set = |name: &str, (status, reason, message): (&str, &str, String)| {
        set_condition(&mut conditions, name, (status, reason, &message), now);
    };
    set(
        "NamesAccepted",
        match conflict {
            None => ("True", "NoConflicts", "no conflicts found".to_owned()),
            Some((reason, message)) => ("False", reason, message),
        },
    );
    set(
        "Established",
        if is_served {
            let why = "the initial names have been accepted";
            ("True", "InitialNamesAccepted", why.to_owned())
        } else {
            ("False", "NotAccepted", "not all names are accepted".to_owned())
        },
    );
    if let Some(approval) = approval::condition(definition) {
        set("KubernetesAPIApprovalPolicyConformant", approval);
    }
    if before.conditions.as_ref() == Some(&conditions)
        && before.accepted_names.as_ref() == Some(names)
    {
        return None;
    }
    // In a merge patch null removes a member.
    let names = json!({
        "plural": names.plural, "singular": names.singular, "shortNames": names.short_names,
        "kind": names.kind, "listKind": names.list_kind, "categories": names.categories,
    });
    Some(json!({"acceptedNames": names, "conditions": conditions}))
}

/// Sets a condition. Its lastTransitionTime changes only with its status.
fn set_condition(
    conditions: &mut Vec<CustomResourceDefinitionCondition>,
    name: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let known = conditions.iter_mut().find(|one| one.type_ == name);
    let since = known.as_ref().filter(|known| known.status == status);
    let since = since.and_then(|known| known.last_transition_time.clone());
    let condition = CustomResourceDefinitionCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since.unwrap_or_else(|| Time(whole_seconds(now)))),
        ..CustomResourceDefinitionCondition::default()
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
