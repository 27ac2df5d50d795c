//! A computed kind as a complete program. It lists the Pods that mount each PersistentVolumeClaim, which kubectl does
//! not show.
//!
//! `cargo run -p aggregated-apiserver --example computed -- --kubeconfig ~/.kube/config` serves the kind behind an
//! APIService. With `manifests` in front, the program prints everything to deploy instead, including the permissions to
//! read its sources. Then `kubectl get claimuses -A --field-selector spec.mounted=false` finds the claims that no Pod
//! mounts.

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{
    ApiServer, Computed, FieldPermissions, Kinds, Lookup, ServeArgs, start_logging,
};
use clap::{Parser, Subcommand};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The use of a claim.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "claims.example.com",
    version = "v1",
    kind = "ClaimUse",
    namespaced,
    selectable = ".spec.mounted",
    printcolumn(name = "Mounted", type_ = "boolean", json_path = ".spec.mounted"),
    printcolumn(name = "Pods", type_ = "string", json_path = ".spec.pods")
)]
struct ClaimUseSpec {
    /// Whether a Pod mounts it. Not set for readers without permission to read Pods, so it must be optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    mounted: Option<bool>,
    /// The Pods that do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pods: Vec<String>,
}

/// The fields that are read of a Pod. The other fields use no memory.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpecView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodSpecView {
    volumes: Vec<VolumeView>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeView {
    persistent_volume_claim: Option<MountedView>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MountedView {
    claim_name: String,
}

/// Indexes Pods by the claims that they mount.
fn claims(pod: &PodView) -> Vec<String> {
    let claims =
        pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

impl Computed for ClaimUse {
    /// Only the name of a claim is needed, so the server requests only metadata.
    type Source = PartialObjectMeta<PersistentVolumeClaim>;
    type Related = Lookup<PodView>;

    fn compute(claim: &Self::Source, pods: &Self::Related) -> Option<Self> {
        let name = claim.metadata.name.as_deref()?;
        let mounting = pods.find_by(claims, claim.metadata.namespace.as_deref(), name);
        let pods: Vec<String> =
            mounting.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        Some(Self::new(name, ClaimUseSpec { mounted: Some(!pods.is_empty()), pods }))
    }

    /// `spec.mounted` and `spec.pods` are hidden from users without permission to read Pods in the namespace.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new().protects_in_namespace::<PodView>(["spec.mounted", "spec.pods"])
    }
}

#[derive(Parser)]
#[command(name = "computed", about = "Serves who mounts PersistentVolumeClaims")]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Print everything to deploy, as YAML
    Manifests(ManifestOptions),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    let server = ApiServer::new("claim-uses", Kinds::new().computed::<ClaimUse>());
    match program.command {
        Some(Command::Manifests(options)) => print!("{}", server.manifests(&options)?),
        None => {
            start_logging(&program.serve);
            server.run(&program.serve).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::computed::check_field_permissions;
    use serde_json::{Value, from_value, json};

    fn pod(namespace: &str, name: &str, claim: &str) -> PodView {
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        let metadata = json!({"namespace": namespace, "name": name});
        let volumes: [Value; 2] = [json!({"name": "tmp", "emptyDir": {}}), claim];
        from_value(json!({"metadata": metadata, "spec": {"volumes": volumes}})).unwrap()
    }

    fn pods() -> Lookup<PodView> {
        Lookup::from_objects([pod("a", "web-0", "data"), pod("b", "web-1", "data")])
    }

    fn claim(name: &str) -> PartialObjectMeta<PersistentVolumeClaim> {
        from_value(json!({"metadata": {"namespace": "a", "name": name}})).unwrap()
    }

    #[test]
    fn a_claim_is_used_by_the_pods_of_its_namespace_that_mount_it() {
        let used = |name: &str| ClaimUse::compute(&claim(name), &pods()).unwrap().spec;
        let pods = vec!["web-0".to_owned()];
        assert_eq!(used("data"), ClaimUseSpec { mounted: Some(true), pods });
        assert_eq!(used("old"), ClaimUseSpec { mounted: Some(false), pods: vec![] });
    }

    #[test]
    fn fields_computed_from_pods_are_declared() {
        assert_eq!(check_field_permissions::<ClaimUse>(&claim("data"), pods), Ok(()));
    }

    /// The program is allowed to read its sources, and nothing else.
    #[test]
    fn manifests_grant_permissions_on_sources_and_lookups() {
        let server = ApiServer::new("claim-uses", Kinds::new().computed::<ClaimUse>());
        let image = ["computed", "manifests", "--image", "registry.example.com/claim-uses:1"];
        let Some(Command::Manifests(options)) = Program::parse_from(image).command else {
            panic!("no manifests")
        };
        let manifests = server.manifests(&options).unwrap();
        for resource in ["persistentvolumeclaims", "pods"] {
            assert!(manifests.contains(resource), "{manifests}");
        }
        assert!(!manifests.contains("nodes"), "{manifests}");
    }
}
