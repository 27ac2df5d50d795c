//! Admission webhooks that may keep us from running: those that are asked about our Pods, our Secret, our
//! APIServices or our questions, and refuse all while nobody answers them.

use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation, items, text};
use crate::object::Labels;
use crate::object::selector::LabelSelector;

/// Configurations that are read, and webhooks whose Services are looked at.
const LIMIT: u32 = 200;
const LOOKED_AT: usize = 20;

/// What must be written for us, and the server by itself: group, plural, operation, and whether it is in
/// our namespace.
const WRITES: [(&str, &str, &str, bool); 6] = [
    ("", "pods", "CREATE", true),
    ("apps", "replicasets", "CREATE", true),
    ("", "secrets", "UPDATE", true),
    ("apiregistration.k8s.io", "apiservices", "UPDATE", false),
    ("authorization.k8s.io", "subjectaccessreviews", "CREATE", false),
    ("authentication.k8s.io", "tokenreviews", "CREATE", false),
];

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("webhooks");
    let path = format!("/api/v1/namespaces/{}", installation.namespace);
    let namespace = match installation.find(&path).await {
        Found::Object(found) => found,
        // Told already. What selects by name is judged all the same.
        Found::Absent | Found::Hidden(_) => Value::Null,
    };
    let mut looks = 0;
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
                let Some(writes) = concerned(installation, webhook, &namespace) else { continue };
                let what = format!(
                    "webhook {} of {kind} {name} is asked about {writes}",
                    text(&webhook["name"])
                );
                let relief = format!(
                    "leave us out: kubectl edit {kind} {name}: a namespaceSelector without kubernetes.io/metadata.name={}, or failurePolicy: Ignore",
                    installation.namespace
                );
                looks += 1;
                match unanswered(installation, webhook, looks <= LOOKED_AT).await {
                    Some(why) => check.fault(format!("{what} and refuses all: {why}"), relief),
                    None => {
                        check.warn(format!("{what} and would refuse all while it is away"), relief);
                    }
                }
            }
        }
        if !text(&list["metadata"]["continue"]).is_empty() {
            let why = format!("there are more than {LIMIT} of them");
            check.unknown(&format!("the rest of {plural}"), &why);
        }
    }
    check.done("no webhook is in the way if it fails")
}

/// Which of our writes a webhook is asked about, if it refuses what it cannot be asked about.
fn concerned(installation: &Installation, webhook: &Value, namespace: &Value) -> Option<String> {
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
    let writes: Vec<&str> = WRITES.iter().filter(is_concerned).map(|write| write.1).collect();
    (!writes.is_empty()).then(|| writes.join(", "))
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

/// Whether a LabelSelector selects what has these labels. One that cannot be read does.
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

/// Why nobody answers a webhook, as far as that can be seen.
async fn unanswered(
    installation: &Installation,
    webhook: &Value,
    may_look: bool,
) -> Option<String> {
    let service = &webhook["clientConfig"]["service"];
    let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
    if !may_look || name.is_empty() {
        return None;
    }
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    match installation.find(&path).await {
        Found::Absent => return Some(format!("its Service {namespace}/{name} is missing")),
        Found::Object(found) if found["spec"]["type"] == "ExternalName" => return None,
        Found::Object(_) => {}
        Found::Hidden(_) => return None,
    }
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?limit={LIMIT}&labelSelector=kubernetes.io%2Fservice-name%3D{name}"
    );
    let Found::Object(slices) = installation.find(&path).await else { return None };
    let slices = items(&slices["items"]).iter();
    let mut endpoints = slices.flat_map(|slice| items(&slice["endpoints"]));
    let is_ready = endpoints.any(|endpoint| endpoint["conditions"]["ready"] != false);
    (!is_ready).then(|| format!("no Pod behind its Service {namespace}/{name} is ready"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_those_of_kubernetes() {
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
    fn rules_name_what_we_write() {
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"], "scope": "*"});
        assert!(is_ruled(&rule, "", "pods", "CREATE", true));
        assert!(!is_ruled(&rule, "", "secrets", "UPDATE", true));
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "operations": ["*"], "scope": "Cluster"});
        assert!(!is_ruled(&all, "", "pods", "CREATE", true));
        assert!(is_ruled(&all, "apiregistration.k8s.io", "apiservices", "UPDATE", false));
    }
}
