//! The kinds that Kubernetes has itself: one row each.

mod addresses;
mod cells;
mod defaults;
mod descriptions;
mod events;
mod row;
mod rules;
mod strategies;

pub(crate) use row::review;
pub(crate) use rules::approval;

use std::sync::{Arc, LazyLock};

use aggregated_apiserver::{Kinds, Types, View};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event as NewEvent;

use row::{AGE, CODE, Column, Parts, Row};

const ALL: &[&str] = &["all"];

/// The types of Kubernetes. What the table says a test reads.
pub(crate) static TYPES: LazyLock<Arc<Types>> = LazyLock::new(|| {
    let types = Types::parse(&[TABLE]).unwrap_or_default();
    Arc::new(types.described_by(descriptions::all))
});

const TABLE: &str = include_str!("built_in/types.txt");

/// All of them, in the order of discovery.
pub(crate) fn kinds() -> Kinds {
    use Parts::{Status, StatusAndScale};
    let config_maps = Row {
        short_names: &["cm"],
        columns: CONFIG_MAPS,
        cells: cells::config_maps(),
        rules: rules::config_maps(),
        ..Row::new(strategies::plain())
    };
    let events = Row {
        short_names: &["ev"],
        columns: EVENTS,
        cells: cells::events(),
        rules: rules::events(),
        ..Row::new(strategies::events("involvedObject"))
    };
    let namespaces = Row {
        short_names: &["ns"],
        parts: Status,
        columns: NAMESPACES,
        rules: defaults::namespaces(),
        ..Row::new(strategies::namespaces())
    };
    let nodes = Row {
        short_names: &["no"],
        parts: Status,
        columns: NODES,
        cells: cells::nodes(),
        rules: rules::nodes(defaults::nodes()),
        ..Row::new(strategies::nodes())
    };
    let pods = Row {
        short_names: &["po"],
        categories: ALL,
        parts: Status,
        columns: PODS,
        cells: cells::pods(),
        rules: rules::pods(defaults::pods()),
        ..Row::new(strategies::pods())
    };
    let secrets = Row {
        columns: SECRETS,
        cells: cells::secrets(),
        rules: rules::secrets(defaults::secrets()),
        ..Row::new(strategies::secrets())
    };
    let service_accounts: Row<ServiceAccount> =
        Row { short_names: &["sa"], ..Row::new(strategies::service_accounts()) };
    let services = Row {
        short_names: &["svc"],
        categories: ALL,
        parts: Status,
        columns: SERVICES,
        cells: cells::services(),
        rules: rules::services(defaults::services()),
        ..Row::new(strategies::services())
    };
    let deployments = Row {
        short_names: &["deploy"],
        categories: ALL,
        parts: StatusAndScale,
        columns: DEPLOYMENTS,
        cells: cells::deployments(),
        rules: rules::deployments(defaults::deployments()),
        ..Row::new(strategies::deployments())
    };
    let replica_sets = Row {
        short_names: &["rs"],
        categories: ALL,
        parts: StatusAndScale,
        columns: REPLICA_SETS,
        cells: cells::replica_sets(),
        rules: rules::replica_sets(defaults::replica_sets()),
        ..Row::new(strategies::counted())
    };
    let cron_jobs = Row {
        short_names: &["cj"],
        categories: ALL,
        parts: Status,
        columns: CRON_JOBS,
        cells: cells::cron_jobs(),
        rules: rules::cron_jobs(defaults::cron_jobs()),
        ..Row::new(strategies::counted())
    };
    let jobs = Row {
        categories: ALL,
        parts: Status,
        columns: JOBS,
        cells: cells::jobs(),
        rules: rules::jobs(defaults::jobs()),
        ..Row::new(strategies::jobs())
    };
    let definitions = Row {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        parts: Status,
        columns: DEFINITIONS,
        rules: rules::definitions(),
        ..Row::new(strategies::definitions())
    };
    let leases = Row { columns: LEASES, rules: rules::leases(), ..Row::new(strategies::leases()) };
    let api_services = Row {
        parts: Status,
        columns: API_SERVICES,
        cells: cells::api_services(),
        rules: rules::api_services(),
        ..Row::new(strategies::api_services())
    };
    let endpoint_slices = Row {
        columns: ENDPOINT_SLICES,
        cells: cells::endpoint_slices(),
        rules: rules::endpoint_slices(),
        ..Row::new(strategies::counted())
    };
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
    let events: Row<NewEvent> = Row {
        short_names: &["ev"],
        columns: EVENTS,
        cells: cells::new_events(),
        rules: rules::new_events(),
        ..Row::new(strategies::events("regarding"))
    };
    let view = View {
        group: "",
        version: "v1",
        plural: "events",
        to_kept: events::to_core,
        from_kept: events::from_core,
    };
    events.add(Kinds::new()).viewing(view)
}

const CONFIG_MAPS: &[Column] = &[("Data", "string", CODE, false), AGE];
const NAMESPACES: &[Column] = &[("Status", "string", ".status.phase", false), AGE];
const LEASES: &[Column] = &[("Holder", "string", ".spec.holderIdentity", false), AGE];
const DEFINITIONS: &[Column] = &[("Created At", "date", ".metadata.creationTimestamp", false)];
const API_SERVICES: &[Column] =
    &[("Service", "string", CODE, false), ("Available", "string", CODE, false), AGE];
const ENDPOINT_SLICES: &[Column] = &[
    ("AddressType", "string", ".addressType", false),
    ("Ports", "string", CODE, false),
    ("Endpoints", "string", CODE, false),
    AGE,
];
const EVENTS: &[Column] = &[
    ("Last Seen", "string", CODE, false),
    ("Type", "string", ".type", false),
    ("Reason", "string", ".reason", false),
    ("Object", "string", CODE, false),
    ("Subobject", "string", CODE, true),
    ("Source", "string", CODE, true),
    ("Message", "string", CODE, false),
    ("First Seen", "string", CODE, true),
    ("Count", "string", CODE, true),
    ("Name", "string", ".metadata.name", true),
];
const NODES: &[Column] = &[
    ("Status", "string", CODE, false),
    ("Roles", "string", CODE, false),
    AGE,
    ("Version", "string", ".status.nodeInfo.kubeletVersion", false),
    ("Internal-IP", "string", CODE, true),
    ("External-IP", "string", CODE, true),
    ("OS-Image", "string", ".status.nodeInfo.osImage", true),
    ("Kernel-Version", "string", ".status.nodeInfo.kernelVersion", true),
    ("Container-Runtime", "string", ".status.nodeInfo.containerRuntimeVersion", true),
];
const PODS: &[Column] = &[
    ("Ready", "string", CODE, false),
    ("Status", "string", CODE, false),
    ("Restarts", "string", CODE, false),
    AGE,
    ("IP", "string", CODE, true),
    ("Node", "string", CODE, true),
    ("Nominated Node", "string", CODE, true),
    ("Readiness Gates", "string", CODE, true),
];
const SECRETS: &[Column] =
    &[("Type", "string", ".type", false), ("Data", "string", CODE, false), AGE];
const SERVICES: &[Column] = &[
    ("Type", "string", ".spec.type", false),
    ("Cluster-IP", "string", CODE, false),
    ("External-IP", "string", CODE, false),
    ("Port(s)", "string", CODE, false),
    AGE,
    ("Selector", "string", CODE, true),
];
const CONTAINERS: Column = ("Containers", "string", CODE, true);
const IMAGES: Column = ("Images", "string", CODE, true);
const SELECTOR: Column = ("Selector", "string", CODE, true);
const DEPLOYMENTS: &[Column] = &[
    ("Ready", "string", CODE, false),
    ("Up-to-date", "string", CODE, false),
    ("Available", "string", CODE, false),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const REPLICA_SETS: &[Column] = &[
    ("Desired", "integer", CODE, false),
    ("Current", "integer", CODE, false),
    ("Ready", "integer", CODE, false),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const JOBS: &[Column] = &[
    ("Status", "string", CODE, false),
    ("Completions", "string", CODE, false),
    ("Duration", "string", CODE, false),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const CRON_JOBS: &[Column] = &[
    ("Schedule", "string", ".spec.schedule", false),
    ("Timezone", "string", CODE, false),
    ("Suspend", "boolean", CODE, false),
    ("Active", "integer", CODE, false),
    ("Last Schedule", "string", CODE, false),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        Types::parse(&[TABLE]).unwrap().check().unwrap();
    }
}
