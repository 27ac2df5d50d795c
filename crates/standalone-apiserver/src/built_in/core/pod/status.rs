//! The validation of the status of Pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};

use super::extended_claim;
use crate::built_in::checks::{FieldErrors, check_with, quote, to_json};
use crate::built_in::networks::{check_address, parse_address, warning_of_address};
use crate::built_in::pod_template::annotations;
use crate::built_in::pod_template::scope::{Owner, Scope};
use crate::built_in::pod_template::security::check_id;

const FAMILIES: &str = "may specify no more than one IP for each IP family";

/// Validates a status, compared with the old one if there is any.
pub(super) fn validate(pod: &Pod, old: Option<&Pod>) -> FieldErrors {
    let mut faults = Vec::new();
    let (nothing, no_spec) = (PodStatus::default(), PodSpec::default());
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let old_status = old.and_then(|old| old.status.as_ref()).unwrap_or(&nothing);
    if let Some(old) = old {
        let (new, before) = (&pod.metadata.annotations, &old.metadata.annotations);
        annotations::check_change(new.as_ref(), before.as_ref(), &mut faults);
        let before = (old.spec.as_ref().unwrap_or(&no_spec), Some(&old.metadata));
        let scope = Scope::new(spec, Owner::Pod, Some(&pod.metadata), Some(before));
        annotations::validate(&scope, "metadata.annotations", &mut faults);
    }
    check_conditions(status, &mut faults);
    check_node(status, old_status, spec, &mut faults);
    if let Some(generation) = status.observed_generation.filter(|generation| *generation < 0) {
        let why = "must be a non-negative integer";
        faults.push(FieldError::invalid("status.observedGeneration", generation, why));
    }
    let class = |status: &PodStatus| status.qos_class.clone().unwrap_or_default();
    if class(status) != class(old_status) {
        let why = "field is immutable";
        faults.push(FieldError::invalid("status.qosClass", quote(&class(status)), why));
    }
    check_transitions(status, old_status, spec, &mut faults);
    check_claims(status, spec, &mut faults);
    check_addresses(status, old_status, &mut faults);
    for (list, statuses) in lists(status) {
        check_users(statuses, spec, &format!("status.{list}"), &mut faults);
    }
    check_devices(status, spec, &mut faults);
    if let Some(claim) = &status.extended_resource_claim_status {
        extended_claim::validate(claim, spec, &mut faults);
    }
    faults
}

/// Warnings about a status.
pub(super) fn warnings(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let pods = status.pod_ips.iter().flatten().enumerate();
    let pods = pods.map(|(index, one)| (format!("status.podIPs[{index}].ip"), &one.ip));
    let hosts = status.host_ips.iter().flatten().enumerate();
    let hosts = hosts.map(|(index, one)| (format!("status.hostIPs[{index}].ip"), &one.ip));
    pods.chain(hosts).filter_map(|(at, ip)| warning_of_address(&at, ip)).collect()
}

/// The statuses of all types of containers.
fn lists(status: &PodStatus) -> [(&'static str, &[ContainerStatus]); 3] {
    [
        ("containerStatuses", status.container_statuses.as_deref().unwrap_or_default()),
        ("initContainerStatuses", status.init_container_statuses.as_deref().unwrap_or_default()),
        (
            "ephemeralContainerStatuses",
            status.ephemeral_container_statuses.as_deref().unwrap_or_default(),
        ),
    ]
}

fn check_conditions(status: &PodStatus, faults: &mut FieldErrors) {
    for (index, condition) in status.conditions.iter().flatten().enumerate() {
        let at = format!("status.conditions[{index}]");
        if let Some(seen) = condition.observed_generation.filter(|seen| *seen < 0) {
            let why = "must be a non-negative integer";
            faults.push(FieldError::invalid(format!("{at}.observedGeneration"), seen, why));
        }
        if !matches!(condition.type_.as_str(), "PodScheduled" | "Ready" | "Initialized") {
            check_with(&format!("{at}.Type"), &condition.type_, names::check_label_key, faults);
        }
    }
}

/// Validates the nominated node, on which the scheduler preempts other Pods.
fn check_node(status: &PodStatus, old: &PodStatus, spec: &PodSpec, faults: &mut FieldErrors) {
    const AT: &str = "status.nominatedNodeName";
    let new = status.nominated_node_name.as_deref().unwrap_or_default();
    if new.is_empty() || new == old.nominated_node_name.as_deref().unwrap_or_default() {
        return;
    }
    check_with(AT, new, |name| NameRule::Dns1123Subdomain.check(name), faults);
    if spec.node_name.as_ref().is_some_and(|name| !name.is_empty()) {
        let why = "may not be set on pods that are already bound to a node";
        faults.push(FieldError::forbidden(AT, why));
    }
}

/// Checks that terminated containers remain terminated, unless they are restarted.
fn check_transitions(
    status: &PodStatus,
    old: &PodStatus,
    spec: &PodSpec,
    faults: &mut FieldErrors,
) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let restarts_all = spec.containers.iter().chain(init).any(|container| {
        let mut rules = container.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    let containers = [Some(&*spec.containers), Some(init), None];
    let both = lists(status).into_iter().zip(lists(old)).zip(containers);
    for (((list, new), (_, old)), containers) in both {
        if restarts_all && containers.is_some() {
            continue;
        }
        for (index, before) in old.iter().enumerate() {
            let Some(ended) = before.state.as_ref().and_then(|state| state.terminated.as_ref())
            else {
                continue;
            };
            let now = new.iter().find(|now| now.name == before.name && !has_ended(now));
            if now.is_none() {
                continue;
            }
            let container = containers.into_iter().flatten().find(|one| one.name == before.name);
            if !container.is_some_and(|one| restarts(one, spec, ended.exit_code)) {
                let why = "may not be transitioned to non-terminated state";
                faults.push(FieldError::forbidden(format!("status.{list}[{index}].state"), why));
            }
        }
    }
}

fn has_ended(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// Whether a container that has terminated with this exit code is restarted.
fn restarts(container: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    let policy = container.restart_policy.as_deref();
    if policy.is_some() {
        for rule in container.restart_policy_rules.iter().flatten() {
            let Some(codes) = &rule.exit_codes else { continue };
            let is_listed = codes.values.iter().flatten().any(|code| *code == exit_code);
            if is_listed == (codes.operator == "In") {
                return true;
            }
        }
    }
    match policy.or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => exit_code != 0,
        _ => true,
    }
}

fn check_claims(status: &PodStatus, spec: &PodSpec, faults: &mut FieldErrors) {
    let known: BTreeSet<&str> =
        spec.resource_claims.iter().flatten().map(|claim| claim.name.as_str()).collect();
    let mut seen = BTreeSet::new();
    for (index, claim) in status.resource_claim_statuses.iter().flatten().enumerate() {
        let at = format!("status.resourceClaimStatuses[{index}]");
        let name = claim.name.as_str();
        if !known.contains(name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            faults.push(FieldError::invalid(format!("{at}.name"), quote(name), why));
        }
        if !seen.insert(name) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(name)));
        }
        if let Some(name) = &claim.resource_claim_name {
            let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
            check_with(&format!("{at}.resourceClaimName"), name, check, faults);
        }
    }
}

/// Validates the addresses of the Pod and of its node: at most one of each IP family.
fn check_addresses(status: &PodStatus, old: &PodStatus, faults: &mut FieldErrors) {
    let pods: Vec<&str> = status.pod_ips.iter().flatten().map(|one| one.ip.as_str()).collect();
    let known: Vec<&str> = old.pod_ips.iter().flatten().map(|one| one.ip.as_str()).collect();
    check_list("status.podIPs", &pods, &known, &to_json(&status.pod_ips), faults);
    let hosts: Vec<&str> = status.host_ips.iter().flatten().map(|one| one.ip.as_str()).collect();
    let Some(first) = hosts.first() else { return };
    if *first != status.host_ip.as_deref().unwrap_or_default() {
        let why = "must be equal to `hostIP`";
        faults.push(FieldError::invalid("status.hostIPs[0].ip", quote(first), why));
    }
    let known: Vec<&str> = old.host_ips.iter().flatten().map(|one| one.ip.as_str()).collect();
    check_list("status.hostIPs", &hosts, &known, &to_json(&status.host_ips), faults);
}

fn check_list(at: &str, all: &[&str], known: &[&str], shown: &str, faults: &mut FieldErrors) {
    for (index, ip) in all.iter().enumerate().filter(|(_, ip)| !known.contains(ip)) {
        check_address(&format!("{at}[{index}]"), ip, faults);
    }
    if all.len() < 2 {
        return;
    }
    let parsed: Vec<Option<IpAddr>> = all.iter().map(|ip| parse_address(ip)).collect();
    if let Some(position) = parsed.iter().position(Option::is_none) {
        let ip = all.get(position).copied().unwrap_or_default();
        let why = format!("failed to check for dual stack with error:invalid IP[{position}]: {ip}");
        faults.push(FieldError::internal(at, &why));
    }
    let is_v4 = |ip: &&IpAddr| ip.is_ipv4();
    let known: Vec<&IpAddr> = parsed.iter().flatten().collect();
    let count = known.iter().filter(|ip| is_v4(ip)).count();
    let is_dual = known.len() == all.len() && count > 0 && count < all.len();
    if !is_dual || all.len() > 2 {
        faults.push(FieldError::invalid(at, shown.replace("\"ip\":", "\"IP\":"), FAMILIES));
    }
}

/// Validates the users that containers run as.
fn check_users(statuses: &[ContainerStatus], spec: &PodSpec, at: &str, faults: &mut FieldErrors) {
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    for (index, status) in statuses.iter().enumerate() {
        let user = status.user.as_ref().and_then(|user| user.linux.as_ref());
        let Some(user) = user else { continue };
        let at = format!("{at}[{index}].user.linux");
        if is_windows {
            faults.push(FieldError::forbidden(at, "cannot be set for a windows pod"));
            continue;
        }
        check_id(&format!("{at}.uid"), Some(user.uid), faults);
        check_id(&format!("{at}.gid"), Some(user.gid), faults);
        for (number, group) in user.supplemental_groups.iter().flatten().enumerate() {
            check_id(&format!("{at}.supplementalGroups[{number}]"), Some(*group), faults);
        }
    }
}

/// Validates the health of devices.
fn check_devices(status: &PodStatus, spec: &PodSpec, faults: &mut FieldErrors) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let containers = [Some(&*spec.containers), Some(init), None];
    for ((list, statuses), containers) in lists(status).into_iter().zip(containers) {
        for (index, one) in statuses.iter().enumerate() {
            let at = format!("status.{list}[{index}].allocatedResourcesStatus");
            let devices = one.allocated_resources_status.as_deref().unwrap_or_default();
            let Some(containers) = containers else {
                if !devices.is_empty() {
                    let why = "must not be specified in container status";
                    faults.push(FieldError::forbidden(at, why));
                }
                continue;
            };
            let container = containers.iter().find(|container| container.name == one.name);
            for (number, device) in devices.iter().enumerate() {
                let at = format!("{at}[{number}]");
                if let Some(why) = container.and_then(|one| unknown_device(&device.name, one)) {
                    faults.push(FieldError::invalid(
                        format!("{at}.name"),
                        quote(&device.name),
                        why,
                    ));
                }
                let mut seen = BTreeSet::new();
                for (position, health) in device.resources.iter().flatten().enumerate() {
                    let at = format!("{at}.resources[{position}]");
                    let all = ["Healthy", "Unhealthy", "Unknown"];
                    let value = health.health.as_deref().unwrap_or_default();
                    if !all.contains(&value) {
                        let at = format!("{at}.health");
                        faults.push(FieldError::not_supported(at, quote(value), &all));
                    }
                    if health.message.as_deref() == Some("") {
                        let why = "must be non-empty if specified";
                        faults.push(FieldError::required(format!("{at}.message"), why));
                    }
                    if !seen.insert(health.resource_id.as_str()) {
                        let at = format!("{at}.resourceID");
                        faults.push(FieldError::duplicate(at, quote(&health.resource_id)));
                    }
                }
            }
        }
    }
}

/// Returns the reason for which a container has no device of this name.
fn unknown_device(name: &str, container: &Container) -> Option<&'static str> {
    let resources = container.resources.as_ref();
    if name.starts_with("claim:") {
        let mut claims = resources.into_iter().flat_map(|all| all.claims.iter().flatten());
        let is_claim = claims.any(|claim| match claim.request.as_deref() {
            None | Some("") => name == format!("claim:{}", claim.name),
            Some(request) => name == format!("claim:{}/{request}", claim.name),
        });
        let why = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
        return (!is_claim).then_some(why);
    }
    let requests = resources.and_then(|all| all.requests.as_ref());
    let is_requested = requests.is_some_and(|requests| requests.contains_key(name));
    (!is_requested).then_some("must match one of the container's resource requests")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::faults_of_update;
    use serde_json::{Value, json};

    fn pod(policy: &str, state: Value) -> Value {
        let container = json!({"name": "c", "image": "i"});
        let statuses = json!([{"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": state}]);
        json!({
            "spec": {"restartPolicy": policy, "containers": [container]},
            "status": {"containerStatuses": statuses},
        })
    }

    #[test]
    fn terminated_containers_restart_only_if_the_restart_policy_allows() {
        let running = json!({"running": {}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        for (policy, code, count) in
            [("Never", 1, 1), ("Always", 0, 0), ("OnFailure", 0, 1), ("OnFailure", 1, 0)]
        {
            let faults =
                faults_of_update(validate, pod(policy, ended(code)), pod(policy, running.clone()));
            assert_eq!(faults.len(), count, "{policy} {code}");
        }
    }

    #[test]
    fn addresses() {
        for (ips, count) in [
            (json!([{"ip": "10.0.0.1"}]), 0),
            (json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]), 0),
            (json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), 1),
            (json!([{"ip": "x"}]), 1),
        ] {
            let new = json!({"status": {"podIPs": ips}});
            assert_eq!(faults_of_update(validate, json!({}), new).len(), count, "{ips}");
        }
    }
}
