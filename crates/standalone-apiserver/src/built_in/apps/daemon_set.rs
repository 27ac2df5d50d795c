//! DaemonSets.

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::replicated::{check_change, check_collisions, check_counts, check_runs_forever};
use crate::built_in::cell_texts::{or_none, pairs};
use crate::built_in::checks::{FieldErrors, check_not_negative, quote, to_json};
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::share;
use crate::built_in::strategy::with_generation;

/// The annotation that counts the changes of the template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) fn row() -> Row<DaemonSet> {
    let rules = Validation::new()
        .prepare(|set, context| prepare(set, context.old().as_ref()))
        .validate(|set, old, _| validate(set, old))
        .validate_status(|set, old, _| validate_status(set, old))
        .warn(|set, old, _| warnings(set, old));
    Row {
        short_names: &["ds"],
        categories: ALL,
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// In Go, the count is a field that is zero if a client omits it, and is turned into an annotation later. So the client
/// that creates a DaemonSet owns the annotation, and a change of the template does not change the owner.
const FILLED: &[FilledField] =
    &[FilledField::field("/metadata/annotations/deprecated.daemonset.template.generation")
        .with_default("0")
        .replaced()];

fn strategy() -> Strategy {
    Strategy { filled_by_system: FILLED, ..with_generation() }
}

fn columns() -> Vec<Column<DaemonSet>> {
    vec![
        Column::count("Desired", |one| Some(one.status.as_ref()?.desired_number_scheduled)),
        Column::count("Current", |one| Some(one.status.as_ref()?.current_number_scheduled)),
        Column::count("Ready", |one| Some(one.status.as_ref()?.number_ready)),
        Column::count("Up-to-date", |one| one.status.as_ref()?.updated_number_scheduled),
        Column::count("Available", |one| one.status.as_ref()?.number_available),
        Column::computed("Node Selector", |one: &DaemonSet, _| {
            let pod = one.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            or_none(pairs(pod.and_then(|pod| pod.node_selector.as_ref())))
        }),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        label_selector::column(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

fn prepare(set: &mut DaemonSet, old: Option<&DaemonSet>) {
    let spec = set.spec.get_or_insert_default();
    let strategy = spec.update_strategy.get_or_insert_default();
    set_default(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
        rolling.max_surge.get_or_insert(IntOrString::Int(0));
    }
    spec.revision_history_limit.get_or_insert(10);
    pod_template::set_defaults(&mut spec.template);
    let old_template = old.and_then(|old| old.spec.as_ref()).map(|old| &old.template);
    pod_template::drop_disabled(&mut spec.template, old_template);
    let template_generation = match old {
        None => template_generation(set).max(1),
        Some(old) => {
            let template = |set: &DaemonSet| set.spec.as_ref().map(|spec| spec.template.clone());
            let changes = i64::from(template(old) != template(set));
            // A client may have started with the largest number. Go continues with the smallest.
            template_generation(old).wrapping_add(changes)
        }
    };
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_GENERATION.to_owned(), template_generation.to_string());
}

/// The number of changes of the template, according to the annotation.
fn template_generation(set: &DaemonSet) -> i64 {
    let annotation = set.metadata.annotations.as_ref().and_then(|all| all.get(TEMPLATE_GENERATION));
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn validate(set: &DaemonSet, old: Option<&DaemonSet>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &set.spec else { return faults };
    let old = old.and_then(|old| old.spec.as_ref());
    check_change(&spec.selector, old.map(|old| &old.selector), &mut faults);
    check_selector(spec, &mut faults);
    let old_template = old.map(|old| &old.template);
    pod_template::validate(&spec.template, old_template, "spec.template", &mut faults);
    check_runs_forever(&spec.template, "DaemonSet", &mut faults);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    check_not_negative("spec.templateGeneration", Some(template_generation(set)), &mut faults);
    if let Some(strategy) = &spec.update_strategy {
        check_strategy(strategy, &mut faults);
    }
    check_not_negative("spec.revisionHistoryLimit", spec.revision_history_limit, &mut faults);
    faults
}

fn validate_status(set: &DaemonSet, old: Option<&DaemonSet>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = DaemonSetStatus::default();
    let status = set.status.as_ref().unwrap_or(&nothing);
    let count = |count: i32| Some(i64::from(count));
    check_counts(
        &[
            ("currentNumberScheduled", count(status.current_number_scheduled)),
            ("numberMisscheduled", count(status.number_misscheduled)),
            ("desiredNumberScheduled", count(status.desired_number_scheduled)),
            ("numberReady", count(status.number_ready)),
            ("observedGeneration", status.observed_generation),
            ("updatedNumberScheduled", status.updated_number_scheduled.map(i64::from)),
            ("numberAvailable", status.number_available.map(i64::from)),
            ("numberUnavailable", status.number_unavailable.map(i64::from)),
            ("collisionCount", status.collision_count.map(i64::from)),
        ],
        &[],
        &mut faults,
    );
    let collisions = |status: &DaemonSetStatus| status.collision_count;
    let old = old.and_then(|old| old.status.as_ref()).and_then(collisions);
    check_collisions(collisions(status), old, &mut faults);
    faults
}

/// Warnings about the template of a DaemonSet that is new or has a changed template.
fn warnings(set: &DaemonSet, old: Option<&DaemonSet>) -> Vec<String> {
    if old.is_some_and(|old| template_generation(old) == template_generation(set)) {
        return Vec::new();
    }
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let warnings = template.map(|template| warnings::of_template(template, "spec.template"));
    warnings.unwrap_or_default()
}

fn check_selector(spec: &DaemonSetSpec, faults: &mut FieldErrors) {
    let before = faults.len();
    label_selector::validate(&spec.selector, "spec.selector", faults);
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    // A selector that is missing in JSON is the default in Rust, and selects nothing.
    let is_missing = spec.selector == LabelSelector::default();
    if faults.len() == before && (is_missing || !label_selector::matches(&spec.selector, labels)) {
        let why = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", to_json(&labels), why));
    }
    if !is_missing && label_selector::is_empty(&spec.selector) {
        let why = "empty selector is invalid for daemonset";
        faults.push(FieldError::invalid("spec.selector", to_json(&spec.selector), why));
    }
}

/// Validates the update strategy.
fn check_strategy(strategy: &DaemonSetUpdateStrategy, faults: &mut FieldErrors) {
    const AT: &str = "spec.updateStrategy.rollingUpdate";
    match strategy.type_.as_deref().unwrap_or_default() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = &strategy.rolling_update else {
                return faults.push(FieldError::required(AT, ""));
            };
            let nothing = IntOrString::Int(0);
            let unavailable = rolling.max_unavailable.as_ref().unwrap_or(&nothing);
            let surge = rolling.max_surge.as_ref().unwrap_or(&nothing);
            let (unavailable_at, surge_at) =
                (format!("{AT}.maxUnavailable"), format!("{AT}.maxSurge"));
            share::check(&unavailable_at, unavailable, faults);
            share::check(&surge_at, surge, faults);
            share::check_at_most_all(&unavailable_at, unavailable, faults);
            share::check_at_most_all(&surge_at, surge, faults);
            match (share::is_nothing(unavailable), share::is_nothing(surge)) {
                (false, false) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    faults.push(FieldError::invalid(surge_at, to_json(surge), why));
                }
                (true, true) => {
                    let why = "cannot be 0 when maxSurge is 0";
                    faults.push(FieldError::required(unavailable_at, why));
                }
                _ => {}
            }
        }
        other => {
            let rolling = strategy.rolling_update.as_ref().map_or_else(
                || "null".to_owned(),
                |rolling| {
                    let nothing = IntOrString::Int(0);
                    let shown =
                        |share: &Option<IntOrString>| to_json(share.as_ref().unwrap_or(&nothing));
                    let (unavailable, surge) = (&rolling.max_unavailable, &rolling.max_surge);
                    // The fields have the names of Go.
                    format!(
                        r#"{{"MaxUnavailable":{},"MaxSurge":{}}}"#,
                        shown(unavailable),
                        shown(surge)
                    )
                },
            );
            let value = format!(r#"{{"Type":{},"RollingUpdate":{rolling}}}"#, quote(other));
            let supported = ["RollingUpdate", "OnDelete"];
            faults.push(FieldError::not_supported("spec.updateStrategy", value, &supported));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    fn set(more: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"a": "b"}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
            },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn defaults() {
        let filled =
            prepared(|set| prepare(set, None), json!({"spec": {"template": {"spec": {}}}}));
        let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        assert_eq!(filled["spec"]["updateStrategy"], strategy);
        assert_eq!(filled["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(filled["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    }

    #[test]
    fn changes_of_the_template_are_counted() {
        let counted = |set: &Value| set["metadata"]["annotations"][TEMPLATE_GENERATION].clone();
        let new = prepared(|set| prepare(set, None), set(json!({})));
        assert_eq!(counted(&new), "1");
        let old: DaemonSet = object(new.clone());
        let same = prepared(|set| prepare(set, Some(&old)), new.clone());
        assert_eq!(counted(&same), "1");
        let mut changed = new;
        changed["metadata"]["annotations"][TEMPLATE_GENERATION] = "9".into();
        changed["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
        let changed = prepared(|set| prepare(set, Some(&old)), changed);
        assert_eq!(counted(&changed), "2");
        let mut last = changed.clone();
        last["metadata"]["annotations"][TEMPLATE_GENERATION] = i64::MAX.to_string().into();
        let last: DaemonSet = object(last);
        let wrapped = prepared(|set| prepare(set, Some(&last)), set(json!({})));
        assert_eq!(counted(&wrapped), i64::MIN.to_string());
    }

    #[test]
    fn daemon_set_validation_reports_invalid_fields() {
        let rolling = |unavailable: Value, surge: Value| {
            let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})
        };
        for (more, expected) in [
            (json!({}), vec![]),
            (rolling(json!(0), json!("10%")), vec![]),
            (
                rolling(json!(0), json!(0)),
                vec![
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
                ],
            ),
            (
                rolling(json!(1), json!("10%")),
                vec![
                    "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"10%\": may not be set when maxUnavailable is non-zero",
                ],
            ),
            (
                json!({"updateStrategy": {"type": "X"}}),
                vec![
                    "spec.updateStrategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported values: \"RollingUpdate\", \"OnDelete\"",
                ],
            ),
            (
                json!({"selector": {"matchLabels": {}}}),
                vec![
                    "spec.selector: Invalid value: {\"matchLabels\":{}}: empty selector is invalid for daemonset",
                ],
            ),
            (
                json!({"minReadySeconds": -1, "revisionHistoryLimit": -2}),
                vec![
                    "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
                    "spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, set(more.clone())), expected, "{more}");
        }
        let old = set(json!({"selector": {"matchLabels": {"a": "b", "c": "d"}}}));
        let immutable =
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: field is immutable"];
        assert_eq!(faults_of_update(validate, old, set(json!({}))), immutable);
    }

    #[test]
    fn daemon_set_printer_columns_are_filled() {
        let mut set = set(json!({}));
        set["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
        set["status"] = json!({
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
            "updatedNumberScheduled": 2, "numberAvailable": 1, "numberMisscheduled": 0,
        });
        assert_eq!(
            cells(columns(), set),
            json!({
                "Desired": 5, "Current": 4, "Ready": 3, "Up-to-date": 2, "Available": 1,
                "Node Selector": "zone=a", "Age": "<unknown>", "Containers": "c", "Images": "i",
                "Selector": "a=b",
            })
        );
    }
}
