//! RuntimeClasses.

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use k8s_openapi::api::node::v1::{RuntimeClass, Scheduling};

use crate::built_in::checks::{
    FieldErrors, check_immutable, check_with, go_struct, quote, to_json,
};
use crate::built_in::pod_template::scope::{Owner, Scope};
use crate::built_in::pod_template::{resources, tolerations};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;
use crate::built_in::{label_selector, node_labels};

pub(crate) fn row() -> Row<RuntimeClass> {
    let rules = Validation::new()
        .validate(|class, old, _| validate(class, old))
        .warn(|class, _, _| warnings(class));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { allows_create_on_update: true, ..requiring_resource_version() }
}

fn columns() -> Vec<Column<RuntimeClass>> {
    vec![Column::path("Handler", ".handler"), Column::age()]
}

fn validate(class: &RuntimeClass, old: Option<&RuntimeClass>) -> FieldErrors {
    let mut faults = Vec::new();
    if class.handler.is_empty() {
        faults.push(FieldError::required("handler", ""));
    } else {
        check_with("handler", &class.handler, names::check_dns_1123_label, &mut faults);
    }
    // The overhead and the tolerations have the rules of a Pod.
    let overhead = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.clone());
    let pod = PodSpec { overhead, ..PodSpec::default() };
    let scope = Scope::new(&pod, Owner::Template, None, None);
    resources::check_overhead(&scope, "overhead", &mut faults);
    if let Some(scheduling) = &class.scheduling {
        check_scheduling(scheduling, &scope, &mut faults);
    }
    if let Some(old) = old {
        check_immutable("handler", &class.handler, &old.handler, &mut faults);
    }
    faults
}

fn check_scheduling(scheduling: &Scheduling, scope: &Scope<'_>, faults: &mut FieldErrors) {
    let selector = scheduling.node_selector.as_ref();
    label_selector::check_labels(selector, "scheduling.nodeSelector", faults);
    const AT: &str = "scheduling.tolerations";
    let all = scheduling.tolerations.as_deref().unwrap_or_default();
    tolerations::validate(all, scope, AT, faults);
    for (index, one) in all.iter().enumerate() {
        if all[..index].iter().any(|earlier| is_same(earlier, one)) {
            faults.push(FieldError::duplicate(format!("{AT}[{index}]"), shown(one)));
        }
    }
}

/// Whether two tolerations differ only in their time.
fn is_same(one: &Toleration, other: &Toleration) -> bool {
    let key = |one: &Toleration| {
        [&one.key, &one.operator, &one.value, &one.effect]
            .map(|text| text.clone().unwrap_or_default())
    };
    key(one) == key(other)
}

/// A toleration in the format of messages, with the field names of Go.
fn shown(one: &Toleration) -> String {
    let text = |text: &Option<String>| quote(text.as_deref().unwrap_or_default());
    go_struct(&[
        ("Key", text(&one.key)),
        ("Operator", text(&one.operator)),
        ("Value", text(&one.value)),
        ("Effect", text(&one.effect)),
        ("TolerationSeconds", to_json(&one.toleration_seconds)),
    ])
}

/// Warnings about deprecated labels of Nodes.
fn warnings(class: &RuntimeClass) -> Vec<String> {
    let selector =
        class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.as_ref());
    let keys = selector.into_iter().flat_map(|selector| selector.keys());
    let deprecated = keys.filter_map(|key| node_labels::deprecation(key));
    deprecated.map(|why| format!("scheduling.nodeSelector: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::json;

    #[test]
    fn invalid_runtime_classes_are_rejected() {
        let twice = json!({"key": "a", "operator": "Exists"});
        for (class, expected) in [
            (json!({"handler": "vm", "overhead": {"podFixed": {"cpu": "1"}}}), vec![]),
            (json!({"handler": ""}), vec!["handler: Required value"]),
            (
                json!({"handler": "vm", "scheduling": {"tolerations": [twice, twice]}}),
                vec![
                    "scheduling.tolerations[1]: Duplicate value: {\"Key\":\"a\",\"Operator\":\"Exists\",\"Value\":\"\",\"Effect\":\"\",\"TolerationSeconds\":null}",
                ],
            ),
            (
                json!({"handler": "vm", "overhead": {"podFixed": {"cpu": "-1"}}}),
                vec![
                    "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, class.clone()), expected, "{class}");
        }
        let [old, new] = ["vm", "gvisor"].map(|handler| json!({"handler": handler}));
        assert_eq!(
            faults_of_update(validate, old, new),
            ["handler: Invalid value: \"gvisor\": field is immutable"]
        );
    }

    #[test]
    fn deprecated_labels_are_warned_about() {
        let selector = json!({"beta.kubernetes.io/os": "linux", "x": "y"});
        let class = object(json!({"handler": "vm", "scheduling": {"nodeSelector": selector}}));
        assert_eq!(
            warnings(&class),
            ["scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead"]
        );
    }
}
