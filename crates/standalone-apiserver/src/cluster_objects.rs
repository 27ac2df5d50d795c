//! The objects that kube-apiserver creates for itself: its Service and endpoints, the CAs that verify its clients, and
//! its APIServices.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams, Preconditions,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::built_in::{flow_control_objects, priority_class, service_cidr};
use crate::certificates::Certificates;
use crate::files::LoadedObject;
use crate::objects::{ObjectError, unless_kept};

/// The field manager of these objects in a cluster.
pub(crate) const MANAGER: &str = "kube-apiserver";
/// The cluster IP of the API's Service.
const ADDRESS: &str = "10.96.0.1";
/// The range of the addresses of Services.
const RANGE: &str = "10.96.0.0/12";
/// The label of APIServices that the server has created for its own APIs.
const AUTOMATIC: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The values of this label, for a kind that is served from the start, and for a kind of a definition.
const FROM_START: &str = "onstart";
const WITH_DEFINITION: &str = "true";
/// The number of definitions in a page of a list, because they may be large.
const PAGE: u32 = 100;
/// The largest number of servers in the EndpointSlice: those that started last.
const SERVERS: usize = 16;
/// The number of attempts to renew an object that other servers renew concurrently.
const ATTEMPTS: usize = 10;
/// The group without APIServices: that of APIServices themselves.
const UNREGISTERED: &str = "apiregistration.k8s.io";
/// The group and version priorities. Groups of definitions follow those of Kubernetes.
const PRIORITIES: (i32, i32) = (1_000, 100);

/// The kinds of objects that users may change after the first start.
const UNCHANGED: [&str; 3] = ["FlowSchema", "PriorityLevelConfiguration", "ServiceCIDR"];

/// The port in the Service of a server that does not listen.
const NO_PORT: u16 = 6443;

/// The address of a listening server, and its certificates.
pub(crate) type Reached<'a> = (SocketAddr, &'a Certificates);

/// The objects of a server. The last two exist only if the server listens.
///
/// # Errors
/// The reason, if a certificate cannot be read.
pub(crate) fn objects(
    reached: Option<Reached<'_>>,
    now: Timestamp,
) -> io::Result<Vec<LoadedObject>> {
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
    objects.push(service_cidr::of_server(RANGE, now));
    objects.extend(flow_control_objects(now));
    objects.extend(priority_class::of_system());
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
    let place = "an object of the server itself";
    let objects = objects.into_iter();
    Ok(objects.map(|object| LoadedObject { place: place.to_owned(), object }).collect())
}

/// Updates objects of the server that another process has stored, because the address may have changed.
pub(crate) async fn renew(
    client: &Client,
    kinds: &RuntimeKinds,
    objects: Vec<LoadedObject>,
) -> Result<(), ObjectError> {
    for LoadedObject { place, object } in objects {
        let mut attempt = 1;
        loop {
            match renew_one(client, &object).await {
                Ok(()) => break,
                // Another server has renewed the object concurrently.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => {
                    unless_kept(kinds, Err(ObjectError::new(&place, error)))?;
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn renew_one(client: &Client, object: &Value) -> kube::Result<()> {
    if UNCHANGED.iter().any(|kind| object["kind"] == *kind) {
        return Ok(());
    }
    let manager = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let named: DynamicObject =
        serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let (group, version) = match text(&object["apiVersion"]).split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&object["apiVersion"])),
    };
    let kind = GroupVersionKind::gvk(&group, &version, &text(&object["kind"]));
    let namespace = named.namespace().unwrap_or_default();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let mut renewed = object.clone();
    if renewed["kind"] == "EndpointSlice" {
        let kept = api.get(&named.name_any()).await?;
        renewed["metadata"]["resourceVersion"] = kept.resource_version().into();
        renewed["endpoints"] = endpoints(&kept.data, object);
    }
    api.patch(&named.name_any(), &manager, &Patch::Merge(renewed)).await.map(drop)
}

/// The endpoints of this server, and the previous endpoints of other servers with the same ports, because all endpoints
/// of an EndpointSlice have the same ports.
fn endpoints(kept: &Value, own: &Value) -> Value {
    let mut all = own["endpoints"].as_array().cloned().unwrap_or_default();
    let ports = |slice: &Value| {
        let ports = slice["ports"].as_array().into_iter().flatten();
        ports.map(|port| port["port"].clone()).collect::<Vec<_>>()
    };
    if kept["addressType"] == own["addressType"] && ports(kept) == ports(own) {
        let others = kept["endpoints"].as_array().into_iter().flatten();
        let addresses: Vec<Value> = all.iter().map(|one| one["addresses"].clone()).collect();
        all.extend(others.filter(|other| !addresses.contains(&other["addresses"])).cloned());
    }
    all.truncate(SERVERS);
    all.into()
}

/// The ConfigMap with the CAs by which aggregated API servers authenticate requests.
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

/// The APIServices of the versions that a server serves from its start.
pub(crate) fn api_services(kinds: &RuntimeKinds) -> Vec<LoadedObject> {
    api_services_made(kinds, FROM_START)
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

/// Creates APIServices for new versions, and deletes those of versions that are not served any more. A failure is
/// retried at the next change.
///
/// The APIServices of stored definitions remain, whether their kinds are served here yet or not, except those of the
/// definition with the uid `going`, which is about to be removed. If other servers share the store, the APIServices of
/// kinds that are served from the start remain, too, because the other servers may be of another release.
pub(crate) async fn keep_api_services(client: &Client, kinds: &RuntimeKinds, going: Option<&str>) {
    let wanted = api_services_made(kinds, WITH_DEFINITION);
    if let Err(error) = keep(client, &wanted, kinds.is_shared(), going).await {
        tracing::debug!("APIServices: {error}");
    }
}

async fn keep(
    client: &Client,
    wanted: &[LoadedObject],
    is_shared: bool,
    going: Option<&str>,
) -> kube::Result<()> {
    let all: Api<APIService> = Api::all(client.clone());
    let found = all.list(&ListParams::default().labels(AUTOMATIC)).await?.items;
    let name_of = |loaded: &LoadedObject| text(&loaded.object["metadata"]["name"]);
    let wanted_names: HashSet<String> = wanted.iter().map(name_of).collect();
    let known: HashSet<String> = found.iter().map(ResourceExt::name_any).collect();
    let unwanted = |api: &&APIService| !wanted_names.contains(&api.name_any());
    let unwanted: Vec<&APIService> = found.iter().filter(unwanted).collect();
    let missing = wanted.iter().filter(|loaded| !known.contains(&name_of(loaded)));
    let missing: Vec<&LoadedObject> = missing.collect();
    if unwanted.is_empty() && missing.is_empty() {
        return Ok(());
    }
    let defined = defined(client, going).await?;
    for api in unwanted {
        let name = api.name_any();
        let is_of_server = api.labels().get(AUTOMATIC).is_some_and(|when| when == FROM_START);
        if defined.contains(&name) || is_shared && is_of_server {
            continue;
        }
        let own = Preconditions { uid: api.uid(), resource_version: api.resource_version() };
        let deleted = all.delete(&name, &DeleteParams::default().preconditions(own)).await;
        report(&name, deleted.map(drop));
    }
    let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    for loaded in missing {
        let (name, mut object) = (name_of(loaded), loaded.object.clone());
        if !defined.contains(&name) {
            object["metadata"]["labels"][AUTOMATIC] = FROM_START.into();
        }
        if let Ok(api) = serde_json::from_value(object) {
            report(&name, all.create(&post, &api).await.map(drop));
        }
    }
    Ok(())
}

/// The names of the APIServices of stored definitions, except the definition with the uid `going`.
async fn defined(client: &Client, going: Option<&str>) -> kube::Result<HashSet<String>> {
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut defined = HashSet::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = all.list(&page).await?;
        let staying =
            found.items.iter().filter(|one| going.is_none() || one.uid().as_deref() != going);
        for spec in staying.map(|one| &one.spec) {
            let served = spec.versions.iter().filter(|version| version.served);
            defined.extend(served.map(|version| format!("{}.{}", version.name, spec.group)));
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(defined),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn report(name: &str, done: kube::Result<()>) {
    if let Err(error) = done {
        tracing::debug!("APIService {name}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    use super::*;
    use crate::testing::{Member, shared_store};

    fn api_service(group: &str, when: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{group}"), "labels": {AUTOMATIC: when}},
            "spec": {
                "group": group, "version": "v1", "groupPriorityMinimum": 1_000,
                "versionPriority": 100,
            },
        })
    }

    #[tokio::test]
    async fn api_services_that_other_servers_may_serve_are_not_deleted() {
        let store = shared_store();
        let server = Member::start(&store).await;
        let all: Api<APIService> = Api::all(server.client.clone());
        let post = PostParams::default();
        let services = [
            api_service("defined.example.com", WITH_DEFINITION),
            api_service("later.example.com", FROM_START),
            api_service("gone.example.com", WITH_DEFINITION),
        ];
        for service in services {
            let service = serde_json::from_value(service).unwrap();
            all.create(&post, &service).await.unwrap();
        }
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.defined.example.com"},
            "spec": {
                "group": "defined.example.com", "scope": "Cluster",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        // The definition was created at another server, and is not served here yet.
        let definitions: Api<CustomResourceDefinition> = Api::all(server.client.clone());
        let definition = serde_json::from_value(definition).unwrap();
        let uid = definitions.create(&post, &definition).await.unwrap().uid();
        let left = async || {
            let found = all.list(&ListParams::default().labels(AUTOMATIC)).await.unwrap();
            let names = found.iter().map(ResourceExt::name_any);
            names.filter(|name| name.ends_with(".example.com")).collect::<Vec<String>>()
        };
        keep_api_services(&server.client, &server.kinds, None).await;
        assert_eq!(left().await, ["v1.defined.example.com", "v1.later.example.com"]);
        let apps = all.get("v1.apps").await.unwrap();
        assert_eq!(apps.labels().get(AUTOMATIC).map(String::as_str), Some(FROM_START));
        keep_api_services(&server.client, &server.kinds, uid.as_deref()).await;
        assert_eq!(left().await, ["v1.later.example.com"]);
        // No other server could serve it.
        keep(&server.client, &api_services(&server.kinds), false, None).await.unwrap();
        assert_eq!(left().await, ["v1.defined.example.com"; 0]);
    }

    fn slice(port: u16, addresses: &[String]) -> Value {
        let endpoint = |address: &String| json!({"addresses": [address]});
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "addressType": "IPv4",
            "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        })
    }

    #[tokio::test]
    async fn kubernetes_service_has_endpoints_of_all_servers_with_the_same_port() {
        let store = shared_store();
        let server = Member::start(&store).await;
        let address = |index: usize| format!("10.0.0.{index}");
        server.kinds.restore(slice(6443, &[address(0)])).await.unwrap();
        let slices: Api<EndpointSlice> = Api::namespaced(server.client.clone(), "default");
        let begun = async |port: u16, index: usize| {
            let object = slice(port, &[address(index)]);
            let place = String::new();
            renew(&server.client, &server.kinds, vec![LoadedObject { place, object }])
                .await
                .unwrap();
            let kept = slices.get("kubernetes").await.unwrap();
            kept.endpoints
                .iter()
                .flatten()
                .flat_map(|one| one.addresses.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(begun(6443, 1).await, [address(1), address(0)]);
        assert_eq!(begun(6443, 0).await, [address(0), address(1)]);
        assert_eq!(begun(6443, 0).await, [address(0), address(1)]);
        // All endpoints of an EndpointSlice have the same ports.
        assert_eq!(begun(6444, 2).await, [address(2)]);
        for index in 3..40 {
            begun(6444, index).await;
        }
        let last: Vec<String> = (24..40).rev().map(address).collect();
        assert_eq!(begun(6444, 39).await, last);
    }

    /// No server overwrites the concurrent update of the other one.
    #[tokio::test]
    async fn kubernetes_service_has_endpoints_of_servers_starting_concurrently() {
        let store = shared_store();
        let server = Member::start(&store).await;
        let address = |index: usize| format!("10.0.0.{index}");
        server.kinds.restore(slice(6443, &[address(0)])).await.unwrap();
        let begin = |index: usize| {
            let object = slice(6443, &[address(index)]);
            renew(
                &server.client,
                &server.kinds,
                vec![LoadedObject { place: String::new(), object }],
            )
        };
        let begun = futures::future::join_all((1..6).map(begin)).await;
        assert!(begun.iter().all(Result::is_ok));
        let slices: Api<EndpointSlice> = Api::namespaced(server.client.clone(), "default");
        let kept = slices.get("kubernetes").await.unwrap();
        assert_eq!(kept.endpoints.unwrap().len(), 6);
    }
}
