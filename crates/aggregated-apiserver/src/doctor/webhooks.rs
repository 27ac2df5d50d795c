//! Finds admission webhooks that can prevent the server from running. Such a webhook is called for the server's Pods,
//! Secret, APIServices or access reviews, and rejects all of them while it is unavailable.

use serde_json::{Value, json};

use super::finding::{Check, Finding};
use super::{Found, Installation, items, text};
use crate::object::Labels;
use crate::object::selector::LabelSelector;

/// The limit of configurations that are read, and of webhooks whose Services are examined.
const LIMIT: u32 = 200;
const LOOKED_AT: usize = 20;

/// The writes that the server needs, by itself or by controllers: group, plural, operation, and whether the object is
/// in the server's namespace.
const WRITES: [(&str, &str, &str, bool); 7] = [
    ("", "pods", "CREATE", true),
    (CLAIMS.0, CLAIMS.1, "CREATE", true),
    ("apps", "replicasets", "CREATE", true),
    ("", "secrets", "UPDATE", true),
    ("apiregistration.k8s.io", "apiservices", "UPDATE", false),
    ("authorization.k8s.io", "subjectaccessreviews", "CREATE", false),
    ("authentication.k8s.io", "tokenreviews", "CREATE", false),
];

/// Written only for a server that stores its objects on a volume.
const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");

/// Whether a webhook can be called, as far as that is visible.
enum Answers {
    Yes,
    /// The webhook is outside the cluster, or its Service cannot be read.
    Unknown,
    /// The webhook cannot be called, for this reason.
    No(String),
}

/// The writes of the server that a webhook is called for.
struct Concern {
    plurals: String,
    /// Whether all of the objects are in the server's namespace, so that a namespaceSelector can exclude them.
    is_namespaced: bool,
    /// Whether matchConditions, which are not evaluated here, can exclude the writes.
    is_conditional: bool,
}

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("webhooks");
    let path = format!("/api/v1/namespaces/{}", installation.namespace);
    let namespace = match installation.find(&path).await {
        Found::Object(found) => found,
        // An earlier check has already reported this. Selectors by name are still evaluated, because each namespace has
        // this label.
        Found::Absent | Found::Hidden(_) => {
            let labels = json!({"kubernetes.io/metadata.name": installation.namespace});
            json!({"metadata": {"labels": labels}})
        }
    };
    let (mut looks, mut gates) = (0, Vec::new());
    for (plural, kind) in [
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}?limit={LIMIT}");
        let list = match installation.find(&path).await {
            Found::Object(list) => list,
            Found::Absent => continue,
            Found::Hidden(why) => {
                check.unknown(plural, &why);
                continue;
            }
        };
        for configuration in items(&list["items"]) {
            let name = text(&configuration["metadata"]["name"]);
            for webhook in items(&configuration["webhooks"]) {
                let Some(concern) = concerned(installation, webhook, &namespace) else { continue };
                let what = format!(
                    "webhook {} of {kind} {name} is called for {}",
                    text(&webhook["name"]),
                    concern.plurals
                );
                let way = match concern.is_namespaced {
                    true => format!(
                        "a namespaceSelector without kubernetes.io/metadata.name={}",
                        installation.namespace
                    ),
                    // A namespaceSelector does not apply to cluster-scoped objects.
                    false => format!("rules without {}", concern.plurals),
                };
                let relief = format!(
                    "repair the webhook, or exclude these objects: kubectl edit {kind} {name}: {way}, or failurePolicy: Ignore"
                );
                looks += 1;
                match answers(installation, webhook, looks <= LOOKED_AT).await {
                    Answers::No(why) if concern.is_conditional => check.warn(
                        format!("{what}, unless its matchConditions exclude them, and rejects all: {why}"),
                        relief,
                    ),
                    Answers::No(why) => check.fault(format!("{what} and rejects all: {why}"), relief),
                    Answers::Yes | Answers::Unknown => gates.push(name.to_owned()),
                }
            }
        }
        if !text(&list["metadata"]["continue"]).is_empty() {
            check.unseen(
                &format!("the rest of {plural}"),
                &format!("there are more than {LIMIT} of them"),
                format!("kubectl get {plural}: check whether a later one rejects objects"),
            );
        }
    }
    gates.dedup();
    check.done(match gates.is_empty() {
        true => "no webhook blocks the server if it fails".to_owned(),
        false => format!(
            "all webhooks seem available; objects that the server needs would be rejected without {}",
            gates.join(", ")
        ),
    })
}

/// Returns the writes of the server that a webhook is called for, if the webhook rejects a write when it cannot be
/// called.
fn concerned(installation: &Installation, webhook: &Value, namespace: &Value) -> Option<Concern> {
    if webhook["failurePolicy"] == "Ignore" {
        return None;
    }
    let of_namespace = labels(&namespace["metadata"]["labels"]);
    let own = [("app.kubernetes.io/name".into(), installation.name.as_str().into())];
    let of_pod: Labels = own.into_iter().collect();
    let is_concerned = |(group, plural, operation, is_namespaced): &&(&str, &str, &str, bool)| {
        let of_object =
            if *plural == "secrets" || !is_namespaced { Labels::default() } else { of_pod.clone() };
        items(&webhook["rules"])
            .iter()
            .any(|rule| is_ruled(rule, group, plural, operation, *is_namespaced))
            && (!is_namespaced || selects(&webhook["namespaceSelector"], &of_namespace))
            && selects(&webhook["objectSelector"], &of_object)
    };
    let is_made = |write: &&(&str, &str, &str, bool)| {
        (write.0, write.1) != CLAIMS || installation.deployed.has_volume()
    };
    let writes = WRITES.iter().filter(is_made).filter(is_concerned);
    let writes: Vec<&(&str, &str, &str, bool)> = writes.collect();
    let plurals: Vec<&str> = writes.iter().map(|write| write.1).collect();
    (!writes.is_empty()).then(|| Concern {
        plurals: plurals.join(", "),
        is_namespaced: writes.iter().all(|write| write.3),
        is_conditional: !items(&webhook["matchConditions"]).is_empty(),
    })
}

fn is_ruled(rule: &Value, group: &str, plural: &str, operation: &str, is_namespaced: bool) -> bool {
    let names = |field: &str, wanted: &[&str]| {
        items(&rule[field]).iter().any(|name| wanted.contains(&text(name)))
    };
    let scope = match text(&rule["scope"]) {
        "Namespaced" => is_namespaced,
        "Cluster" => !is_namespaced,
        _ => true,
    };
    scope
        && names("apiGroups", &["*", group])
        && names("resources", &["*", "*/*", plural])
        && names("operations", &["*", operation])
}

fn labels(labels: &Value) -> Labels {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), text(value).into())).collect()
}

/// Whether a LabelSelector matches these labels. An invalid selector matches.
fn selects(selector: &Value, labels: &Labels) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        equal.map(|(key, value)| format!("{key}={}", text(value))).collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let values: Vec<&str> = items(&expression["values"]).iter().map(text).collect();
        let values = values.join(",");
        terms.push(match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    let selector = LabelSelector::parse(&terms.join(","));
    selector.map_or(true, |selector| selector.matches(labels))
}

/// Checks whether a webhook can be called.
async fn answers(installation: &Installation, webhook: &Value, may_look: bool) -> Answers {
    let service = &webhook["clientConfig"]["service"];
    let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
    if !may_look || name.is_empty() {
        return Answers::Unknown;
    }
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    match installation.find(&path).await {
        Found::Absent => return Answers::No(format!("its Service {namespace}/{name} is missing")),
        Found::Object(found) if found["spec"]["type"] == "ExternalName" => return Answers::Unknown,
        Found::Object(_) => {}
        Found::Hidden(_) => return Answers::Unknown,
    }
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?limit={LIMIT}&labelSelector=kubernetes.io%2Fservice-name%3D{name}"
    );
    let Found::Object(slices) = installation.find(&path).await else { return Answers::Unknown };
    let slices = items(&slices["items"]).iter();
    let mut endpoints = slices.flat_map(|slice| items(&slice["endpoints"]));
    let is_ready = endpoints.any(|endpoint| endpoint["conditions"]["ready"] != false);
    match is_ready {
        true => Answers::Yes,
        false => Answers::No(format!("no Pod behind its Service {namespace}/{name} is ready")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_of_webhooks_match_as_in_kubernetes() {
        let ours = labels(&json!({"kubernetes.io/metadata.name": "farm", "team": "a"}));
        assert!(selects(&Value::Null, &ours));
        assert!(selects(&json!({"matchLabels": {"team": "a"}}), &ours));
        assert!(!selects(&json!({"matchLabels": {"team": "b"}}), &ours));
        let expression = |operator: &str, key: &str, values: &[&str]| {
            selects(
                &json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
                &ours,
            )
        };
        assert!(expression("In", "team", &["a", "b"]));
        assert!(!expression("NotIn", "kubernetes.io/metadata.name", &["farm", "x"]));
        assert!(expression("NotIn", "other", &["x"]));
        assert!(expression("Exists", "team", &[]) && !expression("DoesNotExist", "team", &[]));
    }

    #[test]
    fn webhook_rules_match_by_group_resource_operation_and_scope() {
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"], "scope": "*"});
        assert!(is_ruled(&rule, "", "pods", "CREATE", true));
        assert!(!is_ruled(&rule, "", "secrets", "UPDATE", true));
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "operations": ["*"], "scope": "Cluster"});
        assert!(!is_ruled(&all, "", "pods", "CREATE", true));
        assert!(is_ruled(&all, "apiregistration.k8s.io", "apiservices", "UPDATE", false));
    }
}
