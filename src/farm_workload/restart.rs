//! `farmworkloads/restart`: replaces the Pods of a workload one after the other, same as `kubectl rollout restart`.
//!
//! The user needs the permission `patch` on the workload, and so does farm-operator. The manifests do not grant it,
//! because a program that may change all workloads may do everything in the cluster.

use aggregated_apiserver::backend::Reason;
use aggregated_apiserver::subresource::{
    Caller, Error, Parameters, Parent, ParentKey, Subresource, Success,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::FarmWorkload;

/// The field manager of a restart.
const MANAGER: &str = "farm-operator-restart";

/// The options of a restart.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct RestartOptions {
    /// `All` if nothing is to be restarted, and everything else is to be done.
    dry_run: Vec<String>,
}

/// The subresource.
pub fn restart() -> Subresource {
    Subresource::new("restart").post(post).supports_dry_run().parameters::<RestartOptions>()
}

async fn post(
    ParentKey(key): ParentKey,
    Parent(workload): Parent<FarmWorkload>,
    caller: Caller,
    Parameters(options): Parameters<RestartOptions>,
) -> Result<Success, Error> {
    let name = &workload.spec.workload;
    let resource = match workload.spec.kind.as_str() {
        "Deployment" => ApiResource::erase::<Deployment>(&()),
        "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
        "DaemonSet" => ApiResource::erase::<DaemonSet>(&()),
        kind => {
            let why = format!("restarting a {kind} is not supported");
            return Err(Error::bad_request(why));
        }
    };
    if workload.status.as_ref().is_some_and(|status| status.paused) {
        let why = format!("can't restart paused deployment \"{name}\": resume it first");
        return Err(Error::new(Reason::Conflict, why));
    }
    let namespace = key.namespace().unwrap_or_default();
    let permission = ResourceAttributes {
        verb: Some("patch".to_owned()),
        group: Some(resource.group.clone()),
        version: Some(resource.version.clone()),
        resource: Some(resource.plural.clone()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.clone()),
        ..ResourceAttributes::default()
    };
    caller.demand(&permission).await?;
    let restarted = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": restarted});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let params = PatchParams {
        dry_run: options.dry_run.iter().any(|one| !one.is_empty()),
        ..PatchParams::default()
    };
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..params };
    let workloads =
        Api::<DynamicObject>::namespaced_with(caller.server_client(), namespace, &resource);
    let patched = workloads.patch(name, &params, &Patch::Strategic(patch)).await;
    patched.map(|_| Success).map_err(|error| match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            let (why, plural) = (&status.message, &resource.plural);
            let hint = format!("{why}: grant farm-operator patch on {plural}.apps to use restart");
            Error::new(Reason::Forbidden, hint)
        }
        error => error.into(),
    })
}
