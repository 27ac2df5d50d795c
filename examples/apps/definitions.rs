//! Kinds that are defined at run time: each `Definition` is served as a kind.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::serving::PostStart;
use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionVersion,
};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config_maps::{Cluster, ConfigMaps};

/// The definition of a kind. Its name is the plural of the kind.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "apps.example.com", version = "v1", kind = "Definition")]
#[kube(status = "DefinitionStatus")]
#[kube(printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"))]
#[kube(printcolumn(name = "State", type_ = "string", json_path = ".status.state"))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
pub struct DefinitionSpec {
    /// The kind, such as `Database`.
    kind: String,
    /// The schema, the columns and the subresources, same as in a version of a CustomResourceDefinition.
    #[schemars(with = "Value", extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    version: CustomResourceDefinitionVersion,
}

/// The status of a definition.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct DefinitionStatus {
    /// `Served`, or the reason why the kind is not served.
    state: String,
}

/// A kind whose objects are ConfigMaps.
pub fn kind(cluster: &Cluster, definition: CustomResourceDefinition) -> VirtualKind<ConfigMaps> {
    let maps = Arc::new(ConfigMaps {
        cluster: Arc::clone(cluster),
        resource: definition.spec.names.plural.clone(),
        is_namespaced: definition.spec.scope == "Namespaced",
    });
    VirtualKind::watched(definition, maps).keeps_metadata().create().update().delete()
}

/// The kind of a definition, in the group and version of the definition itself.
fn defined(definition: &Definition) -> CustomResourceDefinition {
    let mut crd = Definition::crd();
    let (plural, kind) = (definition.name_any(), definition.spec.kind.clone());
    crd.metadata.name = Some(format!("{plural}.{}", crd.spec.group));
    crd.spec.scope = "Namespaced".to_owned();
    crd.spec.names = CustomResourceDefinitionNames { plural, kind, ..Default::default() };
    let (name, version) = ("v1".to_owned(), definition.spec.version.clone());
    crd.spec.versions =
        vec![CustomResourceDefinitionVersion { name, served: true, storage: true, ..version }];
    crd
}

/// Serves the kinds of all definitions, and follows their changes.
pub async fn serve(server: PostStart, cluster: Cluster) {
    let (definitions, kinds) = (Api::<Definition>::all(server.client()), server.runtime_kinds());
    let _ = cluster.set(server.cluster_client());
    kinds.wait_synced().await;
    let (found, writer) = reflector::store();
    let events = watcher(definitions.clone(), watcher::Config::default());
    let mut events = pin!(reflector(writer, events.default_backoff()));
    let mut served = BTreeMap::new();
    while let Some(event) = events.next().await {
        let _ = event.inspect_err(|error| tracing::warn!(%error, "cannot read the definitions"));
        let wanted = found.state().into_iter().map(|one| (one.name_any(), one));
        let wanted: BTreeMap<_, _> = wanted.collect();
        for name in served.keys().filter(|name| !wanted.contains_key(*name)) {
            // The ConfigMaps stay.
            kinds.withdraw_kind(&format!("{name}.apps.example.com")).await;
        }
        served.retain(|name, _| wanted.contains_key(name));
        for (name, definition) in wanted {
            if served.get(&name) == Some(&definition.spec) {
                continue;
            }
            let result = kinds.serve_kind(kind(&cluster, defined(&definition))).await;
            let state = result.map_or_else(|error| error.to_string(), |()| "Served".to_owned());
            let patch = Patch::Merge(json!({"status": {"state": state}}));
            let patched = definitions.patch_status(&name, &PatchParams::default(), &patch).await;
            let _ =
                patched.inspect_err(|error| tracing::warn!(name, %error, "cannot write a status"));
            served.insert(name, definition.spec.clone());
        }
    }
}
