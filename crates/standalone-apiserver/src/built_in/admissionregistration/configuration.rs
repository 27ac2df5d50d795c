//! The common parts of MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ListableResource, Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::built_in::checks::FieldErrors;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;

/// The suffix of names that kube-apiserver reserves for configurations in files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// The row of a kind of configurations, with its functions for defaulting, validation and counting webhooks.
pub(super) fn row<K>(
    prepare: fn(&mut K),
    validate: fn(&K) -> FieldErrors,
    webhooks: fn(&K) -> usize,
) -> Row<K>
where
    K: ListableResource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + 'static,
    K: kube::Resource<DynamicType = ()>,
    <K as Resource>::Scope: 'static,
{
    let rules = Validation::new()
        .prepare(move |configuration, _| prepare(configuration))
        .validate(move |configuration, _, _| validate(configuration))
        .warn(|configuration: &K, _, _| warnings(configuration.metadata()));
    let webhooks = Column::computed("Webhooks", move |one: &K, _| webhooks(one));
    Row {
        categories: &["api-extensions"],
        columns: vec![webhooks.of_type("integer"), Column::age()],
        rules,
        ..Row::new(strategy())
    }
}

/// The strategy of configurations, policies and bindings.
pub(super) fn strategy() -> Strategy {
    Strategy { has_generation: true, ..requiring_resource_version() }
}

/// Warns about a name that is reserved for configurations in files.
pub(super) fn warnings(metadata: &ObjectMeta) -> Vec<String> {
    if !metadata.name.as_ref().is_some_and(|name| name.ends_with(STATIC_SUFFIX)) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
    )]
}
