//! The built-in kinds of Kubernetes. Each has its own file, by group and kind, with its row, columns, strategy,
//! defaulting and validation.

mod admission;
pub(crate) mod admissionregistration;
mod amounts;
mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod cell_texts;
mod certificates;
mod checks;
mod conditions;
mod coordination;
mod core;
mod defaulting;
mod descriptions;
mod discovery;
mod events;
mod flowcontrol;
pub(crate) mod label_selector;
mod networking;
mod networks;
mod node;
mod node_labels;
mod pod_template;
mod policy;
pub(crate) mod rbac;
mod resource;
mod resource_names;
mod row;
mod scheduling;
mod share;
mod storage;
mod strategy;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use admission::{default_toleration_seconds, priority, storage_protection};
pub(crate) use apiextensions::custom_resource_definition::approval;
pub(crate) use certificates::admission::CertificatePermissions;
pub(crate) use checks::quote;
pub(crate) use flowcontrol::bootstrap::{dangling, objects as flow_control_objects};
pub(crate) use networking::service_cidr;
pub use row::BuiltInKindError;
pub(crate) use row::review;
pub(crate) use scheduling::priority_class;

use std::sync::{Arc, LazyLock};

use aggregated_apiserver::Kinds;
use aggregated_apiserver::types::Types;

pub(crate) use admission::PodSecurityConfiguration;

use crate::pods::PodHandlers;
use crate::service_account_tokens::ServiceAccountTokens;

/// The types of Kubernetes' own objects. A test parses the whole table, and a server does not start if it cannot be
/// parsed.
pub(crate) static TYPES: LazyLock<Arc<Types>> =
    LazyLock::new(|| READ_TYPES.clone().unwrap_or_default());

static READ_TYPES: LazyLock<Result<Arc<Types>, String>> = LazyLock::new(|| {
    let types = Types::parse(&[TABLE]).map_err(|error| error.to_string())?;
    Ok(Arc::new(types.described_by(descriptions::all)))
});

const TABLE: &str = include_str!("built_in/types.txt");

/// All built-in kinds except the views, in the order of discovery.
///
/// # Errors
/// The reason, if a kind cannot be served.
pub(crate) fn kinds(
    tokens: &Arc<ServiceAccountTokens>,
    pod_security: PodSecurityConfiguration,
    pods: PodHandlers,
) -> Result<Kinds, BuiltInKindError> {
    if let Err(why) = &*READ_TYPES {
        return Err(BuiltInKindError::new("of any name", why));
    }
    [
        core::pod::binding::kind(),
        core::config_map::row().kind(),
        core::endpoints::row().kind(),
        core::event::row().kind(),
        core::limit_range::row().kind(),
        core::namespace::row().kind(),
        core::node::row().kind(),
        core::persistent_volume_claim::row().kind(),
        core::persistent_volume::row().kind(),
        core::pod::row().kind().map(|kind| pods.add_to(kind)),
        core::pod_template::row().kind(),
        core::replication_controller::row().kind(),
        core::resource_quota::row().kind(),
        core::secret::row().kind(),
        core::service_account::row(Arc::clone(tokens)).kind(),
        core::service::row().kind(),
        admissionregistration::mutating_webhook_configuration::row().kind(),
        admissionregistration::validating_admission_policy::row().kind(),
        admissionregistration::validating_admission_policy_binding::row().kind(),
        admissionregistration::validating_webhook_configuration::row().kind(),
        apiregistration::api_service::row().kind(),
        apps::controller_revision::row().kind(),
        apps::daemon_set::row().kind(),
        apps::deployment::row().kind(),
        apps::replica_set::row().kind(),
        apps::stateful_set::row().kind(),
        autoscaling::horizontal_pod_autoscaler::row().kind(),
        batch::cron_job::row().kind(),
        batch::job::row().kind(),
        certificates::certificate_signing_request::row().kind(),
        flowcontrol::flow_schema::row().kind(),
        flowcontrol::priority_level_configuration::row().kind(),
        networking::ingress_class::row().kind(),
        networking::ingress::row().kind(),
        networking::ip_address::row().kind(),
        networking::network_policy::row().kind(),
        service_cidr::row().kind(),
        policy::pod_disruption_budget::row().kind(),
        rbac::cluster_role_binding::row().kind(),
        rbac::cluster_role::row().kind(),
        rbac::role_binding::row().kind(),
        rbac::role::row().kind(),
        priority_class::row().kind(),
        node::runtime_class::row().kind(),
        resource::device_class::row().kind(),
        resource::resource_claim::row().kind(),
        resource::resource_claim_template::row().kind(),
        resource::resource_slice::row().kind(),
        storage::csi_driver::row().kind(),
        storage::csi_node::row().kind(),
        storage::csi_storage_capacity::row().kind(),
        storage::storage_class::row().kind(),
        storage::volume_attachment::row().kind(),
        storage::volume_attributes_class::row().kind(),
        apiextensions::custom_resource_definition::row().kind(),
        coordination::lease::row().kind(),
        discovery::endpoint_slice::row().kind(),
    ]
    .into_iter()
    .try_fold(admission::plugins(pod_security), |kinds, kind| Ok(kinds.kind(kind?)))
}

/// The views: the events of `events.k8s.io`, which are those of the core group, and the HorizontalPodAutoscalers of
/// `autoscaling/v1`, which are those of `autoscaling/v2`.
///
/// # Errors
/// The reason, if a kind cannot be served.
pub(crate) fn views() -> Result<Kinds, BuiltInKindError> {
    let events = events::event::row().kind()?.view(events::event::view());
    let autoscalers = autoscaling::older_autoscaler::row().kind()?;
    let autoscalers = autoscalers.view(autoscaling::older_autoscaler::view());
    Ok(Kinds::new().kind(events).kind(autoscalers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        Types::parse(&[TABLE]).unwrap().check().unwrap();
    }
}
