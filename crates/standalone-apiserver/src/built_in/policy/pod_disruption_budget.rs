//! PodDisruptionBudgets.

use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::built_in::checks::{FieldErrors, check_not_negative, check_one_of, go_struct, to_json};
use crate::built_in::conditions;
use crate::built_in::label_selector;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::share;
use crate::built_in::strategy::with_generation;

pub(crate) fn row() -> Row<PodDisruptionBudget> {
    let rules = Validation::new()
        .prepare(|budget, _| prepare(budget))
        .validate(|budget, _, _| validate(budget))
        .validate_status(|budget, _, _| validate_status(budget));
    Row {
        short_names: &["pdb"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy { allows_unconditional_update: false, ..with_generation() }
}

fn columns() -> Vec<Column<PodDisruptionBudget>> {
    type Share = fn(&PodDisruptionBudgetSpec) -> Option<&IntOrString>;
    let share = |heading, of: Share| {
        Column::computed(heading, move |budget: &PodDisruptionBudget, _| {
            let share = budget.spec.as_ref().and_then(of);
            share.map_or_else(|| "N/A".to_owned(), share::text)
        })
    };
    vec![
        share("Min Available", |spec| spec.min_available.as_ref()),
        share("Max Unavailable", |spec| spec.max_unavailable.as_ref()),
        Column::computed("Allowed Disruptions", |budget: &PodDisruptionBudget, _| {
            budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or_default()
        })
        .of_type("integer"),
        Column::age(),
    ]
}

/// Sets the counts of a status, which exist from the start.
fn prepare(budget: &mut PodDisruptionBudget) {
    let status = budget.status.get_or_insert_default();
    status.disruptions_allowed.get_or_insert(0);
    status.current_healthy.get_or_insert(0);
    status.desired_healthy.get_or_insert(0);
    status.expected_pods.get_or_insert(0);
}

fn validate(budget: &PodDisruptionBudget) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &budget.spec else { return faults };
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        faults.push(FieldError::invalid("spec", shown(spec), why));
    }
    let shares = [
        ("spec.minAvailable", &spec.min_available),
        ("spec.maxUnavailable", &spec.max_unavailable),
    ];
    for (at, share) in shares {
        let Some(share) = share else { continue };
        share::check(at, share, &mut faults);
        share::check_at_most_all(at, share, &mut faults);
    }
    if let Some(selector) = &spec.selector {
        label_selector::validate(selector, "spec.selector", &mut faults);
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = spec.unhealthy_pod_eviction_policy.as_ref();
    check_one_of("spec.unhealthyPodEvictionPolicy", policy, &policies, &mut faults);
    faults
}

fn validate_status(budget: &PodDisruptionBudget) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(status) = &budget.status else { return faults };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions::check(conditions, "status.conditions", &mut faults);
    for (field, count) in [
        ("disruptionsAllowed", status.disruptions_allowed),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("expectedPods", status.expected_pods),
    ] {
        check_not_negative(format!("status.{field}"), count, &mut faults);
    }
    faults
}

/// A spec in the format of messages, with the field names of Go.
fn shown(spec: &PodDisruptionBudgetSpec) -> String {
    go_struct(&[
        ("MinAvailable", to_json(&spec.min_available)),
        ("Selector", to_json(&spec.selector)),
        ("MaxUnavailable", to_json(&spec.max_unavailable)),
        ("UnhealthyPodEvictionPolicy", to_json(&spec.unhealthy_pod_eviction_policy)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, texts};
    use serde_json::{Value, json};

    #[test]
    fn invalid_pod_disruption_budgets_are_rejected() {
        for (spec, expected) in [
            (json!({}), vec![]),
            (json!({"minAvailable": "50%", "selector": {}}), vec![]),
            (
                json!({"minAvailable": 1, "maxUnavailable": "5%"}),
                vec![
                    "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":\"5%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set",
                ],
            ),
            (
                json!({"minAvailable": -1}),
                vec!["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                json!({"maxUnavailable": "200%", "unhealthyPodEvictionPolicy": "X"}),
                vec![
                    "spec.maxUnavailable: Invalid value: \"200%\": must not be greater than 100%",
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"X\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
                ],
            ),
        ] {
            let budget = object(json!({"spec": spec}));
            assert_eq!(texts(&validate(&budget)), expected, "{spec}");
        }
        let status = json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": -1, "expectedPods": 0,
        });
        let budget = object(json!({"spec": {}, "status": status}));
        let negative =
            ["status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"];
        assert_eq!(texts(&validate_status(&budget)), negative);
    }

    #[test]
    fn a_pod_disruption_budget_is_printed_as_a_table_row() {
        let status = json!({
            "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2, "expectedPods": 3,
        });
        let shown = |spec: Value| cells(columns(), json!({"spec": spec, "status": status}));
        assert_eq!(
            shown(json!({"minAvailable": "50%"})),
            json!({
                "Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 2,
                "Age": "<unknown>",
            })
        );
        assert_eq!(shown(json!({"maxUnavailable": 1}))["Max Unavailable"], "1");
    }
}
