//! Loads objects of any kind into a server.

use std::collections::{HashMap, HashSet};

use aggregated_apiserver::runtime_kinds::{RestoreError, RuntimeKinds};
use k8s_openapi::Resource;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::built_in::default_toleration_seconds::add_tolerations;
use crate::built_in::priority;
use crate::files::LoadedObject;

/// The namespaces that exist from the start.
pub(crate) const NAMESPACES: [&str; 4] =
    ["default", "kube-node-lease", "kube-public", "kube-system"];

/// An object that cannot be stored.
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

/// The identity of an object: apiVersion, kind, namespace and name.
type Name = (String, String, String, String);

/// Restores objects in their order, each with its status, after the namespaces that they need. An object that other
/// objects reference as their owner gets the uid in these references.
///
/// `own` are the server's own objects that are not among `objects`. Objects that another process has stored do not
/// change, and are not written. If there may be such objects, a missing object does not prevent the start if the store
/// is full, or if the object is one of the server's own, because a full disk must not prevent reads.
pub(crate) async fn load(
    kinds: &RuntimeKinds,
    objects: Vec<LoadedObject>,
    own: Vec<LoadedObject>,
) -> Result<(), ObjectError> {
    let owners = owners(&objects);
    let classes = priority_classes(objects.iter().chain(&own));
    let mut namespaces: HashSet<String> = HashSet::new();
    let brought = objects.iter().filter(|loaded| is_namespace(&loaded.object));
    let brought: HashSet<String> =
        brought.map(|loaded| text(&loaded.object, "/metadata/name")).collect();
    for name in NAMESPACES.map(str::to_owned) {
        if !brought.contains(&name) && namespaces.insert(name.clone()) {
            let restored = restore_namespace(kinds, &name).await;
            let failed = |why| ObjectError::new(format!("Namespace {name:?}"), why);
            unless_kept(kinds, restored.map_err(failed))?;
        }
    }
    // Namespaces among the objects are created first, in any order of the objects.
    let (mut ordered, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|loaded| is_namespace(&loaded.object));
    ordered.extend(others);
    for LoadedObject { place, mut object } in ordered {
        let namespace = text(&object, "/metadata/namespace");
        if !namespace.is_empty()
            && !brought.contains(&namespace)
            && namespaces.insert(namespace.clone())
        {
            let restored = restore_namespace(kinds, &namespace).await;
            unless_full(kinds, &format!("{place} (Namespace {namespace:?})"), restored)?;
        }
        let what = describe(&place, &object);
        if is(&object, "v1", "Pod") {
            priority::complete_loaded(&mut object, &classes);
            if let Some(pod) = object.as_object_mut() {
                add_tolerations(pod);
            }
        }
        let uid = names(&object).into_iter().find_map(|name| owners.get(&name));
        if let (Some(uid), Some(metadata)) = (uid, object["metadata"].as_object_mut()) {
            metadata.entry("uid").or_insert_with(|| uid.as_str().into());
        }
        unless_full(kinds, &what, restore(kinds, object).await)?;
    }
    for LoadedObject { place, object } in own {
        let what = describe(&place, &object);
        let restored = match kinds.restore(object).await {
            Err(RestoreError::Exists) => Ok(()),
            restored => restored.map_err(|error| ObjectError::new(what, error)),
        };
        unless_kept(kinds, restored)?;
    }
    Ok(())
}

/// Logs the reason for which an object of the server itself cannot be written, if another process has written objects
/// before.
pub(crate) fn unless_kept(
    kinds: &RuntimeKinds,
    written: Result<(), ObjectError>,
) -> Result<(), ObjectError> {
    match written {
        Err(error) if kinds.were_kept() => {
            tracing::warn!(%error, "cannot write an object of the server");
            Ok(())
        }
        written => written,
    }
}

/// Logs that the store is full, if another process has written objects before.
fn unless_full(
    kinds: &RuntimeKinds,
    what: &str,
    restored: Result<(), RestoreError>,
) -> Result<(), ObjectError> {
    match restored {
        Err(RestoreError::NoRoom(why)) if kinds.were_kept() => {
            tracing::warn!(
                object = %what,
                error = %why,
                "cannot load object; the server starts without it"
            );
            Ok(())
        }
        restored => restored.map_err(|why| ObjectError::new(what, why)),
    }
}

/// Restores an object. An object that another process has stored does not change.
async fn restore(kinds: &RuntimeKinds, object: Value) -> Result<(), RestoreError> {
    match kinds.restore(object).await {
        Err(RestoreError::Exists) if kinds.were_kept() => Ok(()),
        restored => restored,
    }
}

async fn restore_namespace(kinds: &RuntimeKinds, name: &str) -> Result<(), RestoreError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    restore(kinds, namespace).await
}

fn is_namespace(object: &Value) -> bool {
    is(object, "v1", "Namespace")
}

fn is(object: &Value, api_version: &str, kind: &str) -> bool {
    object["apiVersion"] == api_version && object["kind"] == kind
}

/// The valid PriorityClasses among these objects. Invalid ones are rejected when they are restored.
fn priority_classes<'a>(objects: impl Iterator<Item = &'a LoadedObject>) -> Vec<PriorityClass> {
    let objects = objects.map(|loaded| &loaded.object);
    let classes =
        objects.filter(|object| is(object, PriorityClass::API_VERSION, PriorityClass::KIND));
    classes.filter_map(|object| PriorityClass::deserialize(object).ok()).collect()
}

/// The uids in the owner references of objects.
fn owners(objects: &[LoadedObject]) -> HashMap<Name, String> {
    let mut owners = HashMap::new();
    for LoadedObject { object, .. } in objects {
        let references = object["metadata"]["ownerReferences"].as_array();
        for reference in references.into_iter().flatten() {
            let [first, _] = names(object);
            let name = (
                text(reference, "/apiVersion"),
                text(reference, "/kind"),
                first.2,
                text(reference, "/name"),
            );
            let of_cluster = (name.0.clone(), name.1.clone(), String::new(), name.3.clone());
            let uid = text(reference, "/uid");
            owners.entry(name).or_insert_with(|| uid.clone());
            owners.entry(of_cluster).or_insert(uid);
        }
    }
    owners
}

/// The identities of an object as a namespaced and as a cluster-scoped object.
fn names(object: &Value) -> [Name; 2] {
    let namespace = text(object, "/metadata/namespace");
    // An object with a namespace is not cluster-scoped.
    let of_cluster = if namespace.is_empty() { String::new() } else { namespace.clone() };
    let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
    let name = |namespace: String| {
        (
            text(object, "/apiVersion"),
            text(object, "/kind"),
            namespace,
            text(object, "/metadata/name"),
        )
    };
    [name(namespace), name(of_cluster)]
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The position, kind and name of an object for messages: `object 2 (Pod "web")`.
fn describe(place: &str, object: &Value) -> String {
    format!("{place} ({} {:?})", text(object, "/kind"), text(object, "/metadata/name"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::api::Api;

    use super::*;
    use crate::testing::{Member, shared_store};

    fn loaded(objects: &[Value]) -> Vec<LoadedObject> {
        let place = || "a file".to_owned();
        objects
            .iter()
            .map(|object| LoadedObject { place: place(), object: object.clone() })
            .collect()
    }

    /// Both servers read the store before either of them writes to it.
    #[tokio::test]
    async fn servers_with_a_shared_store_load_objects_only_once() {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let definition = serde_json::from_value(definition).unwrap();
        let objects = loaded(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brought"}}),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "implied"},
            }),
            json!({
                "apiVersion": "example.com/v1", "kind": "Foo",
                "metadata": {"name": "a", "namespace": "brought"},
            }),
        ]);
        let store = shared_store();
        let servers = [Member::start(&store).await, Member::start(&store).await];
        let mut uids = Vec::new();
        for server in &servers {
            server.definitions.create("a definition", &definition).await.unwrap();
            load(&server.kinds, objects.clone(), Vec::new()).await.unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), "implied");
            uids.push(maps.get("a").await.unwrap().metadata.uid);
        }
        assert_eq!(uids[0], uids[1]);
    }

    #[tokio::test]
    async fn match_label_keys_are_not_merged_into_selectors_of_loaded_pods() {
        let selector =
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]});
        let constraint = json!({
            "maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector, "matchLabelKeys": ["a"],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "default", "labels": {"a": "1"}},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "topologySpreadConstraints": [constraint],
            },
        });
        let server = Member::start(&shared_store()).await;
        load(&server.kinds, loaded(&[pod]), Vec::new()).await.unwrap();
        let pods: Api<Pod> = Api::default_namespaced(server.client.clone());
        let found = pods.get("a").await.unwrap().spec.unwrap().topology_spread_constraints.unwrap();
        let found = serde_json::to_value(&found[0].label_selector).unwrap();
        assert_eq!(found, selector);
    }

    #[tokio::test]
    async fn loaded_pods_get_the_priority_of_their_priority_class() {
        let class = |name: &str, value: i64, rest: Value| {
            let mut class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value,
            });
            class.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            class
        };
        let high = class("high", 7, json!({"preemptionPolicy": "Never"}));
        let usual = class("usual", 3, json!({"globalDefault": true}));
        let preempts = Some("PreemptLowerPriority");
        for (classes, spec, expected) in [
            (vec![], json!({}), (None, Some(0), preempts)),
            (
                vec![&high, &usual],
                json!({"priorityClassName": "high"}),
                (Some("high"), Some(7), Some("Never")),
            ),
            (vec![&high, &usual], json!({}), (Some("usual"), Some(3), preempts)),
            (vec![&usual], json!({"priority": 5}), (None, Some(5), preempts)),
            (vec![&usual], json!({"priorityClassName": "missing"}), (Some("missing"), None, None)),
        ] {
            let metadata = json!({"name": "a", "namespace": "default"});
            let mut pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
            pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
            // A PriorityClass after its Pods counts, too.
            let objects: Vec<Value> =
                [pod].into_iter().chain(classes.into_iter().cloned()).collect();
            let server = Member::start(&shared_store()).await;
            load(&server.kinds, loaded(&objects), Vec::new()).await.unwrap();
            let pods: Api<Pod> = Api::default_namespaced(server.client.clone());
            let found = pods.get("a").await.unwrap().spec.unwrap();
            let found = (
                found.priority_class_name.as_deref(),
                found.priority,
                found.preemption_policy.as_deref(),
            );
            assert_eq!(found, expected, "{spec}");
        }
    }
}
