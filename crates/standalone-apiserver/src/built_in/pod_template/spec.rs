//! PodSpecs: of Pods and of templates.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use k8s_openapi::api::core::v1::{Container, Lifecycle, PodSpec};

use super::ports::check_host_network;
use super::scope::{Owner, Scope};
use super::{
    affinity, containers, dns, pod_resources, resources, security, spread, tolerations, volumes,
    windows,
};
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, check_with, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;

/// Sets the defaults of a PodSpec.
pub(crate) fn set_defaults(spec: &mut PodSpec) {
    set_default(&mut spec.restart_policy, "Always");
    set_default(&mut spec.dns_policy, "ClusterFirst");
    set_default(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_default();
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    containers.for_each(containers::set_defaults);
    spec.volumes.iter_mut().flatten().for_each(volumes::set_defaults);
    match (&spec.service_account_name, &spec.service_account) {
        (Some(name), _) => spec.service_account = Some(name.clone()),
        (None, Some(name)) => spec.service_account_name = Some(name.clone()),
        (None, None) => {}
    }
}

/// Removes fields whose features are off by default, unless the old PodSpec has them.
pub(crate) fn drop_disabled(spec: &mut PodSpec, old: Option<&PodSpec>) {
    volumes::drop_disabled(spec, old);
    if old.is_none_or(|old| old.scheduling_group.is_none()) {
        spec.scheduling_group = None;
    }
    let stop_signal = |container: &Container| {
        container.lifecycle.as_ref().is_some_and(|one| one.stop_signal.is_some())
    };
    let has_signal = old.is_some_and(|old| {
        old.containers.iter().chain(old.init_containers.iter().flatten()).any(stop_signal)
    });
    if has_signal {
        return;
    }
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(lifecycle) = &mut container.lifecycle
            && lifecycle.stop_signal.take().is_some()
            && *lifecycle == Lifecycle::default()
        {
            container.lifecycle = None;
        }
    }
}

/// Validates a PodSpec.
pub(crate) fn validate<'a>(mut scope: Scope<'a>, at: &str, faults: &mut FieldErrors) {
    let spec = scope.spec;
    scope.volumes = volumes::validate(&scope, at, faults);
    let scope = &scope;
    resources::check_pod_claims(scope, &format!("{at}.resourceClaims"), faults);
    containers::validate(scope, at, faults);
    pod_resources::validate(scope, at, faults);
    check_host_network(scope, at, faults);
    let policies = ["Always", "OnFailure", "Never"];
    check_one_of(format!("{at}.restartPolicy"), spec.restart_policy.as_ref(), &policies, faults);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check_one_of(format!("{at}.dnsPolicy"), spec.dns_policy.as_ref(), &policies, faults);
    let at_labels = format!("{at}.nodeSelector");
    label_selector::check_labels(spec.node_selector.as_ref(), &at_labels, faults);
    security::check_pod(scope, at, faults);
    affinity::validate(scope, at, faults);
    dns::check_config(scope, at, faults);
    check_gates(spec, at, faults);
    spread::validate(scope, at, faults);
    windows::check_host_process(scope, at, faults);
    check_host_users(scope, at, faults);
    check_host_name(scope, at, faults);
    check_names(spec, at, faults);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    tolerations::validate(tolerations, scope, &format!("{at}.tolerations"), faults);
    dns::check_aliases(scope, at, faults);
    check_scheduling(spec, at, faults);
    resources::check_overhead(scope, &format!("{at}.overhead"), faults);
    windows::check_os(scope, at, faults);
    if let Some(group) = &spec.scheduling_group {
        let at = format!("{at}.schedulingGroup.podGroupName");
        match &group.pod_group_name {
            None => {
                let why = "must specify one of: `podGroupName`";
                faults.push(FieldError::invalid(at, "null", why));
            }
            Some(name) => check_with(&at, name, check_subdomain, faults),
        }
    }
    volumes::check_files_of_variables(scope, at, faults);
    if scope.owner == Owner::Pod {
        volumes::check_tokens(scope, at, faults);
        containers::check_images(scope, at, faults);
    }
}

fn check_subdomain(name: &str) -> Vec<String> {
    NameRule::Dns1123Subdomain.check(name)
}

/// Validates scheduling gates and readiness gates.
fn check_gates(spec: &PodSpec, at: &str, faults: &mut FieldErrors) {
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let at = format!("{at}.readinessGates[{index}].conditionType");
        check_with(&at, &gate.condition_type, names::check_label_key, faults);
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.scheduling_gates.iter().flatten().enumerate() {
        let at = format!("{at}.schedulingGates[{index}]");
        check_with(&at, &gate.name, names::check_label_key, faults);
        if !seen.insert(gate.name.as_str()) {
            faults.push(FieldError::duplicate(at, quote(&gate.name)));
        }
    }
}

/// Checks that a Pod with its own user namespace does not use the network, process ids, IPC or block devices of the
/// node.
fn check_host_users(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    if scope.uses_host_users() {
        return;
    }
    let why = "when `hostUsers` is false";
    for (field, is_set) in [
        ("hostNetwork", scope.spec.host_network),
        ("HostPID", scope.spec.host_pid),
        ("HostIPC", scope.spec.host_ipc),
    ] {
        if is_set == Some(true) {
            faults.push(FieldError::forbidden(format!("{at}.{field}"), why));
        }
    }
    if scope.allowed.user_namespaces_with_devices {
        return;
    }
    for (at, container) in windows::containers(scope, at) {
        if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
            faults.push(FieldError::forbidden(format!("{at}.volumeDevices"), why));
        }
    }
}

/// Validates the host name override of a Pod.
fn check_host_name(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    const LIMIT: u64 = 64;
    let Some(name) = &scope.spec.hostname_override else { return };
    let at = format!("{at}.hostnameOverride");
    if scope.spec.set_hostname_as_fqdn == Some(true) {
        let why = "may not be specified when setHostnameAsFQDN is true";
        faults.push(FieldError::forbidden(&*at, why));
    }
    if scope.uses_host_network() {
        let why = "may not be specified when hostNetwork is true";
        faults.push(FieldError::forbidden(&*at, why));
    }
    if name.len() as u64 > LIMIT {
        faults.push(FieldError::too_long(&*at, LIMIT));
    }
    check_with(&at, name, check_subdomain, faults);
}

/// Validates names, and the active deadline of a Pod.
fn check_names(spec: &PodSpec, at: &str, faults: &mut FieldErrors) {
    for (field, name) in
        [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)]
    {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(&format!("{at}.{field}"), name, check_subdomain, faults);
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = format!("must be between 1 and {}, inclusive", i32::MAX);
        faults.push(FieldError::invalid(format!("{at}.activeDeadlineSeconds"), seconds, &why));
    }
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(&format!("{at}.{field}"), name, names::check_dns_1123_label, faults);
        }
    }
}

fn check_scheduling(spec: &PodSpec, at: &str, faults: &mut FieldErrors) {
    let class = spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
    for (field, name) in
        [("priorityClassName", class), ("runtimeClassName", spec.runtime_class_name.as_deref())]
    {
        if let Some(name) = name {
            check_with(&format!("{at}.{field}"), name, check_subdomain, faults);
        }
    }
    if let Some(policy) = &spec.preemption_policy {
        let at = format!("{at}.preemptionPolicy");
        if check_given(&at, policy, faults) {
            check_one_of(at, Some(policy), &["PreemptLowerPriority", "Never"], faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        assert_eq!(
            prepared(set_defaults, json!({"serviceAccount": "a", "containers": []})),
            json!({
                "containers": [], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
                "securityContext": {}, "serviceAccount": "a", "serviceAccountName": "a",
            })
        );
        let both = json!({"serviceAccount": "a", "serviceAccountName": "b", "containers": []});
        assert_eq!(prepared(set_defaults, both)["serviceAccount"], "b");
    }

    fn faults_of(spec: Value) -> FieldErrors {
        let spec: PodSpec = object(spec);
        let mut faults = Vec::new();
        validate(Scope::new(&spec, Owner::Pod, None, None), "s", &mut faults);
        faults
    }

    #[test]
    fn invalid_pod_specs_are_rejected() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"restartPolicy": "X"}),
                vec![
                    "s.restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                ],
            ),
            (
                json!({"dnsPolicy": "None"}),
                vec![
                    "s.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
                ],
            ),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {}}),
                vec![
                    "s.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
                ],
            ),
            (json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}}), vec![]),
            (
                json!({"activeDeadlineSeconds": 0}),
                vec![
                    "s.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                ],
            ),
            (
                json!({"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "X"}]}),
                vec![
                    "s.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                    "s.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                    "s.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"X\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
                ],
            ),
        ] {
            let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(texts(&faults_of(spec)), expected, "{more}");
        }
    }

    #[test]
    fn names() {
        for field in ["nodeName", "serviceAccountName", "hostname", "subdomain"] {
            let fields = |name: &str| {
                let spec = json!({"containers": [{"name": "c", "image": "i"}], field: name});
                faults_of(spec).iter().map(|fault| fault.field().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(fields("a-b"), [] as [&str; 0]);
            assert_eq!(fields("A"), [format!("s.{field}")]);
        }
    }
}
