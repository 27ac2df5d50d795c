//! Finds kinds by the names that users type.

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use tracing::instrument;

/// The kinds that a cluster serves, those of the core group first.
pub struct Kinds(Vec<APIGroupDiscovery>);

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub resource: ApiResource,
    pub is_namespaced: bool,
}

impl Found {
    /// The unique name of the kind: `pods`, `deployments.apps`.
    pub fn name(&self) -> String {
        qualified(&self.resource.plural, &self.resource.group)
    }
}

/// Joins a plural and a group.
pub fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl Kinds {
    /// Discovers the kinds that a cluster serves.
    #[instrument(skip_all, err(level = "debug"))]
    pub async fn discover(client: &Client) -> Result<Self> {
        let mut groups = client.list_core_api_versions_aggregated().await?.items;
        groups.extend(client.list_api_groups_aggregated().await?.items);
        Ok(Self(groups))
    }

    /// Finds a kind by its plural, singular, kind or short name, optionally followed by a dot and the group. Returns
    /// the version that the cluster prefers.
    #[instrument(skip_all, fields(kind = asked), err(level = "debug"))]
    pub fn find(&self, asked: &str) -> Result<Found> {
        let (name, wanted) = match asked.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (asked.to_lowercase(), None),
        };
        for group in &self.0 {
            let of_group = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref());
            let of_group = of_group.unwrap_or_default();
            if wanted.is_some_and(|wanted| wanted != of_group) {
                continue;
            }
            for version in &group.versions {
                let found = version.resources.iter().find(|resource| is_called(resource, &name));
                if let Some(found) = found {
                    let version = version.version.as_deref().unwrap_or_default();
                    return usable(of_group, version, found);
                }
            }
        }
        bail!("the cluster serves no such kind; `kubectl api-resources` lists all")
    }
}

fn is_called(resource: &APIResourceDiscovery, name: &str) -> bool {
    let kind = kind_name(resource).map(str::to_lowercase);
    let names = [resource.resource.as_deref(), resource.singular_resource.as_deref()];
    let mut names = names.into_iter().flatten();
    !name.is_empty()
        && (kind.as_deref() == Some(name)
            || names.any(|one| one == name)
            || resource.short_names.iter().any(|short| short == name))
}

fn kind_name(resource: &APIResourceDiscovery) -> Option<&str> {
    resource.response_kind.as_ref()?.kind.as_deref()
}

fn usable(group: &str, version: &str, resource: &APIResourceDiscovery) -> Result<Found> {
    for verb in ["list", "create"] {
        let is_served = resource.verbs.iter().any(|served| served == verb);
        ensure!(is_served, "objects of this kind cannot be recorded: it has no verb {verb}");
    }
    let plural = resource.resource.as_deref().context("the kind has no plural")?;
    let kind = kind_name(resource).context("the kind has no name")?;
    let kind = GroupVersionKind::gvk(group, version, kind);
    Ok(Found {
        resource: ApiResource::from_gvk_with_plural(&kind, plural),
        is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
    })
}
