//! The default roles and bindings of kube-apiserver. At start, missing objects are created, and existing ones are
//! reconciled.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use aggregated_apiserver::runtime_kinds::{RestoreError, RuntimeKinds};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::aggregation::aggregated_rules;
use super::reconciliation::{Reconciled, reconcile};
use crate::built_in::rbac::GROUP;
use crate::cluster_objects::MANAGER;
use crate::objects::{ObjectError, unless_kept};

type Tree = Map<String, Value>;

/// The policy of kube-apiserver, in order: facts, written by `BLESS=1 cargo test -p oracle --test comparison -- policy`.
const TABLE: &str = include_str!("bootstrap_policy.json");
const VERSION: &str = "v1";
/// The field manager of aggregated rules in a cluster.
pub(crate) const AGGREGATOR: &str = "clusterrole-aggregation-controller";
/// The annotation that disables the reconciliation of an object if it is `"false"`.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The number of attempts to write an object that other servers may write concurrently.
const ATTEMPTS: usize = 10;

/// The expected objects, without the rules of aggregated roles. The list is empty if the table cannot be parsed; then
/// no server starts.
static POLICY: LazyLock<Vec<Tree>> = LazyLock::new(|| {
    let table: Vec<Tree> = serde_json::from_str(TABLE).unwrap_or_default();
    table.into_iter().map(expected).collect()
});

/// The rules of the aggregated roles of the policy, same as the controller computes them.
static AGGREGATED: LazyLock<HashMap<String, Vec<PolicyRule>>> = LazyLock::new(|| {
    let of_cluster = POLICY.iter().filter(|object| object["kind"] == "ClusterRole");
    let roles = of_cluster.filter_map(|role| serde_json::from_value(role.clone().into()).ok());
    let mut roles: BTreeMap<String, Arc<ClusterRole>> =
        roles.map(|role: ClusterRole| (role.name_any(), Arc::new(role))).collect();
    // An aggregated role may select another one, so there is one round for each role.
    let names: Vec<String> = roles.keys().cloned().collect();
    let is_aggregated = |name: &&String| roles[*name].aggregation_rule.is_some();
    let names: Vec<String> = names.iter().filter(is_aggregated).cloned().collect();
    for _ in 0..names.len() {
        for name in &names {
            let rules = aggregated_rules(&roles[name], &roles);
            Arc::make_mut(roles.entry(name.clone()).or_default()).rules = rules;
        }
    }
    names
        .into_iter()
        .map(|name| (name.clone(), roles[&name].rules.clone().unwrap_or_default()))
        .collect()
});

/// Resources of the policy, by kind.
const PLURALS: [(&str, &str); 4] = [
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "roles"),
    ("RoleBinding", "rolebindings"),
];

/// The name of an object: plural, namespace and name.
type Name = (&'static str, String, String);

/// Creates the missing objects of the policy, and adds missing parts to existing objects. Unchanged objects are not
/// written. If another process has written to the store before, a failed write is logged and does not prevent the
/// start, because a full disk must not prevent reads.
///
/// # Errors
/// The reason, if an object cannot be written to a new store.
pub(crate) async fn ensure(
    client: &Client,
    kinds: &RuntimeKinds,
    now: Timestamp,
) -> Result<(), ObjectError> {
    if POLICY.is_empty() {
        return Err(ObjectError::new("bootstrap policy", "cannot be read"));
    }
    let existing = existing(kinds);
    let (present, missing): (Vec<_>, Vec<_>) =
        POLICY.iter().partition(|object| existing.contains_key(&name_of(object)));
    create(kinds, &missing, now).await?;
    for expected in present {
        if let Err(why) = ensure_one(client, kinds, expected, &existing, now).await {
            tracing::warn!(
                object = %described(expected),
                error = %why,
                "cannot reconcile bootstrap policy"
            );
        }
    }
    Ok(())
}

/// The objects of all kinds of the policy, each with its resourceVersion.
fn existing(kinds: &RuntimeKinds) -> HashMap<Name, Tree> {
    let mut existing = HashMap::new();
    for (_, plural) in PLURALS {
        for kept in kinds.objects(GROUP, plural).iter().flat_map(|kept| kept.iter()) {
            let mut tree = kept.to_tree();
            if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
                let version = kept.resource_version().to_string();
                metadata.insert("resourceVersion".to_owned(), version.into());
            }
            let name = (plural, kept.namespace().to_owned(), kept.name().to_owned());
            existing.insert(name, tree);
        }
    }
    existing
}

async fn create(
    kinds: &RuntimeKinds,
    missing: &[&Tree],
    now: Timestamp,
) -> Result<(), ObjectError> {
    let objects = missing.iter().map(|object| created(object, now)).collect();
    let results = kinds.restore_unchecked(objects).await;
    for (object, result) in missing.iter().zip(results) {
        let created = match result {
            Err(RestoreError::Exists) => Ok(()),
            result => result.map_err(|why| ObjectError::new(described(object), why)),
        };
        unless_kept(kinds, created)?;
    }
    Ok(())
}

/// Reconciles an existing object.
async fn ensure_one(
    client: &Client,
    kinds: &RuntimeKinds,
    expected: &Tree,
    existing: &HashMap<Name, Tree>,
    now: Timestamp,
) -> Result<(), String> {
    let name = name_of(expected);
    let api = api(client, expected);
    let mut found = existing[&name].clone();
    for _ in 0..ATTEMPTS {
        let written = match reconcile(&found, expected) {
            Reconciled::Unchanged => return Ok(()),
            Reconciled::Changed(object) => {
                tracing::debug!(object = %described(expected), "reconciled bootstrap policy");
                let object =
                    serde_json::from_value(object.into()).map_err(|why| why.to_string())?;
                let manager = Some(MANAGER.to_owned());
                let post = PostParams { field_manager: manager, ..PostParams::default() };
                api.replace(&name.2, &post, &object).await.map(drop)
            }
            Reconciled::Recreated => {
                let uid = found["metadata"]["uid"].as_str().map(str::to_owned);
                let own = Preconditions { uid, resource_version: None };
                let delete = DeleteParams::default().preconditions(own);
                match api.delete(&name.2, &delete).await {
                    Ok(_) => {
                        return create(kinds, &[expected], now)
                            .await
                            .map_err(|why| why.to_string());
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match written {
            Ok(()) => return Ok(()),
            // Another server has written the object concurrently.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => return Err(error.to_string()),
        }
        match api.get_opt(&name.2).await.map_err(|error| error.to_string())? {
            None => return create(kinds, &[expected], now).await.map_err(|why| why.to_string()),
            Some(object) => match serde_json::to_value(object) {
                Ok(Value::Object(object)) => found = object,
                _ => return Err("cannot be read".to_owned()),
            },
        }
    }
    Err("is written by other servers all the time".to_owned())
}

fn api(client: &Client, object: &Tree) -> Api<DynamicObject> {
    let (plural, namespace, _) = name_of(object);
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: text(object.get("kind")),
        plural: plural.to_owned(),
    };
    match namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// An entry of the table with the fields that all objects of the policy share.
fn expected(mut entry: Tree) -> Tree {
    entry.insert("apiVersion".to_owned(), format!("{GROUP}/{VERSION}").into());
    if let Some(Value::Object(metadata)) = entry.get_mut("metadata") {
        metadata.insert("annotations".to_owned(), json!({AUTO_UPDATE: "true"}));
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
    }
    entry
}

/// The object of the policy that is created.
fn created(expected: &Tree, now: Timestamp) -> Tree {
    let mut object = expected.clone();
    let time = now.round(Unit::Second).unwrap_or(now).to_string();
    let rules = AGGREGATED.get(&name_of(expected).2).filter(|_| expected["kind"] == "ClusterRole");
    let mut managers = Vec::new();
    if let Some(rules) = rules {
        managers.push(managed((AGGREGATOR, "Apply"), json!({"f:rules": {}}), &time));
        object.insert("rules".to_owned(), json!(rules));
    }
    managers.push(managed((MANAGER, "Update"), owned_fields(expected), &time));
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("creationTimestamp".to_owned(), time.into());
        metadata.insert("managedFields".to_owned(), managers.into());
    }
    object
}

fn managed((manager, operation): (&str, &str), fields: Value, time: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "fieldsType": "FieldsV1", "fieldsV1": fields,
        "manager": manager, "operation": operation, "time": time,
    })
}

/// The fields that kube-apiserver owns in an object that it created.
fn owned_fields(object: &Tree) -> Value {
    let of_map = |name: &str| {
        let keys = object["metadata"][name].as_object().into_iter().flat_map(Map::keys);
        let keys = keys.map(|key| (format!("f:{key}"), json!({})));
        let keys: Tree = [(".".to_owned(), json!({}))].into_iter().chain(keys).collect();
        Value::Object(keys)
    };
    let mut fields = json!({
        "f:metadata": {"f:annotations": of_map("annotations"), "f:labels": of_map("labels")},
    });
    for name in ["roleRef", "rules", "subjects"] {
        if object.contains_key(name) {
            fields[format!("f:{name}")] = json!({});
        }
    }
    if object.contains_key("aggregationRule") {
        fields["f:aggregationRule"] = json!({".": {}, "f:clusterRoleSelectors": {}});
    }
    fields
}

fn name_of(object: &Tree) -> Name {
    let metadata = &object["metadata"];
    let plural = PLURALS.iter().find(|(kind, _)| object["kind"] == *kind);
    let plural = plural.map_or("", |(_, plural)| plural);
    (plural, text(metadata.get("namespace")), text(metadata.get("name")))
}

/// The kind and name of an object for messages: `ClusterRole "view"`.
fn described(object: &Tree) -> String {
    let (_, _, name) = name_of(object);
    format!("{} {name:?}", text(object.get("kind")))
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
