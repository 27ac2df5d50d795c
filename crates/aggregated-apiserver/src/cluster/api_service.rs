//! The `caBundle` of our own APIServices.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Cluster;

/// How an APIService stands to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// kube-apiserver trusts our CA.
    Done,
    /// It is not there.
    Absent,
    /// It belongs to another Service, and is left alone.
    OfAnother,
    /// It says that TLS is not verified, and is left alone.
    Unverified,
}

impl Cluster {
    /// Makes kube-apiserver trust this CA when it calls us, if the APIService
    /// is there, is ours (it names this Service) and is to be verified.
    ///
    /// # Errors
    /// When the cluster refuses or does not answer.
    pub async fn set_ca_bundle(
        &self,
        api_service: &str,
        (namespace, service): (&str, &str),
        ca_bundle: &str,
    ) -> Result<Registration, kube::Error> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let Some(found) = api.get_opt(api_service).await? else {
            return Ok(Registration::Absent);
        };
        let spec = found.spec.unwrap_or_default();
        let names = spec.service.unwrap_or_default();
        if names.namespace.as_deref() != Some(namespace) || names.name.as_deref() != Some(service) {
            return Ok(Registration::OfAnother);
        }
        // Both together are refused: whoever set it wants no verification.
        if spec.insecure_skip_tls_verify == Some(true) {
            return Ok(Registration::Unverified);
        }
        if spec.ca_bundle.is_some_and(|bundle| bundle.0 == ca_bundle.as_bytes()) {
            return Ok(Registration::Done);
        }
        // The resourceVersion makes this a change of what was looked at.
        let patch = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": {"caBundle": STANDARD.encode(ca_bundle)},
        });
        api.patch(api_service, &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(api_service, "set the caBundle of the APIService");
        Ok(Registration::Done)
    }
}
