//! The kinds that Kubernetes has itself: one row each.

mod addresses;
mod cells;
mod defaults;
mod descriptions;
mod events;
mod rules;
mod strategies;

pub(crate) use rules::approval;

use std::any::TypeId;
use std::sync::{Arc, LazyLock};

use aggregated_apiserver::{Cells, Kinds, Rules, Strategy, Types, View, age};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, ListableResource, Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What there is besides the object itself.
#[derive(Clone, Copy)]
enum Parts {
    /// Nothing.
    None,
    /// Its status.
    Status,
    /// Its status, and how many replicas it has.
    StatusAndScale,
}

/// A column: its heading, its type, the JSONPath of its cells, and whether it
/// is shown only to those who want it wide.
type Column = (&'static str, &'static str, &'static str, bool);

const ALL: &[&str] = &["all"];
/// Every table of Kubernetes shows the age as a text.
const AGE: Column = ("Age", "string", CODE, false);
/// The cells of such a column are made by code.
const CODE: &str = ".metadata.name";

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

/// Everything that is said about a kind here. What it is called, and where it
/// lives, its type says.
struct Row<K> {
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    parts: Parts,
    columns: &'static [Column],
    cells: Cells<K>,
    rules: Rules<K>,
    strategy: Strategy,
}

impl<K> Row<K>
where
    K: ListableResource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + 'static,
    K: kube::Resource<DynamicType = ()>,
    <K as Resource>::Scope: 'static,
{
    /// A kind of which nothing is said but its strategy.
    fn new(strategy: Strategy) -> Self {
        Self {
            short_names: &[],
            categories: &[],
            parts: Parts::None,
            columns: &[AGE],
            cells: Cells::none(),
            rules: Rules::none(),
            strategy,
        }
    }

    fn add(self, kinds: Kinds) -> Kinds {
        let Self { short_names, categories, parts, columns, mut cells, rules, strategy } = self;
        let mut version = version_of::<K>();
        version["additionalPrinterColumns"] = columns
            .iter()
            .map(|(name, column_type, path, is_wide)| {
                let format = if *name == "Name" { "name" } else { "" };
                json!({
                    "name": name, "type": column_type, "format": format, "jsonPath": path,
                    "priority": i32::from(*is_wide),
                })
            })
            .collect();
        version["subresources"] = match parts {
            Parts::None => json!({}),
            Parts::Status => json!({"status": {}}),
            Parts::StatusAndScale => json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            }}),
        };
        if columns.contains(&AGE) {
            cells = cells.cell(AGE.0, |object: &K, now| {
                let made = Metadata::metadata(object).creation_timestamp.as_ref();
                made.map_or_else(|| "<unknown>".to_owned(), |made| age(made.0, now))
            });
        }
        match definition::<K>(short_names, categories, &version) {
            Ok(definition) => {
                let kinds = kinds.built_in(definition, cells, rules, &TYPES);
                kinds.with_strategy(strategy)
            }
            Err(error) => {
                // What is made here is made of constants; a test reads all of them.
                tracing::error!("{}: {error}", K::KIND);
                kinds
            }
        }
    }
}

/// The definition of a kind that is a question.
pub(crate) fn review<K>() -> Result<CustomResourceDefinition, serde_json::Error>
where
    K: Resource,
    K::Scope: 'static,
{
    let names = json!({"plural": K::URL_PATH_SEGMENT, "kind": K::KIND});
    serde_json::from_value(tree::<K>(names, version_of::<K>()))
}

fn definition<K>(
    short_names: &[&str],
    categories: &[&str],
    version: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error>
where
    K: ListableResource,
    <K as Resource>::Scope: 'static,
{
    let names = json!({
        "plural": K::URL_PATH_SEGMENT, "kind": K::KIND, "listKind": K::LIST_KIND,
        "shortNames": short_names, "categories": categories,
    });
    serde_json::from_value(tree::<K>(names, version.clone()))
}

fn tree<K>(names: Value, version: Value) -> Value
where
    K: Resource,
    K::Scope: 'static,
{
    let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
    let scope = if is_of_cluster { "Cluster" } else { "Namespaced" };
    json!({
        "metadata": {},
        "spec": {"group": K::GROUP, "scope": scope, "names": names, "versions": [version]},
    })
}

/// What objects hold their types say, in Rust.
fn version_of<K: Resource>() -> Value {
    json!({
        "name": K::VERSION, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        Types::parse(&[TABLE]).unwrap().check().unwrap();
    }
}
