//! Resources that code of the user lists, in the aggregated form. The conversion is the same as in kube-aggregator, which
//! converts the lists of servers without this form.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use serde_json::{Value, json};

/// The resources of a group version, each with its subresources.
pub(super) fn resources(group: &str, version: &str, listed: &[APIResource]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for one in listed.iter().filter(|one| !one.name.contains('/')) {
        let mut resource = json!({
            "resource": one.name,
            "responseKind": response_kind(group, version, one),
            "scope": scope(one),
            "singularResource": one.singular_name,
            "verbs": one.verbs,
        });
        for (key, names) in [("shortNames", &one.short_names), ("categories", &one.categories)] {
            if let Some(names) = names {
                resource[key] = names.clone().into();
            }
        }
        all.push(resource);
    }
    for one in listed {
        let Some((parent, name)) = one.name.split_once('/') else { continue };
        let place = all.iter().position(|resource| resource["resource"] == parent);
        let place = place.unwrap_or_else(|| {
            all.push(json!({
                "resource": parent,
                "responseKind": {"group": "", "version": "", "kind": ""},
                "scope": scope(one),
                "singularResource": "",
                "verbs": [],
            }));
            all.len() - 1
        });
        let subresource = json!({
            "subresource": name,
            "responseKind": response_kind(group, version, one),
            "verbs": one.verbs,
        });
        match all[place].get_mut("subresources").and_then(Value::as_array_mut) {
            Some(known) => known.push(subresource),
            None => all[place]["subresources"] = json!([subresource]),
        }
    }
    all
}

fn scope(resource: &APIResource) -> &'static str {
    if resource.namespaced { "Namespaced" } else { "Cluster" }
}

fn response_kind(group: &str, version: &str, resource: &APIResource) -> Value {
    let group = resource.group.as_deref().unwrap_or(group);
    let version = resource.version.as_deref().unwrap_or(version);
    json!({"group": group, "version": version, "kind": resource.kind})
}
