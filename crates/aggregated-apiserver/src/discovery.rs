//! Discovery: the served kinds and their verbs.
//!
//! All documents are generated when the server starts and are served from memory. They are available before any source
//! is synced and while the cluster is unavailable, because a server without discovery blocks the deletion of namespaces
//! in the whole cluster.

mod aggregated;
mod legacy;

use std::collections::BTreeMap;

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
}

impl Discovery {
    /// Generates all documents.
    pub fn new(kinds: &ServedKinds) -> Self {
        let groups = Groups::of(kinds);
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
        Self {
            core,
            groups: Document::json(&legacy::group_list(&groups)),
            aggregated: aggregated::document(groups.named()),
            by_group: by_group.collect(),
            by_version,
        }
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
type Resources<'a> = Vec<&'a ServedKind>;
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

    fn of(kinds: &'a ServedKinds) -> Self {
        let mut groups: Vec<(String, Versions<'a>)> = Vec::new();
        for served in kinds.iter() {
            let kind = &served.kind;
            let at = groups.iter().position(|(group, _)| *group == kind.group);
            let at = at.unwrap_or_else(|| {
                groups.push((kind.group.clone(), Vec::new()));
                groups.len() - 1
            });
            let versions = &mut groups[at].1;
            for name in kind.versions.iter().map(|version| &version.name) {
                match versions.iter_mut().find(|(version, _)| version == name) {
                    Some((_, resources)) => resources.push(served),
                    None => versions.push((name.clone(), vec![served])),
                }
            }
        }
        // A definition can exist without a served version.
        groups.retain(|(_, versions)| !versions.is_empty());
        for (_, versions) in &mut groups {
            for (_, resources) in versions.iter_mut() {
                resources.sort_by_key(|served| &served.kind.names.plural);
            }
            versions.sort_by(|(a, _), (b, _)| crate::kind::compare_versions(a, b));
        }
        Self(groups)
    }
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
