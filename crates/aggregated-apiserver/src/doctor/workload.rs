//! Checks of the namespace of the server, its Service, and the Pods behind the Service.

use serde_json::Value;

use super::finding::{Check, Finding};
use super::registration::port;
use super::{Found, Installation, items, text};

/// The largest number of EndpointSlices and of Pods that are read.
const LIMIT: u32 = 50;

/// Checks that the namespace exists and is not being deleted.
pub(super) async fn namespace(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("namespace");
    let Installation { namespace, .. } = installation;
    match installation.find(&format!("/api/v1/namespaces/{namespace}")).await {
        Found::Object(found) if found["status"]["phase"] == "Terminating" => check.fault(
            format!("Namespace {namespace} is being deleted"),
            format!(
                "if it stays in this state: kubectl delete apiservice {}; then {}",
                installation.api_services.join(" "),
                installation.create()
            ),
        ),
        Found::Object(_) => {}
        Found::Absent => {
            check.fault(format!("Namespace {namespace} is missing"), installation.create());
        }
        Found::Hidden(why) => check.unknown(&format!("Namespace {namespace}"), &why),
    }
    check.done(format!("Namespace {namespace} exists"))
}

/// Checks that the Service exists and has the port that APIServices refer to.
pub(super) async fn service(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("service");
    let Installation { namespace, service, .. } = installation;
    let what = format!("Service {namespace}/{service}");
    let found = match installation.find_service().await {
        Found::Object(found) => found,
        Found::Absent => {
            check.fault(format!("{what} is missing"), installation.create());
            return check.done("");
        }
        Found::Hidden(why) => {
            check.unknown(&what, &why);
            return check.done("");
        }
    };
    if is_external(&found) {
        let to = text(&found["spec"]["externalName"]);
        return check.done(format!("{what} leads out of the cluster, to {to}"));
    }
    let ports: Vec<u64> =
        items(&found["spec"]["ports"]).iter().filter_map(|port| port["port"].as_u64()).collect();
    for name in &installation.api_services {
        let Found::Object(api_service) = installation.find_api_service(name).await else {
            continue;
        };
        let port = port(&api_service);
        if !ports.contains(&port) {
            check.fault(
                format!("{what} has no port {port}, which APIService {name} names, but {ports:?}"),
                format!("give it that port: kubectl -n {namespace} edit service {service}"),
            );
        }
    }
    check.done(format!("{what} exists"))
}

/// Checks that a Pod behind the Service is ready, and if none is, finds the reason.
pub(super) async fn endpoints(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("endpoints");
    let Installation { namespace, service, .. } = installation;
    let found = match installation.find_service().await {
        Found::Object(found) => found,
        // An earlier check has already reported that it is missing.
        Found::Absent => {
            let why = "there is no Service";
            check.unseen("endpoints", why, installation.create());
            return check.done("");
        }
        Found::Hidden(why) => {
            check.unknown("endpoints", &why);
            return check.done("");
        }
    };
    if is_external(&found) {
        return check.done("the Service needs none");
    }
    let what = format!("endpoints of Service {namespace}/{service}");
    match ready_addresses(installation).await {
        Ok(ready) if ready.is_empty() => {
            let (why, remedy) = why_not_ready(installation, &found).await;
            check.fault(
                format!("no Pod behind Service {namespace}/{service} is ready: {why}"),
                remedy,
            );
            check.done("")
        }
        Ok(ready) => {
            check.done(format!("{} ready behind Service {namespace}/{service}", ready.len()))
        }
        Err(why) => {
            check.unknown(&what, &why);
            check.done("")
        }
    }
}

fn is_external(service: &Value) -> bool {
    service["spec"]["type"] == "ExternalName"
}

/// The addresses of the ready Pods behind the Service, for example `10.0.0.1:3000`.
pub(super) async fn ready_addresses(installation: &Installation) -> Result<Vec<String>, String> {
    let Installation { namespace, service, .. } = installation;
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?limit={LIMIT}&labelSelector=kubernetes.io%2Fservice-name%3D{service}"
    );
    match installation.find(&path).await {
        Found::Object(list) => Ok(items(&list["items"]).iter().flat_map(ready).collect()),
        Found::Absent => Err("the cluster has no EndpointSlices".to_owned()),
        Found::Hidden(why) => Err(why),
    }
}

fn ready(slice: &Value) -> Vec<String> {
    let port = slice["ports"][0]["port"].as_u64().unwrap_or(443);
    let is_ready = |endpoint: &&Value| endpoint["conditions"]["ready"] != false;
    let ready = items(&slice["endpoints"]).iter().filter(is_ready);
    let addresses = ready.flat_map(|endpoint| items(&endpoint["addresses"]).iter().take(1));
    let is_v6 = slice["addressType"] == "IPv6";
    addresses
        .map(|address| match is_v6 {
            true => format!("[{}]:{port}", text(address)),
            false => format!("{}:{port}", text(address)),
        })
        .collect()
}

/// The addresses at which the server may be reachable from this machine.
pub(super) async fn addresses(installation: &Installation) -> Vec<String> {
    if let Some(address) = &installation.server_address {
        return vec![address.clone()];
    }
    let Found::Object(service) = installation.find_service().await else { return Vec::new() };
    if !is_external(&service) {
        return ready_addresses(installation).await.unwrap_or_default();
    }
    let Some(name) = installation.api_services.first() else { return Vec::new() };
    let Found::Object(api_service) = installation.find_api_service(name).await else {
        return Vec::new();
    };
    vec![format!("{}:{}", text(&service["spec"]["externalName"]), port(&api_service))]
}

/// The reason why no Pod is ready, and the remedy.
async fn why_not_ready(installation: &Installation, service: &Value) -> (String, String) {
    let Installation { namespace, name, .. } = installation;
    let terms = service["spec"]["selector"].as_object();
    let terms = terms.into_iter().flatten();
    let selector: Vec<String> =
        terms.map(|(key, value)| format!("{key}={}", text(value))).collect();
    let selector = selector.join(",");
    if selector.is_empty() {
        let remedy = format!(
            "give it the selector app.kubernetes.io/name={name}: kubectl -n {namespace} edit service {}",
            installation.service
        );
        return ("the Service has no selector and no endpoints".to_owned(), remedy);
    }
    let query: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
    let path = format!("/api/v1/namespaces/{namespace}/pods?limit={LIMIT}&labelSelector={query}");
    let pods = match installation.find(&path).await {
        Found::Object(list) => list,
        Found::Absent => Value::Null,
        Found::Hidden(why) => {
            let remedy = "retry as an administrator of the cluster (--kubeconfig)";
            return (format!("cannot read Pods: {why}"), remedy.to_owned());
        }
    };
    if let Some(pod) = most_telling(items(&pods["items"])) {
        let pod_name = text(&pod["metadata"]["name"]);
        // The log of the current container does not contain the reason why the previous one ended.
        let logs = match has_ended_before(pod) {
            true => format!("{} --previous", installation.logs()),
            false => installation.logs(),
        };
        return (
            format!("Pod {namespace}/{pod_name}: {}", state(pod)),
            format!("kubectl -n {namespace} describe pod {pod_name}; {logs}"),
        );
    }
    for plural in ["deployments", "statefulsets"] {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/{plural}/{name}");
        let Found::Object(workload) = installation.find(&path).await else { continue };
        let failure = items(&workload["status"]["conditions"])
            .iter()
            .find(|condition| condition["type"] == "ReplicaFailure");
        let why = match failure {
            Some(failure) => text(&failure["message"]).to_owned(),
            None if workload["spec"]["replicas"] == 0 => "it is scaled to no replicas".to_owned(),
            None => "its Pods are not created".to_owned(),
        };
        let singular = plural.trim_end_matches('s');
        return (
            format!("{singular} {namespace}/{name}: {why}"),
            format!(
                "kubectl -n {namespace} describe {singular} {name}; kubectl -n {namespace} scale {singular} {name} --replicas=1"
            ),
        );
    }
    (format!("there are no Pods with {selector}"), installation.create())
}

/// Selects the Pod that should be ready. A Pod that has ended or is being deleted is selected only if there is no
/// other.
fn most_telling(pods: &[Value]) -> Option<&Value> {
    let is_over = |pod: &&Value| {
        let has_ended = ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]));
        has_ended || !pod["metadata"]["deletionTimestamp"].is_null()
    };
    pods.iter().min_by_key(is_over)
}

/// The container statuses of a Pod, init containers first, because the others wait for them.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let status = &pod["status"];
    items(&status["initContainerStatuses"]).iter().chain(items(&status["containerStatuses"]))
}

fn has_ended_before(pod: &Value) -> bool {
    containers(pod).any(|container| container["lastState"]["terminated"].is_object())
}

/// The reason why a Pod is not ready.
fn state(pod: &Value) -> String {
    // An init container that has completed does not block the others.
    let is_done = |container: &&Value| container["state"]["terminated"]["exitCode"] == 0;
    let is_waiting_for_another =
        |container: &&Value| text(&container["state"]["waiting"]["reason"]) == "PodInitializing";
    let telling = containers(pod).filter(|one| !is_done(one) && !is_waiting_for_another(one));
    for container in telling {
        let waiting = &container["state"]["waiting"];
        if waiting.is_object() {
            let before = &container["lastState"]["terminated"];
            let before = match before.is_object() {
                true => format!(
                    "; it ended before: {} (exit code {})",
                    text(&before["reason"]),
                    before["exitCode"]
                ),
                false => String::new(),
            };
            let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
            return format!("{reason} {message}{before}");
        }
        let ended = &container["state"]["terminated"];
        if ended.is_object() {
            return format!(
                "its container has ended: {} (exit code {})",
                text(&ended["reason"]),
                ended["exitCode"]
            );
        }
    }
    let conditions = items(&pod["status"]["conditions"]);
    let failing = conditions.iter().find(|condition| condition["status"] == "False");
    match failing {
        Some(condition) => {
            format!("{} {}", text(&condition["reason"]), text(&condition["message"]))
        }
        None => format!("it is {}", text(&pod["status"]["phase"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_read_from_ready_endpoints_only() {
        let slice = json!({
            "addressType": "IPv6", "ports": [{"port": 3000}],
            "endpoints": [
                {"addresses": ["fd00::1"], "conditions": {"ready": true}},
                {"addresses": ["fd00::2"], "conditions": {"ready": false}},
                {"addresses": ["fd00::3"], "conditions": {}},
            ],
        });
        assert_eq!(ready(&slice), ["[fd00::1]:3000", "[fd00::3]:3000"]);
        assert!(ready(&json!({"endpoints": null})).is_empty());
    }

    #[test]
    fn the_reason_why_a_pod_is_not_ready_is_reported() {
        let waiting = json!({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]}});
        assert_eq!(state(&waiting), "ImagePullBackOff not found");
        let unschedulable = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0 nodes"}]}});
        assert_eq!(state(&unschedulable), "Unschedulable 0/0 nodes");
        assert_eq!(state(&json!({"status": {"phase": "Pending"}})), "it is Pending");
        let ended = json!({"status": {"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}});
        assert_eq!(state(&ended), "its container has ended: Error (exit code 1)");
        let again = json!({"status": {
            "initContainerStatuses": [{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}],
            "containerStatuses": [{
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            }],
        }});
        let said = "CrashLoopBackOff back-off; it ended before: OOMKilled (exit code 137)";
        assert_eq!(state(&again), said);
        assert!(has_ended_before(&again) && !has_ended_before(&ended));
        let first = json!({"status": {
            "initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}],
            "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
        }});
        assert_eq!(state(&first), "ErrImagePull x");
    }

    #[test]
    fn ended_or_terminating_pods_are_selected_last() {
        let gone =
            json!({"metadata": {"name": "gone", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let failed = json!({"metadata": {"name": "failed"}, "status": {"phase": "Failed"}});
        let waits = json!({"metadata": {"name": "waits"}, "status": {"phase": "Pending"}});
        let pods = [gone.clone(), failed, waits.clone()];
        assert_eq!(most_telling(&pods), Some(&waits));
        assert_eq!(most_telling(&pods[..1]), Some(&gone));
        assert_eq!(most_telling(&[]), None);
    }
}
