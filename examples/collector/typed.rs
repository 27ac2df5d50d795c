//! Objects of built-in kinds, with types of the program's own.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::{info, instrument};

/// The ConfigMap with the cluster's CA certificates, which each namespace has for its Pods.
pub const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// A ConfigMap with exactly one value: the CA certificates with which Pods verify their cluster.
#[derive(Resource, Clone, Debug, Deserialize, Serialize)]
#[resource(inherit = ConfigMap)]
pub struct RootCertificates {
    metadata: ObjectMeta,
    data: RootData,
}

/// The data of the ConfigMap.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct RootData {
    #[serde(rename = "ca.crt")]
    certificates: String,
}

/// The CA of the cluster, if it can be read.
#[instrument(skip_all, fields(namespace = namespace), err(level = "debug"))]
pub async fn root_certificates(client: Client, namespace: &str) -> kube::Result<Option<String>> {
    let maps: Api<RootCertificates> = Api::namespaced(client, namespace);
    match maps.get_opt(ROOT_CERTIFICATES).await {
        Ok(Some(found)) => return Ok(Some(found.data.certificates)),
        Ok(None) => info!("the namespace has no {ROOT_CERTIFICATES}"),
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            info!("not permitted to read {ROOT_CERTIFICATES}");
        }
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// Records the time and the recorded kinds in a ConfigMap. Other values of the ConfigMap are left unchanged.
#[instrument(skip_all, fields(namespace = namespace, name = name), err(level = "debug"))]
pub async fn note(
    client: Client,
    namespace: &str,
    name: &str,
    kinds: &[String],
) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    get_or_create(&maps, &ConfigMap { metadata, ..ConfigMap::default() }).await?;
    let now = jiff::Timestamp::now().to_string();
    let data = Patch::Merge(json!({"data": {"recorded": now, "kinds": kinds.join(",")}}));
    maps.patch(name, &PatchParams::default(), &data).await?;
    Ok(())
}

/// Returns the object of this name, or creates it from `object`. If another client creates it at the same time, that
/// object is returned.
pub async fn get_or_create<K>(api: &Api<K>, object: &K) -> kube::Result<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let name = object.name_any();
    loop {
        if let Some(found) = api.get_opt(&name).await? {
            return Ok(found);
        }
        match api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => return created,
        }
    }
}
