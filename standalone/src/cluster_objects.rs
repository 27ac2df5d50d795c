//! Objects that kube-apiserver makes for itself: its Service and endpoints, the CAs of
//! its callers, and its APIServices.

use std::fs;
use std::io;
use std::net::SocketAddr;

use aggregated_apiserver::RuntimeKinds;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::certificates::Certificates;
use crate::files::LoadedObject;
use crate::objects::ObjectError;

/// Who makes them in a cluster.
pub(crate) const MANAGER: &str = "kube-apiserver";
/// The address of the API among those of Services.
const ADDRESS: &str = "10.96.0.1";
/// What an APIService says that was made for an API of the server itself.
const AUTOMATIC: &str = "kube-aggregator.kubernetes.io/automanaged";
/// APIs that have no APIService: the one of APIServices themselves.
const UNREGISTERED: &str = "apiregistration.k8s.io";
/// Groups of definitions come behind those of Kubernetes.
const PRIORITIES: (i32, i32) = (1_000, 100);

/// The port that a server without a socket has by its Service.
const NO_PORT: u16 = 6443;

/// The address of a server that listens, and its certificates.
pub(crate) type Reached<'a> = (SocketAddr, &'a Certificates);

/// The objects of a server; the last two only of one that listens.
///
/// # Errors
/// When a certificate cannot be read.
pub(crate) fn objects(reached: Option<Reached<'_>>) -> io::Result<Vec<LoadedObject>> {
    let port = reached.map_or(NO_PORT, |(address, _)| address.port());
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": ADDRESS, "clusterIPs": [ADDRESS],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    })];
    if let Some((address, certificates)) = reached {
        objects.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }));
        objects.push(authentication(certificates)?);
    }
    let place = "what the server makes for itself";
    let objects = objects.into_iter();
    Ok(objects.map(|object| LoadedObject { place: place.to_owned(), object }).collect())
}

/// Makes objects of the server say what is so now, where another process has kept them: its address
/// may be another one.
pub(crate) async fn renew(client: &Client, objects: Vec<LoadedObject>) -> Result<(), ObjectError> {
    let manager = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    for LoadedObject { place, object } in objects {
        let failed = |error: &dyn std::fmt::Display| ObjectError::new(&place, error.to_string());
        let patch = Patch::Merge(object.clone());
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|error| failed(&error))?;
        let types = object.types.clone().unwrap_or_default();
        let kind = GroupVersionKind::try_from(&types).map_err(|error| failed(&error))?;
        let namespace = object.namespace().unwrap_or_default();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let patched = api.patch(&object.name_any(), &manager, &patch).await;
        patched.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// What aggregated servers authenticate their callers by.
fn authentication(certificates: &Certificates) -> io::Result<Value> {
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": fs::read_to_string(&certificates.ca)?,
            "requestheader-client-ca-file": fs::read_to_string(&certificates.front_proxy_ca)?,
            "requestheader-allowed-names": "[]",
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    }))
}

/// The APIServices of the versions that a server has from its start.
pub(crate) fn api_services(kinds: &RuntimeKinds) -> Vec<LoadedObject> {
    api_services_made(kinds, "onstart")
}

/// The APIServices of the versions that are served now.
fn api_services_made(kinds: &RuntimeKinds, when: &str) -> Vec<LoadedObject> {
    let versions = kinds.versions().into_iter().filter(|(group, _)| group != UNREGISTERED);
    let objects = versions.map(|(group, version)| {
        let (own, of_version) = PRIORITIES;
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}"), "labels": {AUTOMATIC: when}},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": if group.is_empty() { 18_000 } else { own },
                "versionPriority": of_version,
            },
        })
    });
    let place = "an API of the server itself";
    objects.map(|object| LoadedObject { place: place.to_owned(), object }).collect()
}

/// Makes APIServices for versions that are served since, and takes those away of
/// versions that are served no more. What fails is done with the next change.
pub(crate) async fn keep_api_services(client: &Client, kinds: &RuntimeKinds) {
    let all: Api<APIService> = Api::all(client.clone());
    let made = ListParams::default().labels(AUTOMATIC);
    let Ok(found) = all.list(&made).await else { return };
    let wanted = api_services_made(kinds, "true");
    let is_wanted =
        |name: &str| wanted.iter().any(|loaded| loaded.object["metadata"]["name"] == name);
    let names = found.items.into_iter().filter_map(|api| api.metadata.name);
    let known: Vec<String> = names.collect();
    for name in known.iter().filter(|name| !is_wanted(name)) {
        report(name, all.delete(name, &DeleteParams::default()).await.map(drop));
    }
    let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    for LoadedObject { object, .. } in &wanted {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if !known.iter().any(|known| known == name)
            && let Ok(api) = serde_json::from_value(object.clone())
        {
            report(name, all.create(&post, &api).await.map(drop));
        }
    }
}

fn report(name: &str, done: kube::Result<()>) {
    if let Err(error) = done {
        tracing::debug!("APIService {name}: {error}");
    }
}
