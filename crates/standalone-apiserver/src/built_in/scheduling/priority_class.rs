//! PriorityClasses.

use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use crate::built_in::checks::{FieldErrors, check_immutable, quote};
use crate::built_in::defaulting::is_new;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

/// The prefix of the names of system classes.
const PREFIX: &str = "system-";
/// The largest value of other classes.
const HIGHEST: i32 = 1_000_000_000;

/// The system classes, which exist from the start: name, value and description.
const OF_SYSTEM: [(&str, i32, &str); 2] = [
    (
        "system-node-critical",
        2 * HIGHEST + 1_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2 * HIGHEST,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

pub(crate) fn row() -> Row<PriorityClass> {
    let rules = Validation::new()
        .prepare(|class, context| prepare(class, context.is_admitted))
        .validate(|class, old, _| validate(class, old));
    Row { short_names: &["pc"], columns: columns(), rules, ..Row::new(without_generation()) }
}

/// The classes that a server has from the start.
pub(crate) fn of_system() -> impl Iterator<Item = Value> {
    OF_SYSTEM.into_iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name, "generation": 1},
            "value": value, "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    })
}

/// Whether a class is a system class, which cannot be deleted.
pub(crate) fn is_of_system(name: &str) -> bool {
    OF_SYSTEM.iter().any(|(own, ..)| *own == name)
}

fn columns() -> Vec<Column<PriorityClass>> {
    vec![
        Column::computed("Value", |class: &PriorityClass, _| class.value.unwrap_or_default())
            .of_type("integer"),
        Column::computed("Global-Default", |class: &PriorityClass, _| {
            class.global_default.unwrap_or_default()
        })
        .of_type("boolean"),
        Column::age(),
        Column::computed("PreemptionPolicy", |class: &PriorityClass, _| {
            class.preemption_policy.clone().unwrap_or_default()
        }),
    ]
}

fn prepare(class: &mut PriorityClass, is_admitted: bool) {
    class.preemption_policy.get_or_insert_with(|| "PreemptLowerPriority".to_owned());
    // The generation never increases.
    if is_admitted && is_new(&class.metadata) {
        class.metadata.generation = Some(1);
    }
}

fn validate(class: &PriorityClass, old: Option<&PriorityClass>) -> FieldErrors {
    let mut faults = Vec::new();
    let value = class.value.unwrap_or_default();
    if let Some(old) = old {
        if value != old.value.unwrap_or_default() {
            faults.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        let (new, old) = (&class.preemption_policy, &old.preemption_policy);
        check_immutable("preemptionPolicy", new, old, &mut faults);
        return faults;
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(PREFIX) {
        let is_default = class.global_default.unwrap_or_default();
        if let Some(why) = fault_of_system_class(name, value, is_default) {
            let why = format!(
                "priority class names with '{PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            faults.push(FieldError::forbidden("metadata.name", &why));
        }
    } else if value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        faults.push(FieldError::forbidden("value", &why));
    }
    let all = ["PreemptLowerPriority", "Never"];
    match class.preemption_policy.as_deref() {
        Some("") => faults.push(FieldError::required("preemptionPolicy", "")),
        Some(policy) if !all.contains(&policy) => {
            faults.push(FieldError::not_supported("preemptionPolicy", quote(policy), &all));
        }
        _ => {}
    }
    faults
}

fn fault_of_system_class(name: &str, value: i32, is_default: bool) -> Option<String> {
    match OF_SYSTEM.iter().find(|(own, ..)| *own == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, own, _)) if *own != value => {
            Some(format!("value of {name} PriorityClass must be {own}"))
        }
        Some(_) if is_default => {
            Some(format!("globalDefault of {name} PriorityClass must be false"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};

    #[test]
    fn invalid_priority_classes_are_rejected() {
        const RESERVED: &str = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: ";
        let class = |name: &str, value: i32| json!({"metadata": {"name": name}, "value": value});
        for (class, expected) in [
            (class("a", HIGHEST), vec![]),
            (class("system-cluster-critical", 2 * HIGHEST), vec![]),
            (
                class("a", HIGHEST + 1),
                vec![
                    "value: Forbidden: maximum allowed value of a user defined priority is 1000000000".to_owned(),
                ],
            ),
            (
                class("system-x", 1),
                vec![format!("{RESERVED}system-x is not a known system priority class")],
            ),
            (
                class("system-node-critical", 1),
                vec![format!(
                    "{RESERVED}value of system-node-critical PriorityClass must be 2000001000"
                )],
            ),
            (
                json!({"metadata": {"name": "a"}, "preemptionPolicy": "X"}),
                vec![
                    "preemptionPolicy: Unsupported value: \"X\": supported values: \"PreemptLowerPriority\", \"Never\"".to_owned(),
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, class.clone()), expected, "{class}");
        }
        let changed = json!({"metadata": {"name": "a"}, "value": 2, "preemptionPolicy": "Never"});
        assert_eq!(
            faults_of_update(validate, class("a", 1), changed),
            [
                "value: Forbidden: may not be changed in an update.",
                "preemptionPolicy: Invalid value: \"Never\": field is immutable",
            ]
        );
    }

    #[test]
    fn system_priority_classes_are_valid() {
        for class in of_system() {
            assert_eq!(faults_of_new(validate, class), [] as [&str; 0]);
        }
        assert!(is_of_system("system-node-critical") && !is_of_system("system-x"));
    }

    #[test]
    fn priority_classes_have_defaults_and_table_rows() {
        let class =
            prepared(|class| prepare(class, true), json!({"metadata": {"name": "a"}, "value": 5}));
        assert_eq!(class["metadata"]["generation"], 1);
        assert_eq!(
            cells(columns(), class),
            json!({
                "Value": 5, "Global-Default": false, "Age": "<unknown>",
                "PreemptionPolicy": "PreemptLowerPriority",
            })
        );
    }
}
