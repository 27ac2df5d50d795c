//! Puts objects of any kind into a server.

use std::collections::{HashMap, HashSet};

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::{Client, Discovery};
use serde_json::{Value, json};
use thiserror::Error;

use crate::files::Document;

/// An object that cannot be kept.
#[derive(Debug, Error)]
#[error("{what}: {why}")]
pub struct ObjectError {
    what: String,
    why: String,
}

impl ObjectError {
    pub(crate) fn new(what: impl Into<String>, why: impl ToString) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// Namespaces that are there from the start.
pub(crate) const NAMESPACES: [&str; 4] =
    ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes namespaces that are missing.
pub(crate) async fn create_namespaces<'a>(
    client: &Client,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), ObjectError> {
    let kind = GroupVersionKind::gvk("", "v1", "Namespace");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for name in names {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let what = format!("Namespace {name:?}");
        let object = serde_json::from_value(namespace);
        let object: DynamicObject = object.map_err(|error| ObjectError::new(&what, error))?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(ObjectError::new(what, error)),
        }
    }
    Ok(())
}

/// What an owner is called: version and kind, namespace and name.
type Owner = (String, String, Option<String>, String);

/// Makes objects in their order, each with its status, and the namespaces that
/// they need. References to owners that were made before lead to these: nobody
/// knows their uids beforehand.
pub(crate) async fn load(client: &Client, objects: Vec<Document>) -> Result<(), ObjectError> {
    if objects.is_empty() {
        return Ok(());
    }
    let discovered = Discovery::new(client.clone()).run().await;
    let discovered = discovered.map_err(|error| ObjectError::new("discovery", error))?;
    let mut kinds: HashMap<TypeMeta, (ApiResource, Scope)> = HashMap::new();
    for group in discovered.groups() {
        for version in group.versions() {
            for (resource, able) in group.versioned_resources(version) {
                let of = TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: resource.kind.clone(),
                };
                kinds.insert(of, (resource, able.scope));
            }
        }
    }
    let mut made: HashSet<String> = HashSet::new();
    let mut owners: HashMap<Owner, String> = HashMap::new();
    for Document { place, object } in objects {
        let what = describe(&place, &object);
        let status = object.get("status").filter(|status| !status.is_null()).cloned();
        let mut object: DynamicObject =
            serde_json::from_value(object).map_err(|error| ObjectError::new(&what, error))?;
        let namespace = object.metadata.namespace.clone();
        for reference in object.metadata.owner_references.iter_mut().flatten() {
            let owner = (reference.api_version.clone(), reference.kind.clone());
            let known = [namespace.clone(), None].into_iter().find_map(|namespace| {
                owners.get(&(owner.0.clone(), owner.1.clone(), namespace, reference.name.clone()))
            });
            if let Some(uid) = known {
                reference.uid.clone_from(uid);
            }
        }
        let types = object.types.clone().unwrap_or_default();
        let Some((resource, scope)) = kinds.get(&types).cloned() else {
            let why = format!(
                "{} {} is not served: give its CustomResourceDefinition too",
                types.api_version, types.kind
            );
            return Err(ObjectError::new(what, why));
        };
        let failed = |error: kube::Error| ObjectError::new(&what, error);
        let api: Api<DynamicObject> = match (scope, &object.metadata.namespace) {
            (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
            (Scope::Namespaced, namespace) => {
                let namespace = namespace.as_deref().unwrap_or("default");
                if made.insert(namespace.to_owned()) {
                    create_namespaces(client, [namespace]).await?;
                }
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
        };
        let created = api.create(&PostParams::default(), &object).await.map_err(failed)?;
        let name = created.metadata.name.as_deref().unwrap_or_default();
        let owner = (types.api_version, types.kind, namespace, name.to_owned());
        owners.insert(owner, created.metadata.uid.clone().unwrap_or_default());
        let is_kept =
            status.as_ref().is_none_or(|status| created.data.get("status") == Some(status));
        if let (Some(status), false) = (status, is_kept) {
            let patch = Patch::Merge(json!({"status": status}));
            let patched = api.patch_status(name, &PatchParams::default(), &patch).await;
            patched.map_err(failed)?;
        }
    }
    Ok(())
}

/// `object 2 (Pod "web")`, for messages.
fn describe(place: &str, object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{place} ({} {:?})", text(&object["kind"]), text(&object["metadata"]["name"]))
}
