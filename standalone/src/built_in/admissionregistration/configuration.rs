//! What both kinds have in common.

use aggregated_apiserver::Strategy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::built_in::strategy::requiring_resource_version;

/// The end of names that kube-apiserver keeps for configurations in files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

pub(super) fn strategy() -> Strategy {
    Strategy { has_generation: true, ..requiring_resource_version() }
}

/// Warns of a name that is meant for configurations in files.
pub(super) fn warnings(metadata: &ObjectMeta) -> Vec<String> {
    if !metadata.name.as_ref().is_some_and(|name| name.ends_with(STATIC_SUFFIX)) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
    )]
}
