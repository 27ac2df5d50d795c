//! Serves the kinds of CustomResourceDefinitions, updates their status, and removes the objects of deleted definitions.
//!
//! Not a `kube::runtime::Controller`, because that is not called for a deleted object, when this controller must
//! withdraw the kind. Also, definitions are served one at a time, including those of [`Definitions::create`].

mod removal;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    Api, ListParams, PartialObjectMeta, PartialObjectMetaExt, Patch, PatchParams, PostParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::cluster_objects::{MANAGER, keep_api_services};
use crate::objects::ObjectError;
use status::{Conflict, INVALID_CA_BUNDLE, NOT_ACCEPTED, status};

/// The finalizer of a definition, which remains until the objects of the definition are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The pause before a failure is retried, and before a definition whose objects have finalizers is checked again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The number of attempts to read a definition that a list does not contain.
const LOOKS: usize = 10;
/// The longest pause between two attempts, while the number of objects stays the same.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// The generation of a definition that must be checked again. No definition has it.
const NEVER: i64 = -1;
/// The number of attempts to write a status.
const STATUS_ATTEMPTS: usize = 5;

type DefinitionMeta = PartialObjectMeta<CustomResourceDefinition>;
type Change = watcher::Event<DefinitionMeta>;

/// The clock of a server.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The controller that serves definitions, and removes the objects of deleted ones.
#[derive(Clone)]
pub(crate) struct Definitions {
    client: Client,
    kinds: RuntimeKinds,
    now: Now,
    /// Locked while a definition is served or withdrawn, so that this happens for one definition at a time.
    known: Arc<Mutex<Known>>,
    /// Whether the controller runs. Before, while objects are loaded, it writes no APIServices.
    registers: Arc<AtomicBool>,
}

/// The last served state of each definition, by name.
type Known = HashMap<String, Seen>;

/// The last served state of a definition.
struct Seen {
    uid: String,
    generation: i64,
    /// Whether all names in its spec were accepted.
    is_accepted: bool,
    /// The `resourceVersion` of the definition. Older objects do not belong to a later definition of the same name.
    version: Option<String>,
}

impl Seen {
    fn new(definition: &CustomResourceDefinition, is_accepted: bool) -> Self {
        Self {
            uid: definition.uid().unwrap_or_default(),
            generation: definition.metadata.generation.unwrap_or_default(),
            is_accepted,
            version: definition.resource_version(),
        }
    }

    /// Whether both states are served in the same way.
    fn is_as(&self, other: &Self) -> bool {
        let parts = |seen: &Self| (seen.uid.clone(), seen.generation, seen.is_accepted);
        parts(self) == parts(other)
    }

    /// The metadata that identifies the definition.
    fn metadata(&self, name: &str) -> DefinitionMeta {
        let (uid, resource_version) = (Some(self.uid.clone()), self.version.clone());
        let name = Some(name.to_owned());
        ObjectMeta { name, uid, resource_version, ..ObjectMeta::default() }.into_request_partial()
    }
}

/// Whether the known definition of this name has this uid.
fn is_known(known: &Known, name: &str, uid: &str) -> bool {
    known.get(name).is_some_and(|seen| seen.uid == uid)
}

impl Definitions {
    pub(crate) fn new(client: Client, kinds: RuntimeKinds, now: Now) -> Self {
        Self { client, kinds, now, known: Arc::default(), registers: Arc::default() }
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Serves the kinds of stored definitions, which another process has created.
    pub(crate) async fn serve_kept(&self) -> Result<(), ObjectError> {
        let failed = |error: kube::Error| ObjectError::new("CustomResourceDefinitions", error);
        let mut kept = self.api().list(&ListParams::default()).await.map_err(failed)?.items;
        // Definitions with accepted names are first, so that they do not lose their names.
        kept.sort_by_key(|definition| accepted(definition).is_none());
        let mut known = self.known.lock().await;
        for mut definition in kept {
            let name = definition.name_any();
            let served = if definition.metadata.deletion_timestamp.is_none() {
                self.establish(&mut known, &name).await.map(drop)
            } else if let Some(names) = accepted(&definition) {
                // The objects can be deleted only while the kind is served.
                definition.spec.names = names;
                self.serve_terminating(&mut known, &definition).await
            } else {
                Ok(())
            };
            if let Err(why) = served {
                tracing::warn!(definition = %name, error = %why, "stored definition is not served");
            }
        }
        Ok(())
    }

    /// Serves the kind of a definition that another process has started to delete. New objects are rejected.
    async fn serve_terminating(
        &self,
        known: &mut Known,
        definition: &CustomResourceDefinition,
    ) -> Result<(), String> {
        self.withdraw_predecessor(known, definition).await;
        self.kinds.serve(definition).await.map_err(|error| error.to_string())?;
        self.kinds.close(&definition.name_any()).await;
        known.insert(definition.name_any(), Seen::new(definition, true));
        Ok(())
    }

    /// Creates a definition, and serves its kind before it returns. A stored definition does not change.
    pub(crate) async fn create(
        &self,
        what: &str,
        definition: &CustomResourceDefinition,
    ) -> Result<(), ObjectError> {
        let failed = |error: kube::Error| ObjectError::new(what, error);
        let (name, were_kept) = (definition.name_any(), self.kinds.were_kept());
        // A stored definition is not written again.
        if !were_kept || self.api().get_metadata_opt(&name).await.map_err(failed)?.is_none() {
            match self.api().create(&PostParams::default(), definition).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 && were_kept => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let established = self.establish(&mut *self.known.lock().await, &name).await;
        match established {
            // The status can be written later.
            Err(why) if were_kept && self.kinds.is_served(&name) => tracing::warn!("{what}: {why}"),
            established => drop(established.map_err(|why| ObjectError::new(what, why))?),
        }
        if let Some(why) = RuntimeKinds::ca_bundle_fault(definition)
            && !self.kinds.is_served(&name)
        {
            let why = format!(
                "its kind is not served: spec.conversion.webhook.clientConfig.caBundle: {why}"
            );
            return Err(ObjectError::new(what, why));
        }
        Ok(())
    }

    /// Runs the controller.
    pub(crate) async fn run(self) {
        self.registers.store(true, Ordering::Relaxed);
        self.update_api_services(None).await;
        let all: Api<DefinitionMeta> = Api::all(self.client.clone());
        let changes = watcher(all, watcher::Config::default()).default_backoff();
        let definitions = Arc::new(self);
        // A client that has changed a definition sees the change with its next request. The reference to the controller
        // is weak, because the controller has a client of the server, and the server must not keep the controller
        // alive.
        let serving = Arc::downgrade(&definitions);
        definitions.kinds.follow_updates(DEFINITIONS, move |name| {
            let (serving, name) = (serving.clone(), name.to_owned());
            Box::pin(async move {
                if let Some(definitions) = serving.upgrade() {
                    definitions.reconcile(&name).await;
                }
            })
        });
        Box::pin(definitions.follow(changes)).await;
    }

    /// Handles changes until the stream ends.
    async fn follow(&self, changes: impl Stream<Item = watcher::Result<Change>>) {
        let mut changes = pin!(changes);
        let mut removing = JoinSet::new();
        let mut begun: HashSet<String> = HashSet::new();
        // The uids of a list, while it is received.
        let mut listed: HashSet<String> = HashSet::new();
        while let Some(change) = changes.next().await {
            while removing.try_join_next().is_some() {}
            let Ok(change) = change else { continue };
            if let watcher::Event::InitApply(definition) = &change {
                listed.insert(definition.uid().unwrap_or_default());
            }
            match change {
                watcher::Event::Apply(definition) | watcher::Event::InitApply(definition) => {
                    let uid = definition.uid().unwrap_or_default();
                    if definition.metadata.deletion_timestamp.is_none() {
                        self.reconcile(&definition.name_any()).await;
                    } else if begun.insert(uid) {
                        let definitions = self.clone();
                        removing.spawn(async move { definitions.remove(&definition).await });
                    }
                }
                watcher::Event::Delete(definition) => {
                    begun.remove(&definition.uid().unwrap_or_default());
                    self.withdraw(&mut *self.known.lock().await, &definition).await;
                }
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitDone => {
                    let listed = std::mem::take(&mut listed);
                    begun.retain(|uid| listed.contains(uid));
                    self.withdraw_missing(&listed).await;
                }
            }
        }
    }

    /// Withdraws the kinds of definitions that are missing in a list, because a deletion during an interruption of the
    /// watch causes no event.
    async fn withdraw_missing(&self, listed: &HashSet<String>) {
        let missing: Vec<DefinitionMeta> = {
            let known = self.known.lock().await;
            let missing = known.iter().filter(|(_, seen)| !listed.contains(&seen.uid));
            missing.map(|(name, seen)| seen.metadata(name)).collect()
        };
        for gone in missing {
            // The definition may have been created after the list.
            let mut live = self.api().get_metadata_opt(&gone.name_any()).await;
            for _ in 0..LOOKS {
                if live.is_ok() {
                    break;
                }
                tokio::time::sleep(RETRY_AT_LEAST_EVERY).await;
                live = self.api().get_metadata_opt(&gone.name_any()).await;
            }
            match live {
                Ok(live) if live.as_ref().is_some_and(|live| live.uid() == gone.uid()) => {}
                Ok(_) => self.withdraw(&mut *self.known.lock().await, &gone).await,
                // Other definitions must not wait. The next list checks this one again.
                Err(error) => tracing::warn!("definition {}: {error}", gone.name_any()),
            }
        }
    }

    /// Creates and deletes APIServices, so that each served version has one. `gone` is a definition whose versions need
    /// none any more.
    async fn update_api_services(&self, gone: Option<&DefinitionMeta>) {
        if self.registers.load(Ordering::Relaxed) {
            let gone = gone.and_then(|gone| gone.uid());
            keep_api_services(&self.client, &self.kinds, gone.as_deref()).await;
        }
    }

    /// Serves a definition, and the definitions that wait for names that it has released.
    async fn reconcile(&self, name: &str) {
        let mut known = self.known.lock().await;
        match self.establish(&mut known, name).await {
            Ok(has_released) if has_released => self.retry_refused(&mut known).await,
            Ok(_) => {}
            Err(why) => tracing::debug!("definition {name}: {why}"),
        }
    }

    /// Retries the acceptance of names that were taken.
    async fn retry_refused(&self, known: &mut Known) {
        // The definition is checked again.
        known
            .values_mut()
            .filter(|seen| !seen.is_accepted)
            .for_each(|seen| seen.generation = NEVER);
        let others = self.api().list(&ListParams::default()).await;
        for other in others.map(|found| found.items).unwrap_or_default() {
            let name = other.name_any();
            if let Err(why) = self.establish(known, &name).await {
                tracing::debug!("definition {name}: {why}");
            }
        }
    }

    /// Serves the current state of a definition, and writes its status. Returns whether the definition has released
    /// names, for which another definition may wait.
    async fn establish(&self, known: &mut Known, name: &str) -> Result<bool, String> {
        let mut attempt = 1;
        loop {
            let live = self.api().get_opt(name).await.map_err(|error| error.to_string())?;
            let live = live.filter(|live| live.metadata.deletion_timestamp.is_none());
            let Some(mut live) = live else { return Ok(false) };
            self.withdraw_predecessor(known, &live).await;
            let (names, mut conflict) = self.accepted_names(&live);
            let is_accepted = conflict.is_none();
            let seen = Seen::new(&live, is_accepted);
            let is_new = !known.get(name).is_some_and(|before| before.is_as(&seen))
                || !self.kinds.is_served(name);
            let mut refused = None;
            // Same as in kube-apiserver, an invalid CA bundle prevents only the first serving of a definition.
            let is_held = !is_established(&live)
                && !self.kinds.is_served(name)
                && RuntimeKinds::ca_bundle_fault(&live).is_some();
            // A served definition continues with the names that were accepted before.
            if is_new && !is_held && (is_accepted || self.kinds.is_served(name)) {
                // The names are swapped, because copying a large definition is expensive.
                let asked = std::mem::replace(&mut live.spec.names, names.clone());
                refused = self.kinds.serve(&live).await.err().map(|error| error.to_string());
                live.spec.names = asked;
            }
            if let Some(why) = &refused {
                conflict.get_or_insert(("NotServed", why.clone()));
            }
            known.insert(name.to_owned(), seen);
            let is_served = self.kinds.is_served(name);
            let unserved = match is_served {
                true => None,
                false if is_held && is_accepted => Some(INVALID_CA_BUNDLE),
                false => Some(NOT_ACCEPTED),
            };
            let status = status(&live, &names, conflict, unserved, (self.now)());
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
                self.update_api_services(None).await;
            }
            let before = live.status.as_ref().and_then(|status| status.accepted_names.as_ref());
            let has_released = before.is_some_and(|before| *before != names);
            return refused.map_or(Ok(has_released), Err);
        }
    }

    /// Writes the status of a definition. Returns `false` if the definition was changed concurrently, or deleted.
    async fn patch_status(
        &self,
        seen: &CustomResourceDefinition,
        status: Value,
    ) -> Result<bool, String> {
        let metadata = json!({"uid": seen.uid(), "resourceVersion": seen.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let name = seen.name_any();
        let written =
            &PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match self.api().patch_status(&name, written, &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The names that are accepted, and the reason if a name of the spec is not. Names that were accepted before
    /// remain.
    fn accepted_names(
        &self,
        definition: &CustomResourceDefinition,
    ) -> (CustomResourceDefinitionNames, Option<Conflict>) {
        let asked = &definition.spec.names;
        let before = definition.status.as_ref().and_then(|status| status.accepted_names.clone());
        let mut names = before.unwrap_or_default();
        let mut taken = self.kinds.taken_names(&definition.spec.group, &asked.plural);
        // A name must not move to another field, so the accepted names of the definition itself are taken, too.
        taken.resources.insert(names.plural.clone());
        taken.resources.extend(names.singular.iter().cloned());
        taken.resources.extend(names.short_names.iter().flatten().cloned());
        taken.kinds.insert(names.kind.clone());
        taken.kinds.extend(names.list_kind.iter().cloned());
        let mut conflict = None;
        let in_use = |name: &str| format!("{name:?} is already in use");
        let mut refuse = |reason, why: String| conflict = Some((reason, why));
        let is_resource = |name: &str| taken.resources.contains(name);
        let is_kind = |name: &str| taken.kinds.contains(name);
        match &asked.plural {
            name if names.plural != *name && is_resource(name) => {
                refuse("PluralConflict", in_use(name));
            }
            name => names.plural.clone_from(name),
        }
        match &asked.singular {
            Some(name) if names.singular.as_ref() != Some(name) && is_resource(name) => {
                refuse("SingularConflict", in_use(name));
            }
            name => names.singular.clone_from(name),
        }
        let known = names.short_names.clone().unwrap_or_default();
        let of_others = |name: &&String| !known.contains(*name) && is_resource(name);
        let of_others = asked.short_names.iter().flatten().filter(of_others);
        match of_others.map(|name| in_use(name)).collect::<Vec<_>>().as_slice() {
            [] => names.short_names.clone_from(&asked.short_names),
            [one] => refuse("ShortNamesConflict", one.clone()),
            several => refuse("ShortNamesConflict", format!("[{}]", several.join(", "))),
        }
        match &asked.kind {
            name if names.kind != *name && is_kind(name) => refuse("KindConflict", in_use(name)),
            name => names.kind.clone_from(name),
        }
        match &asked.list_kind {
            Some(name) if names.list_kind.as_ref() != Some(name) && is_kind(name) => {
                refuse("ListKindConflict", in_use(name));
            }
            name => names.list_kind.clone_from(name),
        }
        names.categories.clone_from(&asked.categories);
        (names, conflict)
    }

    /// Withdraws the kind of a definition, so that other definitions can get its names.
    async fn withdraw(&self, known: &mut Known, gone: &DefinitionMeta) {
        let (name, uid) = (gone.name_any(), gone.uid().unwrap_or_default());
        if is_known(known, &name, &uid) && self.withdraw_kind(known, gone).await {
            self.update_api_services(Some(gone)).await;
            self.retry_refused(known).await;
        }
    }

    /// Withdraws the kind of an earlier definition of the same name, because the kind was closed with the earlier
    /// definition and must accept objects again.
    async fn withdraw_predecessor(&self, known: &mut Known, live: &CustomResourceDefinition) {
        let name = live.name_any();
        let before = known.get(&name).map(|seen| seen.metadata(&name));
        if let Some(before) = before.filter(|before| before.uid() != live.uid()) {
            self.withdraw_kind(known, &before).await;
        }
    }

    /// Removes a definition from the known ones, and stops serving its kind. Returns whether the kind was served.
    async fn withdraw_kind(&self, known: &mut Known, gone: &DefinitionMeta) -> bool {
        let name = gone.name_any();
        known.remove(&name);
        let was_served = self.kinds.is_served(&name);
        if was_served {
            let gone_until = async || self.gone_until(gone).await;
            self.kinds.withdraw(&name, gone_until).await;
        }
        was_served
    }
}

impl Definitions {
    /// The largest resourceVersion of the objects of a deleted definition, if another process may have created a
    /// definition of the same name; `None` otherwise.
    async fn gone_until(&self, gone: &DefinitionMeta) -> Option<u64> {
        match self.api().get_metadata_opt(&gone.name_any()).await {
            Ok(None) => None,
            Ok(Some(live)) if live.uid() == gone.uid() => None,
            Ok(Some(_)) | Err(_) => {
                Some(gone.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0))
            }
        }
    }
}

/// Whether the status of a definition has the condition `Established`.
pub(crate) fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.type_ == "Established" && one.status == "True")
}

/// The accepted names of a definition, if it has any.
fn accepted(definition: &CustomResourceDefinition) -> Option<CustomResourceDefinitionNames> {
    definition.status.as_ref()?.accepted_names.clone().filter(|names| !names.plural.is_empty())
}
