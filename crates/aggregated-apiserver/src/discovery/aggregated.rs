//! `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`: everything at once.

mod listed;

use serde_json::{Value, json};

use super::{SubresourceEntry, Versions, add_other_names, subresource_entries, verbs};
use crate::document::Document;
use crate::served_kind::ServedKind;

/// Clients read the parameters: this text is exact.
const CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api` or `/apis` in its aggregated form. The hash is over everything but `kind` and
/// `apiVersion`, as in kube-apiserver.
pub(super) fn document<'a>(groups: impl Iterator<Item = &'a (String, Versions<'a>)>) -> Document {
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, resources)| {
                    let of_kinds = resources.kinds.iter();
                    let of_kinds = of_kinds.map(|served| resource(group, version, served));
                    let listed = listed::resources(group, version, resources.listed);
                    let resources: Vec<Value> = of_kinds.chain(listed).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let content = json!({"metadata": {}, "items": items});
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    Document {
        content_type: CONTENT_TYPE,
        cache_control: Some("public"),
        ..Document::json(&list).hashed(&content.to_string())
    }
}

fn resource(group: &str, version: &str, served: &ServedKind) -> Value {
    let kind = &served.kind;
    let mut resource = json!({
        "resource": kind.names.plural,
        "responseKind": {"group": group, "version": version, "kind": kind.names.kind},
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": kind.names.singular,
        "verbs": verbs(served),
    });
    // A kind whose objects another server serves has subresources alone. kube-apiserver describes their parent like this.
    if verbs(served).is_empty() {
        resource["responseKind"] = json!({"group": "", "version": "", "kind": ""});
        resource["singularResource"] = "".into();
    } else {
        add_other_names(&mut resource, kind);
    }
    let parts: Vec<Value> = subresource_entries(served, version).iter().map(subresource).collect();
    if !parts.is_empty() {
        resource["subresources"] = parts.into();
    }
    resource
}

fn subresource(entry: &SubresourceEntry) -> Value {
    let (group, version, kind) = &entry.response_kind;
    json!({
        "subresource": entry.name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": entry.verbs,
    })
}
