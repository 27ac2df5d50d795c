//! The kinds that are served, and their objects.

use std::sync::Arc;

use serde_json::Value;

use super::{RuntimeKinds, StoredKind};
use crate::kind::Version;
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::server::kept_objects::StoredObjects;
use crate::storage::{StoreError, await_newest};
use crate::watch_cache::WatchCache;

impl RuntimeKinds {
    /// Whether the store may contain objects of another process, perhaps including initial objects of this one. In a
    /// shared store such objects can appear at any time.
    pub fn were_kept(&self) -> bool {
        self.is_shared() || !self.0.store.is_new()
    }

    /// Whether other servers write to the store too.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    /// Whether the store contains objects of the kind with this name (`foos.example.com`), regardless of the server
    /// that created them and of whether this server serves the kind.
    ///
    /// # Errors
    /// If the store does not respond.
    pub async fn has_objects(&self, qualified: &str) -> Result<bool, StoreError> {
        await_newest(&*self.0.store).await?;
        let collections = self.0.store.collections();
        Ok(collections.iter().any(|collection| collection.as_str() == qualified))
    }

    /// Whether the kind with this name (`foos.example.com`) was added at run time and is served.
    pub fn is_served(&self, qualified: &str) -> bool {
        let Some(handler) = self.0.handler.upgrade() else { return false };
        handler
            .kinds()
            .iter()
            .any(|served| served.came_at_run_time && served.kind.qualified() == qualified)
    }

    /// The served versions of all groups, as unique pairs of group and version.
    pub fn versions(&self) -> Vec<(String, String)> {
        let Some(handler) = self.0.handler.upgrade() else { return Vec::new() };
        let kinds = handler.kinds();
        let of_kinds = kinds.iter().map(|served| &served.kind).flat_map(|kind| {
            kind.versions.iter().map(|version| (kind.group.clone(), version.name.clone()))
        });
        let of_paths = kinds.group_versions().iter().map(|served| {
            let described = served.paths.described();
            (described.group().to_owned(), described.version().to_owned())
        });
        let mut versions = Vec::new();
        for one in of_kinds.chain(of_paths) {
            if !versions.contains(&one) {
                versions.push(one);
            }
        }
        versions
    }

    /// All kinds with stored objects, each with one version.
    pub fn stored_kinds(&self) -> Vec<StoredKind> {
        let Some(handler) = self.0.handler.upgrade() else { return Vec::new() };
        let kinds = handler.kinds();
        let stored = kinds.iter().filter(|served| served.kind.view.is_none());
        let stored = stored.filter(|served| served.is_stored());
        let named = stored.filter_map(|served| {
            let kind = &served.kind;
            let is_stored = |version: &&Arc<Version>| version.name == kind.storage.name;
            let version = kind.versions.iter().find(is_stored).or(kind.versions.first())?;
            Some(StoredKind {
                group: kind.group.clone(),
                version: version.name.clone(),
                kind: kind.names.kind.clone(),
                plural: kind.names.plural.clone(),
                is_namespaced: kind.is_namespaced(),
            })
        });
        named.collect()
    }

    /// An object in this version, or in its storage version if it cannot be converted. `None` also if the kind is not
    /// served.
    pub fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Value> {
        let kinds = self.0.handler.upgrade()?.kinds();
        let (served, version) = kinds.find(group, version, plural)?;
        let found = served.cache.get(&Key::new(namespace, name))?;
        Some(Value::Object(served.kind.in_version_or_as_kept(&found.object, version)))
    }

    /// The number of creations, changes and deletions of objects of a kind in this process. While it is the same, the
    /// objects are the same. `None` if the kind is not served.
    pub fn changes(&self, group: &str, plural: &str) -> Option<u64> {
        Some(self.cache(group, plural)?.changes())
    }

    /// All objects of a kind at one moment; `None` if the kind is not served.
    pub fn objects(&self, group: &str, plural: &str) -> Option<StoredObjects> {
        Some(StoredObjects::new(self.cache(group, plural)?.snapshot()))
    }

    fn cache(&self, group: &str, plural: &str) -> Option<Arc<WatchCache>> {
        let kinds = self.0.handler.upgrade()?.kinds();
        let is_it =
            |served: &&ServedKind| served.kind.group == group && served.kind.names.plural == plural;
        kinds.iter().find(is_it).map(|served| Arc::clone(&served.cache))
    }
}
