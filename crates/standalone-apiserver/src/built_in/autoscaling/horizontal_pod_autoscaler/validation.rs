//! The validation of HorizontalPodAutoscalers.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler,
};

use super::metrics;
use crate::built_in::checks::{FieldErrors, check_not_negative, check_one_of, check_with, quote};

const LONGEST_PERIOD: i32 = 1_800;
const LONGEST_WINDOW: i32 = 3_600;

pub(in crate::built_in::autoscaling) fn validate(
    autoscaler: &HorizontalPodAutoscaler,
    old: Option<&HorizontalPodAutoscaler>,
) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &autoscaler.spec;
    // Scaling to zero is a feature that is off by default.
    if let Some(least) = spec.min_replicas.filter(|least| *least < 1) {
        let why = "must be greater than or equal to 1";
        faults.push(FieldError::invalid("spec.minReplicas", least, why));
    }
    let most = spec.max_replicas;
    if most == 0 {
        let why = "must be set and greater than 0";
        faults.push(FieldError::required("spec.maxReplicas", why));
    } else if most < 0 {
        let why = "must be greater than or equal to 1";
        faults.push(FieldError::invalid("spec.maxReplicas", most, why));
    }
    if spec.min_replicas.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        faults.push(FieldError::invalid("spec.maxReplicas", most, why));
    }
    let target = &spec.scale_target_ref;
    let is_kept = old.is_some_and(|old| {
        let old = &old.spec.scale_target_ref;
        let version =
            |one: &CrossVersionObjectReference| one.api_version.clone().unwrap_or_default();
        old.kind == target.kind && version(old) == version(target)
    });
    let group = match (is_kept, target.kind.as_str()) {
        (true, _) => ApiGroup::Any,
        (false, "ReplicationController") => ApiGroup::MayBeCore,
        (false, _) => ApiGroup::Named,
    };
    check_reference(target, "spec.scaleTargetRef", group, &mut faults);
    metrics::check(&spec.metrics, spec.min_replicas, old, &mut faults);
    if let Some(behavior) = &spec.behavior {
        for (field, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)]
        {
            let Some(rules) = rules else { continue };
            check_rules(rules, &format!("spec.behavior.{field}"), &mut faults);
        }
    }
    faults
}

pub(in crate::built_in::autoscaling) fn validate_status(
    autoscaler: &HorizontalPodAutoscaler,
) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &autoscaler.status else { return faults };
    check_not_negative("status.currentReplicas", status.current_replicas, &mut faults);
    check_not_negative("status.desiredReplicas", Some(status.desired_replicas), &mut faults);
    faults
}

/// The valid groups of a reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiGroup {
    /// The group is not checked.
    Any,
    MayBeCore,
    Named,
}

pub(super) fn check_reference(
    reference: &CrossVersionObjectReference,
    at: &str,
    group: ApiGroup,
    faults: &mut FieldErrors,
) {
    for (field, value) in [("kind", &reference.kind), ("name", &reference.name)] {
        let at = format!("{at}.{field}");
        if value.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else {
            check_with(&at, value, names::check_path_segment, faults);
        }
    }
    let version = reference.api_version.as_deref().unwrap_or_default();
    if let Some(why) = fault_of_version(version, group) {
        faults.push(FieldError::invalid(format!("{at}.apiVersion"), quote(version), &why));
    }
}

pub(super) fn fault_of_version(version: &str, group: ApiGroup) -> Option<String> {
    let slashes = version.matches('/').count();
    let is_core = slashes == 0 || version.starts_with('/');
    match group {
        ApiGroup::Any => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {version}")),
        ApiGroup::Named if is_core => Some("apiVersion must specify API group".to_owned()),
        _ => None,
    }
}

fn check_rules(rules: &HPAScalingRules, at: &str, faults: &mut FieldErrors) {
    let at_window = format!("{at}.stabilizationWindowSeconds");
    match rules.stabilization_window_seconds {
        Some(window @ ..0) => {
            let why = "must be greater than or equal to zero";
            faults.push(FieldError::invalid(at_window, window, why));
        }
        Some(window) if window > LONGEST_WINDOW => {
            let why = format!("must be less than or equal to {LONGEST_WINDOW}");
            faults.push(FieldError::invalid(at_window, window, &why));
        }
        _ => {}
    }
    let all = ["Disabled", "Max", "Min"];
    check_one_of(format!("{at}.selectPolicy"), rules.select_policy.as_ref(), &all, faults);
    let policies = rules.policies.as_deref().unwrap_or_default();
    if policies.is_empty() {
        let why = "must specify at least one Policy";
        faults.push(FieldError::required(format!("{at}.policies"), why));
    }
    for (index, policy) in policies.iter().enumerate() {
        check_policy(policy, &format!("{at}.policies[{index}]"), faults);
    }
    let tolerance = rules.tolerance.as_ref().and_then(|one| Quantity::parse(&one.0).ok());
    if let Some(tolerance) = tolerance.filter(|tolerance| tolerance.nanos() < 0) {
        let why = "must be greater than or equal to 0";
        let value = quote(&tolerance.to_string());
        faults.push(FieldError::invalid(format!("{at}.tolerance"), value, why));
    }
}

fn check_policy(policy: &HPAScalingPolicy, at: &str, faults: &mut FieldErrors) {
    check_one_of(format!("{at}.type"), Some(&policy.type_), &["Percent", "Pods"], faults);
    for (field, value) in [("value", policy.value), ("periodSeconds", policy.period_seconds)] {
        if value <= 0 {
            let why = "must be greater than zero";
            faults.push(FieldError::invalid(format!("{at}.{field}"), value, why));
        }
    }
    if policy.period_seconds > LONGEST_PERIOD {
        let why = format!("must be less than or equal to {LONGEST_PERIOD}");
        let at = format!("{at}.periodSeconds");
        faults.push(FieldError::invalid(at, policy.period_seconds, &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object, texts};
    use serde_json::{Value, json};

    fn autoscaler(more: Value) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
        let mut spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn horizontal_pod_autoscaler_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"minReplicas": 0, "maxReplicas": -1}),
                vec![
                    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                    "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
                    "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
                    "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
                ],
            ),
            (
                json!({"maxReplicas": 0}),
                vec!["spec.maxReplicas: Required value: must be set and greater than 0"],
            ),
            (
                json!({"behavior": {"scaleUp": {
                    "stabilizationWindowSeconds": 4_000, "selectPolicy": "X", "tolerance": "-1",
                    "policies": [{"type": "X", "value": 0, "periodSeconds": 2_000}],
                }, "scaleDown": {"stabilizationWindowSeconds": -1}}}),
                vec![
                    "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600",
                    "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"X\": supported values: \"Disabled\", \"Max\", \"Min\"",
                    "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"X\": supported values: \"Percent\", \"Pods\"",
                    "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 2000: must be less than or equal to 1800",
                    "spec.behavior.scaleUp.tolerance: Invalid value: \"-1\": must be greater than or equal to 0",
                    "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
                    "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, autoscaler(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn scale_target_api_version_is_validated_unless_unchanged() {
        let of = |version: &str, kind: &str| {
            let target = json!({"apiVersion": version, "kind": kind, "name": "a"});
            autoscaler(json!({"scaleTargetRef": target}))
        };
        const NO_GROUP: &str = "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group";
        assert_eq!(faults_of_new(validate, of("v1", "Pod")), [NO_GROUP]);
        assert_eq!(faults_of_new(validate, of("v1", "ReplicationController")), [] as [&str; 0]);
        assert_eq!(
            faults_of_new(validate, of("a/b/c", "X")),
            [
                "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
            ]
        );
        // An unchanged invalid reference is allowed.
        assert_eq!(faults_of_update(validate, of("v1", "Pod"), of("v1", "Pod")), [] as [&str; 0]);
        assert_eq!(faults_of_update(validate, of("v2", "Pod"), of("v1", "Pod")), [NO_GROUP]);
    }

    #[test]
    fn a_status() {
        let mut autoscaler = autoscaler(json!({}));
        autoscaler["status"] = json!({"currentReplicas": -1, "desiredReplicas": -2});
        assert_eq!(
            texts(&validate_status(&object(autoscaler))),
            [
                "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
                "status.desiredReplicas: Invalid value: -2: must be greater than or equal to 0",
            ]
        );
    }
}
