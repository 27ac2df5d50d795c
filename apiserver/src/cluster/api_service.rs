//! The `caBundle` of our own APIServices.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Cluster;

impl Cluster {
    /// Makes kube-apiserver trust this CA when it calls us, if the APIService
    /// is there and is ours: it names this Service. Answers whether it is.
    ///
    /// # Errors
    /// When the cluster refuses or does not answer.
    pub async fn set_ca_bundle(
        &self,
        api_service: &str,
        (namespace, service): (&str, &str),
        ca_bundle: &str,
    ) -> Result<bool, kube::Error> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let Some(found) = api.get_opt(api_service).await? else { return Ok(false) };
        let spec = found.spec.unwrap_or_default();
        let names = spec.service.unwrap_or_default();
        if names.namespace.as_deref() != Some(namespace) || names.name.as_deref() != Some(service) {
            tracing::warn!(
                "APIService {api_service} belongs to another Service than {namespace}/{service}: its caBundle is left alone"
            );
            return Ok(false);
        }
        if spec.ca_bundle.is_some_and(|bundle| bundle.0 == ca_bundle.as_bytes()) {
            return Ok(true);
        }
        // The resourceVersion makes this a change of what was looked at.
        let patch = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": {"caBundle": STANDARD.encode(ca_bundle)},
        });
        api.patch(api_service, &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!("APIService {api_service} trusts our CA now");
        Ok(true)
    }
}
