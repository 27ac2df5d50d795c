//! The kinds that Kubernetes has itself: one row each.

mod apiextensions;
mod apiregistration;
mod apps;
mod batch;
mod cell_texts;
mod checks;
mod coordination;
mod core;
mod defaulting;
mod descriptions;
mod discovery;
mod events;
mod label_selector;
mod pod_template;
mod row;
mod strategy;

pub(crate) use apiextensions::custom_resource_definition::approval;
pub(crate) use row::review;

use std::sync::{Arc, LazyLock};

use aggregated_apiserver::{Kinds, Types};

const ALL: &[&str] = &["all"];

/// The types of Kubernetes. What the table says a test reads.
pub(crate) static TYPES: LazyLock<Arc<Types>> = LazyLock::new(|| {
    let types = Types::parse(&[TABLE]).unwrap_or_default();
    Arc::new(types.described_by(descriptions::all))
});

const TABLE: &str = include_str!("built_in/types.txt");

/// All of them, in the order of discovery.
pub(crate) fn kinds() -> Kinds {
    let config_maps = core::config_map::row();
    let events = core::event::row();
    let namespaces = core::namespace::row();
    let nodes = core::node::row();
    let pods = core::pod::row();
    let secrets = core::secret::row();
    let service_accounts = core::service_account::row();
    let services = core::service::row();
    let deployments = apps::deployment::row();
    let replica_sets = apps::replica_set::row();
    let cron_jobs = batch::cron_job::row();
    let jobs = batch::job::row();
    let definitions = apiextensions::custom_resource_definition::row();
    let leases = coordination::lease::row();
    let api_services = apiregistration::api_service::row();
    let endpoint_slices = discovery::endpoint_slice::row();
    let kinds = config_maps.add(Kinds::new());
    let kinds = events.add(kinds);
    let kinds = namespaces.add(kinds);
    let kinds = nodes.add(kinds);
    let kinds = pods.add(kinds);
    let kinds = secrets.add(kinds);
    let kinds = service_accounts.add(kinds);
    let kinds = services.add(kinds);
    let kinds = api_services.add(kinds);
    let kinds = deployments.add(kinds);
    let kinds = replica_sets.add(kinds);
    let kinds = cron_jobs.add(kinds);
    let kinds = jobs.add(kinds);
    let kinds = definitions.add(kinds);
    let kinds = leases.add(kinds);
    endpoint_slices.add(kinds)
}

/// The newer form of events, which programs report by: they are those of the core
/// group.
pub(crate) fn events() -> Kinds {
    events::event::row().add(Kinds::new()).viewing(events::event::view())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        Types::parse(&[TABLE]).unwrap().check().unwrap();
    }
}
