//! Lookups of other objects during admission.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::AdmissionRequest;
use crate::admission::AdmissionError;
use crate::kind::{Version, go_reader};
use crate::object::{Key, Object, metadata};
use crate::served_kind::{Backing, ServedKind};
use crate::watch_cache::{Scope, WatchCache};

impl<'a> AdmissionRequest<'a> {
    /// The cache of the namespaces, if this server stores them.
    pub(in crate::admission) fn stored_namespaces(&self) -> Option<Arc<WatchCache>> {
        let (served, _) = self.kinds.find("", "v1", "namespaces")?;
        served.store().is_some().then(|| Arc::clone(&served.cache))
    }

    /// The kind with this name, and the version, if this server serves the kind and caches its objects.
    pub(in crate::admission) fn kind_called(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Option<(&'a ServedKind, &'a Version)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_meant =
            |served: &&ServedKind| served.kind.group == group && served.kind.names.kind == kind;
        let served = self.kinds.iter().find(is_meant)?;
        let is_cached = matches!(
            served.backing,
            Backing::Stored(_) | Backing::Virtual(_) | Backing::Computed(_)
        );
        let version = served.kind.version(version).filter(|_| is_cached)?;
        Some((served, version))
    }

    /// Looks up an object of a kind that this server serves: `find("farm.example.com/v1", "llamas", Some("default"),
    /// "dolly")`. The object includes the last write that was acknowledged, and has no resourceVersion.
    ///
    /// # Errors
    /// 503 if the kind is not served or not synced yet, or if the object does not match the type. A plugin must not
    /// ignore the error, because it would decide without data.
    pub fn find<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>, AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let Some(found) = served.cache.get(&Key::new(namespace, name)) else { return Ok(None) };
        read_as(served, version, &found.object).map(Some)
    }

    /// Looks up all objects of a kind that this server serves, in one namespace or in all, in the order of their
    /// namespaces and names. Same as [`find`](Self::find) otherwise. Each object is decoded again, so this is for kinds
    /// with few objects.
    ///
    /// # Errors
    /// Same as [`find`](Self::find).
    pub fn find_all<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<K>, AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
        let objects = served.cache.snapshot();
        let found = objects.from(&scope, None);
        found.map(|found| read_as(served, version, &found.object)).collect()
    }

    /// Looks up the first `limit` objects of a kind, and returns the number of all. Same as
    /// [`find_all`](Self::find_all) otherwise.
    ///
    /// # Errors
    /// Same as [`find`](Self::find).
    pub fn find_first<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<K>, u64), AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
        let objects = served.cache.snapshot();
        let first = objects.from(&scope, None).take(limit);
        let first = first.map(|found| read_as(served, version, &found.object));
        Ok((first.collect::<Result<_, _>>()?, objects.count(&scope)))
    }

    /// The kind and the version of a lookup.
    fn looked_up(
        &self,
        api_version: &str,
        resource: &str,
    ) -> Result<(&'a ServedKind, &'a Version), AdmissionError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let unknown = AdmissionError::unavailable;
        let Some((served, version)) = self.kinds.find(group, version, resource) else {
            return Err(unknown(format!("{resource} of {api_version} are not served here")));
        };
        if let Backing::Direct(_) = served.backing {
            let why = "cannot be looked up, because their backend is called for every read";
            return Err(unknown(format!("{resource} of {api_version} {why}")));
        }
        if !served.cache.is_synced() {
            return Err(unknown(format!("{resource} of {api_version} are not known yet")));
        }
        Ok((served, version))
    }
}

/// An object of a kind, in a version, as a Rust type.
fn read_as<K: DeserializeOwned>(
    served: &ServedKind,
    version: &Version,
    object: &Arc<Object>,
) -> Result<K, AdmissionError> {
    let unknown = |why: String| AdmissionError::unavailable(why);
    let shown = served.kind.in_version(object, version);
    let (tree, _) = shown.map_err(|error| unknown(error.to_string()))?.to_parts();
    let name = metadata::name(&tree).to_owned();
    go_reader::read_object(&tree).map_err(|error| {
        let resource = &served.kind.names.plural;
        let api_version = served.kind.api_version(&version.name);
        unknown(format!("{resource} {name:?} of {api_version} does not fit its type: {error}"))
    })
}
