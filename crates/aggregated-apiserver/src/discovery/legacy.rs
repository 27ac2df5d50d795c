//! `APIGroupList`, `APIGroup` and `APIResourceList`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    Groups, Resources, SubresourceEntry, Versions, add_other_names, subresource_entries, verbs,
};
use crate::kind::api_version;
use crate::served_kind::ServedKind;
use crate::verb;

/// `/api`
pub(super) fn core_versions(versions: &Versions<'_>) -> Value {
    let names: Vec<&String> = versions.iter().map(|(name, _)| name).collect();
    json!({"kind": "APIVersions", "versions": names, "serverAddressByClientCIDRs": []})
}

/// `/apis`
pub(super) fn group_list(groups: &Groups<'_>) -> Value {
    let groups: Vec<Value> = groups
        .named()
        .map(|(name, versions)| Value::Object(group_members(name, versions)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/G`
pub(super) fn group(name: &str, versions: &Versions<'_>) -> Value {
    let mut group = group_members(name, versions);
    group.insert("kind".to_owned(), "APIGroup".into());
    group.insert("apiVersion".to_owned(), "v1".into());
    Value::Object(group)
}

fn group_members(name: &str, versions: &Versions<'_>) -> Map<String, Value> {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": api_version(name, version), "version": version}))
        .collect();
    let mut group = Map::new();
    group.insert("name".to_owned(), name.into());
    group.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
    group.insert("versions".to_owned(), versions.into());
    group
}

/// `/apis/G/V`
pub(super) fn resource_list(group: &str, version: &str, resources: &Resources<'_>) -> Value {
    let listed = resources.listed.iter().filter_map(|listed| serde_json::to_value(listed).ok());
    let resources: Vec<Value> = resources
        .kinds
        .iter()
        .flat_map(|served| {
            let parts = subresource_entries(served, version);
            let parts = parts.iter().map(|entry| subresource(served, entry)).collect::<Vec<_>>();
            // A kind whose objects another server serves has subresources alone.
            let own = (!verb::verbs(served).is_empty()).then(|| resource(served));
            own.into_iter().chain(parts)
        })
        .chain(listed)
        .collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": resources,
    })
}

fn resource(served: &ServedKind) -> Value {
    let kind = &served.kind;
    let mut resource = json!({
        "name": kind.names.plural,
        "singularName": kind.names.singular,
        "namespaced": kind.is_namespaced(),
        "kind": kind.names.kind,
        "verbs": verbs(served),
    });
    // Objects that are not stored have no storage version.
    if served.store().is_some() {
        resource["storageVersionHash"] = storage_version_hash(served).into();
    }
    add_other_names(&mut resource, kind);
    resource
}

fn subresource(served: &ServedKind, entry: &SubresourceEntry) -> Value {
    let kind = &served.kind;
    let (group, version, response_kind) = &entry.response_kind;
    let mut subresource = json!({
        "name": format!("{}/{}", kind.names.plural, entry.name),
        "singularName": "",
        "namespaced": kind.is_namespaced(),
        "kind": response_kind,
        "verbs": entry.verbs,
    });
    // Said only where it is another one than that of the list.
    if *group != kind.group {
        subresource["group"] = group.clone().into();
        subresource["version"] = version.clone().into();
    }
    subresource
}

/// Base64 of the first eight bytes of SHA-256 over `group/version/Kind` of the stored objects.
fn storage_version_hash(served: &ServedKind) -> String {
    let kind = &served.kind;
    let (group, version) = match &kind.view {
        Some(view) => (view.group, view.version),
        None => (kind.group.as_str(), kind.storage.name.as_str()),
    };
    let text = format!("{group}/{version}/{}", kind.names.kind);
    STANDARD.encode(&Sha256::digest(text)[..8])
}
