//! The `caBundle` of the APIServices of this server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Cluster;

/// The state of an APIService of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// kube-apiserver trusts the CA of this server.
    Done,
    /// The APIService does not exist.
    Absent,
    /// The APIService belongs to another Service, and is not changed.
    OfAnother,
    /// The APIService disables the verification of TLS, and is not changed.
    Unverified,
}

impl Cluster {
    /// Sets the `caBundle` of an APIService to this CA, so that kube-apiserver trusts the server. The APIService is
    /// changed only if it exists, names this Service and does not disable the verification of TLS.
    ///
    /// # Errors
    /// If the cluster refuses the request or does not respond.
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
        // kube-apiserver rejects an APIService that has this field and a `caBundle`. The field means that no
        // verification is wanted.
        if spec.insecure_skip_tls_verify == Some(true) {
            return Ok(Registration::Unverified);
        }
        if spec.ca_bundle.is_some_and(|bundle| bundle.0 == ca_bundle.as_bytes()) {
            return Ok(Registration::Done);
        }
        // The resourceVersion makes the patch conditional on the version that was read.
        let patch = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": {"caBundle": STANDARD.encode(ca_bundle)},
        });
        api.patch(api_service, &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(api_service, "set the caBundle of the APIService");
        Ok(Registration::Done)
    }
}
