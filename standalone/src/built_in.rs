//! The kinds that Kubernetes has itself: one row each.

mod cells;
mod defaults;

pub(crate) use defaults::FINALIZER;

use std::any::TypeId;
use std::sync::{Arc, LazyLock};

use aggregated_apiserver::{Cells, FieldError, FieldTable, Kinds, MergeKeys, Rules, RuntimeKinds};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, ServiceAccount};
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
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

/// How strategic merge patches merge lists. What the table says a test reads.
static MERGE_KEYS: LazyLock<Arc<MergeKeys>> = LazyLock::new(|| {
    Arc::new(MergeKeys::parse(include_str!("built_in/merge_keys.txt")).unwrap_or_default())
});

/// Kinds whose objects count their changes.
const COUNTED: [&str; 6] =
    ["CronJob", "CustomResourceDefinition", "Deployment", "Job", "Pod", "ReplicaSet"];

const ALL: &[&str] = &["all"];
const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", false);
/// The cells of such a column are made by code.
const CODE: &str = ".metadata.name";

/// Their fields. What the table says a test reads.
pub(crate) static FIELDS: LazyLock<Arc<FieldTable>> = LazyLock::new(|| {
    let table = include_str!("built_in/fields.txt");
    Arc::new(FieldTable::parse(table).unwrap_or_default())
});

/// All of them, in the order of discovery.
pub(crate) fn kinds() -> Kinds {
    use Parts::{None, Status, StatusAndScale};
    let kinds = Kinds::new();
    let kinds = row(
        kinds,
        &["cm"],
        &[],
        None,
        &[("Data", "integer", CODE, false), AGE],
        cells::config_maps(),
        defaults::none::<ConfigMap>(),
    );
    let kinds = row(kinds, &["ev"], &[], None, EVENTS, cells::events(), defaults::none::<Event>());
    let kinds = row(
        kinds,
        &["ns"],
        &[],
        Status,
        &[("Status", "string", ".status.phase", false), AGE],
        Cells::none(),
        defaults::namespaces(),
    );
    let kinds = row(kinds, &["no"], &[], Status, NODES, cells::nodes(), defaults::none::<Node>());
    let kinds = row(kinds, &["po"], ALL, Status, PODS, cells::pods(), defaults::pods());
    let kinds = row(kinds, &[], &[], None, SECRETS, cells::secrets(), defaults::secrets());
    let kinds =
        row(kinds, &["sa"], &[], None, &[AGE], Cells::none(), defaults::none::<ServiceAccount>());
    let kinds =
        row(kinds, &["svc"], ALL, Status, SERVICES, cells::services(), defaults::services());
    let kinds = row(
        kinds,
        &["deploy"],
        ALL,
        StatusAndScale,
        DEPLOYMENTS,
        cells::deployments(),
        defaults::deployments(),
    );
    let kinds = row(
        kinds,
        &["rs"],
        ALL,
        StatusAndScale,
        REPLICA_SETS,
        cells::replica_sets(),
        defaults::replica_sets(),
    );
    let kinds =
        row(kinds, &["cj"], ALL, Status, CRON_JOBS, cells::cron_jobs(), defaults::cron_jobs());
    let kinds = row(kinds, &[], ALL, Status, JOBS, cells::jobs(), defaults::jobs());
    let kinds = row(
        kinds,
        &["crd", "crds"],
        &["api-extensions"],
        Status,
        &[("Created At", "date", ".metadata.creationTimestamp", false)],
        Cells::none(),
        definitions(),
    );
    row(
        kinds,
        &[],
        &[],
        None,
        &[("Holder", "string", ".spec.holderIdentity", false), AGE],
        Cells::none(),
        defaults::none::<Lease>(),
    )
}

/// What a definition says when its author says nothing, and what it may not say.
fn definitions() -> Rules<CustomResourceDefinition> {
    Rules::none()
        .prepare(|definition: &mut CustomResourceDefinition, _| {
            let names = &mut definition.spec.names;
            names.singular.get_or_insert_with(|| names.kind.to_lowercase());
            names.list_kind.get_or_insert_with(|| format!("{}List", names.kind));
            let conversion =
                CustomResourceConversion { strategy: "None".to_owned(), webhook: None };
            definition.spec.conversion.get_or_insert(conversion);
            // A client that changes it may take it away, and then it is gone.
            if definition.metadata.uid.is_none() && definition.metadata.resource_version.is_none() {
                let finalizer = crate::definitions::FINALIZER.to_owned();
                let finalizers = definition.metadata.finalizers.get_or_insert_default();
                if !finalizers.contains(&finalizer) {
                    finalizers.push(finalizer);
                }
            }
        })
        .validate(|definition, old, _| {
            let mut errors = RuntimeKinds::check(definition);
            let Some(old) = old else { return errors };
            let (new, old) = (&definition.spec, &old.spec);
            for (field, is_kept, value) in [
                ("spec.group", new.group == old.group, &new.group),
                ("spec.names.plural", new.names.plural == old.names.plural, &new.names.plural),
                ("spec.names.kind", new.names.kind == old.names.kind, &new.names.kind),
                ("spec.scope", new.scope == old.scope, &new.scope),
            ] {
                if !is_kept {
                    let why = "field is immutable";
                    errors.push(FieldError::invalid(field, format!("{value:?}"), why));
                }
            }
            errors
        })
        .warn(|definition, _, _| RuntimeKinds::unenforced(definition))
}

/// The newer form of events, which programs report by. They are kept apart from
/// those of the core group.
pub(crate) fn events() -> Kinds {
    row(
        Kinds::new(),
        &["ev"],
        &[],
        Parts::None,
        &[
            ("Last Seen", "date", ".eventTime", false),
            ("Type", "string", ".type", false),
            ("Reason", "string", ".reason", false),
            ("Message", "string", ".note", false),
        ],
        Cells::none(),
        defaults::none::<NewEvent>(),
    )
}

const EVENTS: &[Column] = &[
    ("Last Seen", "date", ".lastTimestamp", false),
    ("Type", "string", ".type", false),
    ("Reason", "string", ".reason", false),
    ("Object", "string", CODE, false),
    ("Message", "string", ".message", false),
    ("Count", "integer", ".count", true),
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
    &[("Type", "string", ".type", false), ("Data", "integer", CODE, false), AGE];
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
    ("Up-to-date", "integer", CODE, false),
    ("Available", "integer", CODE, false),
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
    ("Suspend", "string", CODE, false),
    ("Active", "integer", CODE, false),
    ("Last Schedule", "date", ".status.lastScheduleTime", false),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

/// Adds the kind of a type. What it is called, and where it lives, the type says.
fn row<K>(
    kinds: Kinds,
    short_names: &[&str],
    categories: &[&str],
    parts: Parts,
    columns: &[Column],
    cells: Cells<K>,
    rules: Rules<K>,
) -> Kinds
where
    K: ListableResource + Metadata + Serialize + DeserializeOwned + 'static,
    K: kube::Resource<DynamicType = ()>,
    <K as Resource>::Scope: 'static,
{
    let mut version = version_of::<K>();
    version["additionalPrinterColumns"] = columns
        .iter()
        .map(|(name, column_type, path, is_wide)| {
            json!({"name": name, "type": column_type, "jsonPath": path, "priority": i32::from(*is_wide)})
        })
        .collect();
    version["subresources"] = match parts {
        Parts::None => json!({}),
        Parts::Status => json!({"status": {}}),
        Parts::StatusAndScale => json!({"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
        }}),
    };
    match definition::<K>(short_names, categories, &version) {
        Ok(definition) => {
            let kinds = kinds.built_in(definition, cells, rules, &MERGE_KEYS);
            if COUNTED.contains(&K::KIND) { kinds } else { kinds.without_generation() }
        }
        Err(error) => {
            // What is made here is made of constants; a test reads all of them.
            tracing::error!("{}: {error}", K::KIND);
            kinds
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
    fn the_tables_can_be_read() {
        MergeKeys::parse(include_str!("built_in/merge_keys.txt")).unwrap();
        FieldTable::parse(include_str!("built_in/fields.txt")).unwrap();
    }
}
