//! Pods.

pub(crate) mod binding;
mod cells;
mod eviction;
mod extended_claim;
mod label_keys;
mod quota_usage;
mod resources;
mod status;
mod update;
mod validation;

use std::collections::{BTreeMap, HashMap, VecDeque};

use aggregated_apiserver::encoding::truncate_to_seconds;
use aggregated_apiserver::strategy::{FilledField, QuotaUsage, RowCondition, names};
use aggregated_apiserver::strategy::{SubresourceError, SubresourceRequest};
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use crate::built_in::defaulting::{is_new, set_default, sync_with_list};
use crate::built_in::pod_template::annotations::APP_ARMOR_OF;
use crate::built_in::pod_template::{spec, warnings};
use crate::built_in::row::{ALL, Row, Subresources};
use crate::built_in::strategy::common;
use resources::{default_pod_resources, default_requests, qos_class};

pub(crate) fn row() -> Row<Pod> {
    let rules = Validation::new()
        .prepare(|pod, context| {
            let old = context.old::<Pod>();
            drop_disabled(pod, old.as_ref());
            if let Some(old) = old {
                keep_observed_generations(pod, old);
            }
            set_defaults(pod);
            if context.is_admitted {
                if is_new(&pod.metadata) && !context.is_restored {
                    add_requirements(pod);
                }
                complete(pod, context.now);
            }
        })
        .validate(|pod, old, _| validation::validate(pod, old))
        .validate_status(|pod, old, _| status::validate(pod, old))
        .warn(|pod, old, _| if old.is_none() { warnings(pod) } else { Vec::new() })
        .warn_of_status(|pod, _, _| status::warnings(pod));
    Row {
        short_names: &["po"],
        categories: ALL,
        subresources: Subresources::Status,
        posted: vec![binding::subresource(), eviction::subresource()],
        columns: cells::columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// Rejects the body of a subresource request of a Pod, if its name differs from that of the Pod.
fn check_name(request: &SubresourceRequest<'_>, kind: &str) -> Result<(), SubresourceError> {
    if request.body["metadata"]["name"].as_str().unwrap_or_default() == request.key.name() {
        return Ok(());
    }
    let why = format!("name in URL does not match name in {kind} object");
    Err(SubresourceError::BadRequest(why))
}

/// Replaces the condition of the same type. The transition time changes only with the status.
fn set_condition(pod: &mut Value, mut condition: Value, now: Timestamp) {
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else { return };
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = truncate_to_seconds(now).to_string().into();
    let known = conditions.iter_mut().find(|known| known["type"] == condition["type"]);
    match known {
        Some(known) if known["status"] == condition["status"] => {
            condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            *known = condition;
        }
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[
    FilledField::field("/spec/preemptionPolicy").by_admission(),
    FilledField::field("/spec/priority").by_admission(),
    FilledField::field("/spec/priorityClassName").by_admission(),
    FilledField::field("/spec/tolerations").by_admission(),
    FilledField::field("/spec/overhead").by_admission(),
    FilledField::field("/spec/nodeSelector").by_admission(),
    FilledField::field("/spec/containers/*/securityContext"),
    FilledField::field("/spec/initContainers/*/securityContext"),
    FilledField::dropped("/spec/schedulingGroup"),
];

fn strategy() -> Strategy {
    let selectable = SelectableFields::default()
        .with_field("spec.nodeName", "")
        .with_field("spec.restartPolicy", "")
        .with_field("spec.schedulerName", "")
        .with_field("spec.serviceAccountName", "")
        .with_field("spec.hostNetwork", "false")
        .with_field("status.phase", "")
        .with_field("status.podIP", "")
        // kube-apiserver accepts the name of this field, but the field has no value in any Pod.
        .with_field_at("status.podIPs", &[], "")
        .with_field("status.nominatedNodeName", "");
    Strategy {
        metadata_reset_by_status: &["ownerReferences"],
        selectable,
        completed: Some(completed),
        returns_deleted_object: true,
        grace_period: Some(grace_period),
        kept_if_omitted: &["/spec/priority", "/spec/preemptionPolicy"],
        quota_usage: QuotaUsage::Evaluated(&quota_usage::PodEvaluator),
        filled_by_system: FILLED,
        ..common()
    }
}

/// The reason for which a Pod has terminated.
fn completed(pod: &Map<String, Value>) -> Option<RowCondition> {
    let (reason, message) = match pod.get("status")?["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(RowCondition { reason, message })
}

/// The grace period of a Pod in seconds. A Pod that was never bound to a node, or has terminated, is removed at once.
fn grace_period(pod: &Map<String, Value>) -> Option<i64> {
    let text = |part: &str, field: &str| pod.get(part).and_then(|part| part[field].as_str());
    let is_bound = text("spec", "nodeName").is_some_and(|node| !node.is_empty());
    let is_over = matches!(text("status", "phase"), Some("Succeeded" | "Failed"));
    let usual = pod.get("spec").and_then(|spec| spec["terminationGracePeriodSeconds"].as_i64());
    (is_bound && !is_over).then(|| usual.unwrap_or(30))
}

/// Keeps the observed generations of a Pod if an update of the status omits them, because older kubelets do not send
/// them.
fn keep_observed_generations(pod: &mut Pod, old: Pod) {
    let (Some(status), Some(old)) = (&mut pod.status, old.status) else { return };
    let keep = |generation: &mut Option<i64>, old: Option<i64>| {
        if generation.unwrap_or(0) == 0 {
            *generation = old;
        }
    };
    keep(&mut status.observed_generation, old.observed_generation);
    // There may be several conditions of the same type.
    let mut of_type: HashMap<String, VecDeque<Option<i64>>> = HashMap::new();
    for condition in old.conditions.into_iter().flatten() {
        of_type.entry(condition.type_).or_default().push_back(condition.observed_generation);
    }
    for condition in status.conditions.iter_mut().flatten() {
        let seen = of_type.get_mut(&condition.type_).and_then(VecDeque::pop_front);
        keep(&mut condition.observed_generation, seen.flatten());
    }
}

fn set_defaults(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    // A negative grace period of a Pod is changed to one second; in a template, it is not changed.
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        spec.termination_grace_period_seconds = Some(1);
    }
    spec::set_defaults(spec);
    spec.enable_service_links.get_or_insert(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        default_requests(container);
    }
    default_pod_resources(spec);
    default_host_ports(spec);
    if let Some(status) = &mut pod.status {
        sync_with_list(
            &mut status.pod_ip,
            &mut status.pod_ips,
            |one| one.ip.clone(),
            |ip| PodIP { ip },
        );
        sync_with_list(
            &mut status.host_ip,
            &mut status.host_ips,
            |one| one.ip.clone(),
            |ip| HostIP { ip },
        );
    }
}

/// Sets the fields that depend on others, after admission: in a new Pod, those that depend on its labels and
/// annotations, and the fields of the status.
fn complete(pod: &mut Pod, now: Timestamp) {
    let is_new = is_new(&pod.metadata);
    let spec = pod.spec.get_or_insert_default();
    if is_new {
        set_app_armor_profiles(spec, pod.metadata.annotations.as_ref());
    }
    let class = qos_class(spec);
    let is_gated = is_new && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let status = pod.status.get_or_insert_with(PodStatus::default);
    if is_new {
        set_default(&mut status.phase, "Pending");
    }
    set_default(&mut status.qos_class, class);
    let conditions = status.conditions.get_or_insert_default();
    if is_gated && !conditions.iter().any(|condition| condition.type_ == "PodScheduled") {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        conditions.push(PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("SchedulingGated".to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        });
    }
}

/// Sets the fields that have replaced annotations.
/// Adds the requirements of `matchLabelKeys` and `mismatchLabelKeys`. A loaded Pod has them already.
fn add_requirements(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    label_keys::add_requirements(spec, pod.metadata.labels.as_ref());
}

fn set_app_armor_profiles(spec: &mut PodSpec, annotations: Option<&BTreeMap<String, String>>) {
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return;
    }
    let of_pod = spec.security_context.as_ref().and_then(|own| own.app_armor_profile.clone());
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let key = format!("{APP_ARMOR_OF}{}", container.name);
        let annotation = annotations.and_then(|annotations| annotations.get(&key));
        let profile = annotation.and_then(|annotation| warnings::app_armor_profile(annotation));
        if profile.is_none() || profile == of_pod {
            continue;
        }
        let own = container.security_context.as_ref();
        if own.is_none_or(|own| own.app_armor_profile.is_none()) {
            container.security_context.get_or_insert_default().app_armor_profile = profile;
        }
    }
}

/// Sets the host ports of a Pod on the host network, where the port of a container is a port of the node.
fn default_host_ports(spec: &mut PodSpec) {
    if spec.host_network != Some(true) {
        return;
    }
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for port in containers.flat_map(|container| container.ports.iter_mut().flatten()) {
        if port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
}

/// Removes fields whose features are off by default, unless the old Pod has them.
fn drop_disabled(pod: &mut Pod, old: Option<&Pod>) {
    let old = old.and_then(|old| old.spec.as_ref());
    spec::drop_disabled(pod.spec.get_or_insert_default(), old);
}

/// Warnings about a new Pod.
fn warnings(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let faults = names::check_dns_1123_label(name);
    let of_name = (!faults.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        )
    });
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    of_name.into_iter().chain(warnings::of_pod(spec, &pod.metadata)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{now, object, prepared};
    use serde_json::json;

    #[test]
    fn an_observed_generation_of_zero_does_not_overwrite_the_stored_one() {
        let pod = |generation: i64| {
            let condition =
                json!({"type": "Ready", "status": "True", "observedGeneration": generation});
            let status = json!({"observedGeneration": generation, "conditions": [condition]});
            object::<Pod>(json!({"status": status}))
        };
        for (new, expected) in [(0, 3), (4, 4)] {
            let mut pod_now = pod(new);
            keep_observed_generations(&mut pod_now, pod(3));
            assert_eq!(pod_now, pod(expected));
        }
    }

    fn defaulted(pod: Value) -> Value {
        let prepare = |pod: &mut Pod| {
            set_defaults(pod);
            complete(pod, now());
        };
        prepared(prepare, pod)
    }

    fn pod(spec: Value) -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    }

    #[test]
    fn defaults() {
        assert_eq!(
            defaulted(pod(json!({}))),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {},
                "spec": {
                    "containers": [{
                        "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent",
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File", "resources": {},
                    }],
                    "dnsPolicy": "ClusterFirst", "enableServiceLinks": true,
                    "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {},
                    "terminationGracePeriodSeconds": 30,
                },
                "status": {"phase": "Pending", "qosClass": "BestEffort", "conditions": []},
            })
        );
    }

    #[test]
    fn defaults_of_an_update() {
        let mut old = pod(json!({}));
        old["metadata"] = json!({"resourceVersion": "1"});
        old["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
        let filled = defaulted(old);
        assert_eq!(filled["spec"]["priority"], json!(null));
        assert_eq!(filled["status"]["phase"], "Running");
        assert_eq!(filled["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    }

    #[test]
    fn a_pod_with_scheduling_gates_has_reason_scheduling_gated() {
        let gated = pod(json!({"schedulingGates": [{"name": "g"}]}));
        let conditions = &defaulted(gated)["status"]["conditions"];
        assert_eq!(conditions[0]["type"], "PodScheduled");
        assert_eq!(conditions[0]["reason"], "SchedulingGated");
        assert_eq!(conditions[0]["lastTransitionTime"], "2024-05-01T12:00:00Z");
    }

    #[test]
    fn host_ports_default_to_container_ports_on_the_host_network() {
        let ports = |host_network: bool| {
            let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}]});
            let pod = pod(json!({"hostNetwork": host_network, "containers": [container]}));
            defaulted(pod)["spec"]["containers"][0]["ports"][0]["hostPort"].clone()
        };
        assert_eq!((ports(true), ports(false)), (json!(80), json!(null)));
    }

    #[test]
    fn only_scheduled_unfinished_pods_have_a_grace_period() {
        let period = |spec: Value, phase: &str| {
            let pod = json!({"spec": spec, "status": {"phase": phase}});
            grace_period(pod.as_object().unwrap())
        };
        let bound = json!({"nodeName": "n", "terminationGracePeriodSeconds": 5});
        assert_eq!(period(json!({"nodeName": "n"}), "Pending"), Some(30));
        assert_eq!(period(bound.clone(), "Running"), Some(5));
        assert_eq!(period(bound, "Failed"), None);
        assert_eq!(period(json!({"nodeName": ""}), "Pending"), None);
    }
}
