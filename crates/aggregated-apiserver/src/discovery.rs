//! Discovery: the served kinds and their verbs.
//!
//! All documents are generated when the server starts, and when resources of a group version change. They are served
//! from memory. They are available before any source is synced and while the cluster is unavailable, because a server
//! without discovery blocks the deletion of namespaces in the whole cluster.

mod aggregated;
mod legacy;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use serde_json::Value;

use crate::document::Document;
use crate::kind::Kind;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::verb;

/// All discovery documents.
#[derive(Debug)]
pub struct Discovery {
    /// The documents of the core group, if it is served: its versions, and the aggregated form.
    core: Option<[Document; 2]>,
    groups: Document,
    aggregated: Document,
    by_group: BTreeMap<String, Document>,
    by_version: BTreeMap<(String, String), Document>,
    /// The resources that each group version of the user lists.
    listed: Vec<Vec<APIResource>>,
}

impl Discovery {
    /// Generates all documents. `listed` has the resources of each group version of the user.
    pub fn new(kinds: &ServedKinds, listed: Vec<Vec<APIResource>>) -> Self {
        let groups = Groups::of(kinds, &listed);
        let mut by_version = BTreeMap::new();
        for (group, versions) in &groups.0 {
            for (version, resources) in versions {
                let list = legacy::resource_list(group, version, resources);
                by_version.insert((group.clone(), version.clone()), Document::json(&list));
            }
        }
        let core = groups.core().map(|core| {
            let (_, versions) = core;
            let aggregated = aggregated::document(std::iter::once(core));
            [Document::json(&legacy::core_versions(versions)), aggregated]
        });
        let by_group = groups.named().map(|(group, versions)| {
            (group.clone(), Document::json(&legacy::group(group, versions)))
        });
        let by_group = by_group.collect();
        let aggregated = aggregated::document(groups.named());
        let groups = Document::json(&legacy::group_list(&groups));
        Self { core, groups, aggregated, by_group, by_version, listed }
    }

    /// The resources that each group version of the user lists.
    pub fn listed(&self) -> &[Vec<APIResource>] {
        &self.listed
    }

    /// The paths of all discovery documents except `/apis`.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let core = self.core.as_ref().map(|_| "/api".to_owned());
        let groups = self.by_group.keys().map(|group| format!("/apis/{group}"));
        let versions = self.by_version.keys().map(|(group, version)| match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        });
        core.into_iter().chain(groups).chain(versions)
    }

    /// The document at `/api`, if the core group is served.
    pub fn core(&self, aggregated: bool) -> Option<&Document> {
        self.core.as_ref().map(|core| &core[usize::from(aggregated)])
    }

    /// The document at `/apis`.
    pub fn groups(&self) -> &Document {
        &self.groups
    }

    /// The document at `/apis` in the aggregated form.
    pub fn aggregated(&self) -> &Document {
        &self.aggregated
    }

    /// The document at `/apis/G`.
    pub fn group(&self, group: &str) -> Option<&Document> {
        self.by_group.get(group)
    }

    /// The document at `/apis/G/V`.
    pub fn version(&self, group: &str, version: &str) -> Option<&Document> {
        self.by_version.get(&(group.to_owned(), version.to_owned()))
    }
}

/// The resources of a version.
#[derive(Default)]
struct Resources<'a> {
    /// The kinds, by plural name.
    kinds: Vec<&'a ServedKind>,
    /// The resources that code of the user lists.
    listed: &'a [APIResource],
}

/// The versions of a group, preferred version first.
type Versions<'a> = Vec<(String, Resources<'a>)>;

/// The groups in the order of registration. Each has its versions, preferred version first, and each version has its
/// kinds by plural name.
struct Groups<'a>(Vec<(String, Versions<'a>)>);

impl<'a> Groups<'a> {
    /// The core group, if it is served.
    fn core(&self) -> Option<&(String, Versions<'a>)> {
        self.0.iter().find(|(group, _)| group.is_empty())
    }

    /// All groups except the core group.
    fn named(&self) -> impl Iterator<Item = &(String, Versions<'a>)> {
        self.0.iter().filter(|(group, _)| !group.is_empty())
    }

    fn of(kinds: &'a ServedKinds, listed: &'a [Vec<APIResource>]) -> Self {
        let mut groups = Self(Vec::new());
        for served in kinds.iter() {
            let kind = &served.kind;
            for version in &kind.versions {
                groups.version(&kind.group, &version.name).kinds.push(served);
            }
        }
        for (served, listed) in kinds.group_versions().iter().zip(listed) {
            let described = served.paths.described();
            groups.version(described.group(), described.version()).listed = listed;
        }
        for (group, version) in kinds.retained_group_versions() {
            groups.version(group, version);
        }
        let Self(mut groups) = groups;
        // A definition can exist without a served version.
        groups.retain(|(_, versions)| !versions.is_empty());
        for (_, versions) in &mut groups {
            for (_, resources) in versions.iter_mut() {
                resources.kinds.sort_by_key(|served| &served.kind.names.plural);
            }
            versions.sort_by(|(a, _), (b, _)| crate::kind::compare_versions(a, b));
        }
        Self(groups)
    }

    /// The resources of a version, which is added if it is missing.
    fn version(&mut self, group: &str, version: &str) -> &mut Resources<'a> {
        let versions = entry(&mut self.0, group);
        entry(versions, version)
    }
}

/// The value of a name in a list, which is added if it is missing.
fn entry<'b, T: Default>(list: &'b mut Vec<(String, T)>, name: &str) -> &'b mut T {
    let place = list.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        list.push((name.to_owned(), T::default()));
        list.len() - 1
    });
    &mut list[place].1
}

/// A subresource with its verbs, and the group, version and kind of its responses.
struct SubresourceEntry {
    name: &'static str,
    verbs: Vec<&'static str>,
    response_kind: (String, String, String),
}

/// The subresources of a kind in this version.
fn subresource_entries(served: &ServedKind, version: &str) -> Vec<SubresourceEntry> {
    let kind = &served.kind;
    let Some(version) = kind.version(version) else { return Vec::new() };
    let entry = |subresource: verb::ServedSubresource| {
        let (of, version) = match &subresource.kind {
            None => (&**kind, &**version),
            Some(other) => (&**other, &*other.storage),
        };
        let response_kind = (of.group.clone(), version.name.clone(), of.names.kind.clone());
        let verbs = subresource.verbs.iter().map(|verb| verb.name()).collect();
        SubresourceEntry { name: subresource.name, verbs, response_kind }
    };
    verb::subresources(served, version).into_iter().map(entry).collect()
}

fn verbs(served: &ServedKind) -> Vec<&'static str> {
    let mut verbs: Vec<_> = verb::verbs(served).iter().map(|verb| verb.name()).collect();
    // kube-apiserver sorts the verbs of built-in kinds.
    if served.kind.is_typed() {
        verbs.sort_unstable();
    }
    verbs
}

/// Adds the short names and the categories of a kind, unless they are empty.
fn add_other_names(resource: &mut Value, kind: &Kind) {
    for (key, list) in
        [("shortNames", &kind.names.short_names), ("categories", &kind.names.categories)]
    {
        if !list.is_empty() {
            resource[key] = list.clone().into();
        }
    }
}
