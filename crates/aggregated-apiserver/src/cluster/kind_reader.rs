//! Reads objects of any kind from the cluster: the parameters of admission policies.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use super::{Asker, Cluster, ClusterError};
use crate::object::Tree;
use crate::object::names::{check_dns_1123_label, check_path_segment};

/// The largest number of objects of one list.
const OBJECTS: u32 = 500;
/// The largest number of kinds whose resources are cached.
const KINDS: usize = 1_000;

/// The kind of request, for errors.
const READ: &str = "read of parameters";

/// Reads objects of kinds that are known by their names alone.
pub struct KindReader {
    cluster: Cluster,
    /// The resources of kinds, by apiVersion and kind.
    resources: Mutex<HashMap<(String, String), ClusterResource>>,
}

/// The resource of a kind in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterResource {
    resource: ApiResource,
    /// Whether the kind is namespaced.
    pub is_namespaced: bool,
}

/// The objects to read.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The object with this name.
    Named(&'a str),
    /// The objects that this label selector matches.
    Selected(&'a str),
}

impl KindReader {
    /// A reader of objects of this cluster.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, resources: Mutex::default() }
    }

    /// The resource of a kind; `None` if the cluster does not serve the kind. `user` is the user of the request, for
    /// the limits of concurrent reads.
    ///
    /// # Errors
    /// If the cluster does not respond.
    pub async fn resource(
        &self,
        (api_version, kind): (&str, &str),
        user: &str,
    ) -> Result<Option<ClusterResource>, ClusterError> {
        let key = (api_version.to_owned(), kind.to_owned());
        let known = |resources: &HashMap<_, ClusterResource>| resources.get(&key).cloned();
        if let Some(known) = known(&self.resources.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(Some(known));
        }
        let client = &self.cluster.client;
        let listed = async {
            let listed = match api_version.contains('/') {
                true => client.list_api_group_resources(api_version).await,
                false => client.list_core_api_resources(api_version).await,
            };
            match listed {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                listed => listed.map(Some),
            }
        };
        let Some(listed) = self.read("GET of API resources", user, listed).await? else {
            return Ok(None);
        };
        let is_meant = |name: &str, of: &str| of == kind && !name.contains('/');
        let found = listed.resources.into_iter().find(|one| is_meant(&one.name, &one.kind));
        let Some(found) = found else { return Ok(None) };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: found.kind,
            plural: found.name,
        };
        let found = ClusterResource { resource, is_namespaced: found.namespaced };
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if resources.len() >= KINDS {
            resources.clear();
        }
        resources.insert(key, found.clone());
        Ok(Some(found))
    }

    /// The resource of a kind, read again from the cluster.
    ///
    /// # Errors
    /// Same as [`resource`](Self::resource).
    pub async fn current_resource(
        &self,
        kind: (&str, &str),
        user: &str,
    ) -> Result<Option<ClusterResource>, ClusterError> {
        let key = (kind.0.to_owned(), kind.1.to_owned());
        self.resources.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.resource(kind, user).await
    }

    /// Reads objects of a kind, of one namespace if the kind is namespaced. Returns `None` if the cluster responds with
    /// 404: the object is missing, or the kind is not served any more at this path.
    ///
    /// # Errors
    /// If the cluster does not respond, if more than 500 objects match a selector, or if the name or the namespace is
    /// invalid.
    pub async fn objects(
        &self,
        of: &ClusterResource,
        namespace: Option<&str>,
        wanted: Wanted<'_>,
        user: &str,
    ) -> Result<Option<Vec<Tree>>, ClusterError> {
        check_path(namespace, wanted)?;
        let client = self.cluster.client.clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &of.resource),
            None => Api::all_with(client, &of.resource),
        };
        let read = async {
            let found = match wanted {
                Wanted::Named(name) => api.get(name).await.map(|found| (vec![found], false)),
                Wanted::Selected(labels) => {
                    let page = ListParams::default().labels(labels).limit(OBJECTS);
                    api.list(&page).await.map(|found| {
                        let token = found.metadata.continue_;
                        (found.items, token.is_some_and(|token| !token.is_empty()))
                    })
                }
            };
            match found {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                found => found.map(Some),
            }
        };
        let Some((found, has_more)) = self.read(READ, user, read).await? else { return Ok(None) };
        if has_more {
            return Err(ClusterError::new(READ, format!("there are more than {OBJECTS}")));
        }
        found.into_iter().map(|object| self.tree(of, object)).collect::<Result<_, _>>().map(Some)
    }

    /// An object as a tree. The objects of a list have no apiVersion and kind.
    fn tree(&self, of: &ClusterResource, object: DynamicObject) -> Result<Tree, ClusterError> {
        match serde_json::to_value(object) {
            Ok(Value::Object(mut tree)) => {
                tree.insert("apiVersion".to_owned(), of.resource.api_version.clone().into());
                tree.insert("kind".to_owned(), of.resource.kind.clone().into());
                Ok(tree)
            }
            Ok(_) => Ok(Tree::new()),
            Err(error) => Err(ClusterError::new(READ, error)),
        }
    }

    async fn read<T>(
        &self,
        asked: &'static str,
        user: &str,
        read: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ClusterError> {
        let places = (&self.cluster.namespace_places, Asker::User(user));
        Cluster::within_bounds(asked, places, Box::pin(read)).await
    }
}

/// Checks the namespace and the name that become part of a path. Other values could address another object.
///
/// # Errors
/// If one of them is invalid.
fn check_path(namespace: Option<&str>, wanted: Wanted<'_>) -> Result<(), ClusterError> {
    let invalid = |what: &str, value: &str| {
        let message = format!("the {what} {value:?} of the parameters is invalid");
        let why = message.clone();
        Err(ClusterError { message, until: "until it is valid", why, is_busy: false })
    };
    if let Some(namespace) = namespace.filter(|one| !check_dns_1123_label(one).is_empty()) {
        return invalid("namespace", namespace);
    }
    match wanted {
        Wanted::Named(name) if !is_path_segment(name) => invalid("name", name),
        Wanted::Named(_) | Wanted::Selected(_) => Ok(()),
    }
}

fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && check_path_segment(name).is_empty() && !name.contains(['?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_namespaces_cannot_change_the_path() {
        for (namespace, name, is_valid) in [
            (Some("n"), "a", true),
            (None, "system:a.b", true),
            (Some("n/x"), "a", false),
            (Some(".."), "a", false),
            (Some(""), "a", false),
            (None, "", false),
            (None, "..", false),
            (None, "a/b", false),
            (None, "a?watch=true", false),
            (None, "a#b", false),
            (None, "a%2fb", false),
        ] {
            let checked = check_path(namespace, Wanted::Named(name));
            assert_eq!(checked.is_ok(), is_valid, "{namespace:?} {name}");
        }
    }
}
