//! Kinds that are defined at run time: each `Definition` is served as a kind.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceSubresourceScale,
    JSONSchemaProps,
};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::config_maps::{Cluster, ConfigMaps};

/// The definition of a kind. Its name is the plural of the kind.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "apps.example.com",
    version = "v1",
    kind = "Definition",
    status = "DefinitionStatus",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct DefinitionSpec {
    /// The kind, such as `Database`.
    kind: String,
    /// The schema of the `spec` of the objects, with defaults.
    #[schemars(schema_with = "any_object")]
    schema: JSONSchemaProps,
    /// The columns that `kubectl get` prints.
    #[serde(default)]
    columns: Vec<CustomResourceColumnDefinition>,
    /// The fields for `kubectl scale`.
    scale: Option<CustomResourceSubresourceScale>,
}

/// The status of a definition.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct DefinitionStatus {
    /// `Served`, or the reason why the kind is not served.
    state: String,
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

impl Definition {
    fn generated(&self) -> serde_json::Result<CustomResourceDefinition> {
        let (group, version) = (Self::group(&()), Self::version(&()));
        let (plural, DefinitionSpec { kind, schema, columns, scale }) =
            (self.name_any(), &self.spec);
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": schema, "status": status}});
        let mut version = json!({
            "name": version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
        });
        if let Some(scale) = scale {
            version["subresources"]["scale"] = json!(scale);
        }
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            },
        }))
    }
}

/// The kind `Definition`, whose ConfigMaps are in the namespace of the server.
pub fn kind(cluster: &Cluster, namespace: &str) -> VirtualKind<ConfigMaps> {
    stored_in(cluster, Definition::crd(), Some(namespace.to_owned()))
}

/// A kind whose objects are ConfigMaps.
fn stored_in(
    cluster: &Cluster,
    definition: CustomResourceDefinition,
    namespace: Option<String>,
) -> VirtualKind<ConfigMaps> {
    let (cluster, resource) = (Arc::clone(cluster), definition.spec.names.plural.clone());
    let maps = Arc::new(ConfigMaps { cluster, resource, namespace });
    VirtualKind::watched(definition, maps).keeps_metadata().create().update().delete()
}

/// Serves the kinds of all definitions, and follows their changes.
pub async fn follow(definitions: Api<Definition>, kinds: RuntimeKinds, cluster: Cluster) {
    let (found, writer) = reflector::store();
    let events = watcher(definitions.clone(), watcher::Config::default());
    let mut events = pin!(reflector(writer, events.default_backoff()));
    let mut served: BTreeMap<String, DefinitionSpec> = BTreeMap::new();
    while let Some(event) = events.next().await {
        if let Err(error) = event {
            tracing::warn!(%error, "cannot read the definitions");
        }
        let wanted = found.state();
        let names: BTreeSet<String> = wanted.iter().map(|one| one.name_any()).collect();
        let unwanted: Vec<_> =
            served.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in unwanted {
            // The ConfigMaps stay.
            kinds.withdraw_kind(&format!("{name}.{}", Definition::group(&()))).await;
            served.remove(&name);
        }
        for definition in wanted {
            let name = definition.name_any();
            if served.get(&name) == Some(&definition.spec) {
                continue;
            }
            let state = match serve(&definition, &kinds, &cluster).await {
                Ok(()) => {
                    served.insert(name.clone(), definition.spec.clone());
                    "Served".to_owned()
                }
                Err(error) => error.to_string(),
            };
            let patch = Patch::Merge(json!({"status": {"state": state}}));
            let patched = definitions.patch_status(&name, &PatchParams::default(), &patch).await;
            if let Err(error) = patched {
                tracing::warn!(name, %error, "cannot write the status of a definition");
            }
        }
    }
}

async fn serve(definition: &Definition, kinds: &RuntimeKinds, cluster: &Cluster) -> Result<()> {
    Ok(kinds.serve_kind(stored_in(cluster, definition.generated()?, None)).await?)
}
