//! Discovery of the kinds that the cluster serves, limited to the group versions that are needed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use http::Request;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::kind_name::KindName;

/// The longest time for a response. The server of an aggregated API may be unavailable.
const PATIENCE: Duration = Duration::from_secs(10);
/// The only version of the core group, which is not in the list of groups.
const CORE: &str = "v1";

/// The discovery of one round. Every response is cached for the round.
///
/// The list of all groups is requested first. A group version that is not in the list causes no further request, so
/// invalid references of users cost one request in total.
pub(super) struct Discovery<'a> {
    client: &'a Client,
    group_versions: Option<Result<HashSet<String>, String>>,
    resources: HashMap<String, Result<Vec<ApiResource>, String>>,
    /// The number of further group versions that may be requested.
    left: usize,
}

/// A kind that can be listed and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The path of the objects, for example `/apis/apps/v1/deployments`.
    pub path: String,
    /// The name of the resource, for example `deployments.apps`.
    pub resource: String,
    pub is_namespaced: bool,
}

/// The reason why a kind was not found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// The cluster does not serve the kind, or the kind cannot be watched.
    Absent,
    /// The limit of requests is reached.
    Later,
    /// The request failed.
    Failed(String),
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct ApiResources {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

impl ApiResource {
    fn is_watched(&self) -> bool {
        ["list", "watch"].iter().all(|verb| self.verbs.iter().any(|one| one == verb))
    }
}

impl<'a> Discovery<'a> {
    /// Creates a discovery that requests at most `most` group versions.
    pub fn new(client: &'a Client, most: usize) -> Self {
        Self { client, group_versions: None, resources: HashMap::new(), left: most }
    }

    /// Finds the path of the objects of a kind.
    pub async fn find(&mut self, kind: &KindName) -> Result<Served, NotFound> {
        let group_version = kind.api_version();
        if group_version != CORE && !self.group_versions().await?.contains(group_version) {
            return Err(NotFound::Absent);
        }
        let prefix = if group_version == CORE { "/api/" } else { "/apis/" };
        let path = format!("{prefix}{group_version}");
        if !self.resources.contains_key(group_version) {
            self.left = self.left.checked_sub(1).ok_or(NotFound::Later)?;
            let asked = self.ask::<ApiResources>(&path).await;
            let resources = asked.map(|answer| answer.resources);
            self.resources.insert(group_version.to_owned(), resources);
        }
        let resources = match self.resources.get(group_version) {
            Some(Ok(resources)) => resources,
            Some(Err(why)) => return Err(NotFound::Failed(why.clone())),
            None => return Err(NotFound::Later),
        };
        let is_it = |one: &&ApiResource| {
            one.kind == kind.kind() && !one.name.contains('/') && one.is_watched()
        };
        let found = resources.iter().find(is_it).ok_or(NotFound::Absent)?;
        let resource = match kind.group() {
            "" => found.name.clone(),
            group => format!("{}.{group}", found.name),
        };
        Ok(Served {
            path: format!("{path}/{}", found.name),
            resource,
            is_namespaced: found.namespaced,
        })
    }

    async fn group_versions(&mut self) -> Result<&HashSet<String>, NotFound> {
        let known = match self.group_versions.take() {
            Some(known) => known,
            None => self.ask::<Groups>("/apis").await.map(|answer| {
                let versions = answer.groups.into_iter().flat_map(|group| group.versions);
                versions.map(|version| version.group_version).collect()
            }),
        };
        // A failure is cached, too, because further requests would fail in the same way.
        let known = self.group_versions.insert(known);
        known.as_ref().map_err(|why| NotFound::Failed(why.clone()))
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(PATIENCE, self.client.request::<T>(request)).await;
        let answer = answer.map_err(|_| format!("{path}: no answer in time"))?;
        answer.map_err(|error| format!("{path}: {error}"))
    }
}
