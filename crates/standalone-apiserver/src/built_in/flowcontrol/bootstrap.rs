//! The FlowSchemas and PriorityLevelConfigurations that a server has from the start.

use std::sync::LazyLock;

use aggregated_apiserver::encoding::truncate_to_seconds;
use jiff::Timestamp;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::built_in::checks::quote;

/// The names of the objects whose spec does not change.
pub(crate) const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
/// The annotation of objects that kube-apiserver keeps up to date.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The priority levels with queues: name, shares, lendable percentage, number of queues and hand size.
const QUEUING: [(&str, i32, i32, i32, i32); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

/// The objects, each FlowSchema with its status.
pub(crate) fn objects(now: Timestamp) -> Vec<Value> {
    let schemas = flow_schemas().into_iter().map(|mut schema| {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str();
        let condition = dangling(level.unwrap_or_default(), true, now);
        schema["status"] = json!({"conditions": [condition]});
        schema
    });
    levels().into_iter().chain(schemas).collect()
}

/// The condition `Dangling` of a FlowSchema with this priority level.
pub(crate) fn dangling(level: &str, exists: bool, now: Timestamp) -> Value {
    let reference = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {}",
        quote(level)
    );
    let (status, reason, message) = match exists {
        true => ("False", "Found", format!("{reference} and it exists")),
        false => ("True", "NotFound", format!("{reference} but there is no such object")),
    };
    json!({
        "type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": truncate_to_seconds(now).to_string(),
    })
}

/// The FlowSchema of this name whose spec does not change.
pub(crate) fn mandatory_schema(name: &str) -> Option<&'static FlowSchema> {
    static ALL: LazyLock<Vec<FlowSchema>> = LazyLock::new(|| typed(flow_schemas()));
    find(name, &ALL, |schema| schema.metadata.name.as_deref())
}

/// The PriorityLevelConfiguration of this name whose spec does not change.
pub(crate) fn mandatory_level(name: &str) -> Option<&'static PriorityLevelConfiguration> {
    static ALL: LazyLock<Vec<PriorityLevelConfiguration>> = LazyLock::new(|| typed(levels()));
    find(name, &ALL, |level| level.metadata.name.as_deref())
}

fn typed<K: DeserializeOwned>(objects: Vec<Value>) -> Vec<K> {
    objects.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect()
}

fn find<K>(name: &str, all: &'static [K], name_of: fn(&K) -> Option<&str>) -> Option<&'static K> {
    let is_mandatory = [EXEMPT, CATCH_ALL].contains(&name);
    all.iter().find(|one| is_mandatory && name_of(one) == Some(name))
}

fn levels() -> Vec<Value> {
    let exempt = json!({
        "type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
    });
    let catch_all = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "lendablePercent": 0,
        "limitResponse": {"type": "Reject"},
    }});
    let queuing = QUEUING.map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        });
        (name, json!({"type": "Limited", "limited": limited}))
    });
    let all = [(CATCH_ALL, catch_all), (EXEMPT, exempt)].into_iter().chain(queuing);
    all.map(|(name, spec)| object("PriorityLevelConfiguration", name, spec)).collect()
}

fn flow_schemas() -> Vec<Value> {
    const NAMESPACE: Option<&str> = Some("ByNamespace");
    const USER: Option<&str> = Some("ByUser");
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let accounts = || {
        let account = json!({"name": "*", "namespace": "kube-system"});
        json!({"kind": "ServiceAccount", "serviceAccount": account})
    };
    let all_users = || json!([group("system:unauthenticated"), group("system:authenticated")]);
    let nodes = || json!([group("system:nodes")]);
    let leases = |verbs: Value| {
        json!({
            "verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"],
        })
    };
    let health = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    let of_nodes = json!([
        {
            "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
            "clusterScope": true, "namespaces": ["*"],
        },
        leases(json!(["*"])),
    ]);
    let leaders =
        json!([user("system:kube-controller-manager"), user("system:kube-scheduler"), accounts(),]);
    let controllers = json!([user("system:kube-controller-manager")]);
    let scheduler = json!([user("system:kube-scheduler")]);
    let all_accounts = json!([group("system:serviceaccounts")]);
    vec![
        schema(EXEMPT, EXEMPT, 1, None, everything(json!([group("system:masters")]))),
        schema(CATCH_ALL, CATCH_ALL, 10_000, USER, everything(all_users())),
        schema("system-nodes", "system", 500, USER, everything(nodes())),
        schema(
            "system-node-high",
            "node-high",
            400,
            USER,
            json!({"subjects": nodes(), "resourceRules": of_nodes}),
        ),
        schema(
            "probes",
            EXEMPT,
            2,
            None,
            json!({"subjects": all_users(), "nonResourceRules": health}),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            USER,
            json!({
                "subjects": leaders,
                "resourceRules": [leases(json!(["get", "create", "update"]))],
            }),
        ),
        schema("kube-controller-manager", "workload-high", 800, NAMESPACE, everything(controllers)),
        schema("kube-scheduler", "workload-high", 800, NAMESPACE, everything(scheduler)),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            NAMESPACE,
            everything(json!([accounts()])),
        ),
        schema("service-accounts", "workload-low", 9_000, USER, everything(all_accounts)),
        schema("global-default", "global-default", 9_900, USER, everything(all_users())),
    ]
}

/// A rule about all requests of these subjects.
fn everything(subjects: Value) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
            "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn schema(
    name: &str,
    level: &str,
    precedence: i32,
    distinguisher: Option<&str>,
    rule: Value,
) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        "rules": [rule],
    });
    if let Some(distinguisher) = distinguisher {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    object("FlowSchema", name, spec)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "generation": 1, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
    })
}
