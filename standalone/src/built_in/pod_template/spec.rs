//! PodSpecs, of Pods and of templates.

use aggregated_apiserver::{FieldError, NameRule, names};
use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};

use super::{containers, tolerations, volumes};
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
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

/// Where a PodSpec is. kube-apiserver checks that of a template less strictly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Pod,
    Template,
}

/// Validates a PodSpec.
pub(crate) fn validate(spec: &PodSpec, at: &str, owner: Owner, faults: &mut FieldErrors) {
    let volumes = volumes::validate(spec, at, owner, faults);
    containers::validate(spec, at, owner, &volumes, faults);
    if let Some(policy) = &spec.restart_policy
        && !["Always", "OnFailure", "Never"].contains(&policy.as_str())
    {
        let all = ["Always", "OnFailure", "Never"];
        faults.push(FieldError::not_supported(format!("{at}.restartPolicy"), quote(policy), &all));
    }
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    check_one_of(format!("{at}.dnsPolicy"), spec.dns_policy.as_ref(), &policies, faults);
    if spec.dns_policy.as_deref() == Some("None") {
        let servers = spec.dns_config.as_ref().map(|config| config.nameservers.clone());
        match servers.map(Option::unwrap_or_default) {
            None => {
                let why = "must provide `dnsConfig` when `dnsPolicy` is None";
                faults.push(FieldError::required(format!("{at}.dnsConfig"), why));
            }
            Some(servers) if servers.is_empty() => {
                let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
                faults.push(FieldError::required(format!("{at}.dnsConfig.nameservers"), why));
            }
            Some(_) => {}
        }
    }
    label_selector::check_labels(
        spec.node_selector.as_ref(),
        &format!("{at}.nodeSelector"),
        faults,
    );
    for (field, name) in
        [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)]
    {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(
                &format!("{at}.{field}"),
                name,
                |name| NameRule::Dns1123Subdomain.check(name),
                faults,
            );
        }
    }
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(&format!("{at}.{field}"), name, names::check_dns_1123_label, faults);
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = format!("must be between 1 and {}, inclusive", i32::MAX);
        faults.push(FieldError::invalid(format!("{at}.activeDeadlineSeconds"), seconds, &why));
    }
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        tolerations::validate(toleration, &format!("{at}.tolerations[{index}]"), faults);
    }
    let spreads = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    for (index, spread) in spreads.iter().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        if spread.max_skew <= 0 {
            let why = "must be greater than zero";
            faults.push(FieldError::invalid(format!("{at}.maxSkew"), spread.max_skew, why));
        }
        if spread.topology_key.is_empty() {
            faults.push(FieldError::required(format!("{at}.topologyKey"), "can not be empty"));
        }
        let all = ["DoNotSchedule", "ScheduleAnyway"];
        let given = Some(&spread.when_unsatisfiable);
        check_one_of(format!("{at}.whenUnsatisfiable"), given, &all, faults);
        let is_same = |other: &TopologySpreadConstraint| {
            other.topology_key == spread.topology_key
                && other.when_unsatisfiable == spread.when_unsatisfiable
        };
        if spreads[index + 1..].iter().any(is_same) {
            let value = format!("{{{}, {}}}", spread.topology_key, spread.when_unsatisfiable);
            let at = format!("{at}.{{topologyKey, whenUnsatisfiable}}");
            faults.push(FieldError::duplicate(at, quote(&value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::json;

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

    #[test]
    fn faults() {
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
            let mut faults = Vec::new();
            validate(&object(spec), "s", Owner::Pod, &mut faults);
            assert_eq!(texts(&faults), expected, "{more}");
        }
    }

    #[test]
    fn names() {
        for field in ["nodeName", "serviceAccountName", "hostname", "subdomain"] {
            let fields = |name: &str| {
                let spec = json!({"containers": [{"name": "c", "image": "i"}], field: name});
                let mut faults = Vec::new();
                validate(&object(spec), "s", Owner::Pod, &mut faults);
                faults.iter().map(|fault| fault.field().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(fields("a-b"), [] as [&str; 0]);
            assert_eq!(fields("A"), [format!("s.{field}")]);
        }
    }
}
