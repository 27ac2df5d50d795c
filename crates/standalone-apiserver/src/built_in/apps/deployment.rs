//! Deployments.

use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::replicated::{
    check_change, check_collisions, check_counts, check_selector, check_template,
};
use crate::built_in::checks::{FieldErrors, check_not_negative, quote, to_json};
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::share;
use crate::built_in::strategy::with_generation;

pub(crate) fn row() -> Row<Deployment> {
    let rules = Validation::new()
        .prepare(|deployment, context| {
            prepare(deployment);
            let old = context.old::<Deployment>();
            let old = old.as_ref().and_then(|old| old.spec.as_ref()).map(|old| &old.template);
            if let Some(spec) = &mut deployment.spec {
                pod_template::drop_disabled(&mut spec.template, old);
            }
        })
        .validate(|deployment, old, _| validate(deployment, old))
        .validate_status(|deployment, old, _| validate_status(deployment, old))
        .warn(|deployment, old, _| warnings(deployment, old));
    Row {
        short_names: &["deploy"],
        categories: ALL,
        subresources: Subresources::StatusAndScale,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        metadata_reset_by_status: &["labels"],
        counts_annotations: true,
        ..with_generation()
    }
}

fn columns() -> Vec<Column<Deployment>> {
    let count = |heading, field: fn(&Deployment) -> Option<i32>| {
        Column::computed(heading, move |deployment, _| field(deployment).unwrap_or_default())
    };
    vec![
        Column::computed("Ready", |deployment, _| ready_replicas(deployment)),
        count("Up-to-date", |one| one.status.as_ref()?.updated_replicas),
        count("Available", |one| one.status.as_ref()?.available_replicas),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        label_selector::column(|one| Some(&one.spec.as_ref()?.selector)),
    ]
}

fn ready_replicas(deployment: &Deployment) -> String {
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    format!("{}/{}", ready.unwrap_or_default(), wanted.unwrap_or_default())
}

fn prepare(deployment: &mut Deployment) {
    let spec = deployment.spec.get_or_insert_default();
    spec.replicas.get_or_insert(1);
    spec.revision_history_limit.get_or_insert(10);
    spec.progress_deadline_seconds.get_or_insert(600);
    let strategy = spec.strategy.get_or_insert_with(DeploymentStrategy::default);
    set_default(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = RollingUpdateDeployment::default();
        let rolling = strategy.rolling_update.get_or_insert(rolling);
        let quarter = IntOrString::String("25%".to_owned());
        rolling.max_surge.get_or_insert_with(|| quarter.clone());
        rolling.max_unavailable.get_or_insert(quarter);
    }
    pod_template::set_defaults(&mut spec.template);
}

fn validate(deployment: &Deployment, old: Option<&Deployment>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &deployment.spec else { return faults };
    check_not_negative("spec.replicas", spec.replicas, &mut faults);
    check_selector(&spec.selector, "deployment", &mut faults);
    let old = old.and_then(|old| old.spec.as_ref());
    let old_template = old.map(|old| &old.template);
    check_template(Some(&spec.template), old_template, &spec.selector, &mut faults);
    check_strategy(spec, &mut faults);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    check_not_negative("spec.revisionHistoryLimit", spec.revision_history_limit, &mut faults);
    let (deadline, ready) =
        (spec.progress_deadline_seconds.unwrap_or(600), spec.min_ready_seconds.unwrap_or(0));
    check_not_negative("spec.progressDeadlineSeconds", Some(deadline), &mut faults);
    if deadline <= ready {
        let why = "must be greater than minReadySeconds";
        faults.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, why));
    }
    check_change(&spec.selector, old.map(|old| &old.selector), &mut faults);
    faults
}

fn validate_status(deployment: &Deployment, old: Option<&Deployment>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = DeploymentStatus::default();
    let status = deployment.status.as_ref().unwrap_or(&nothing);
    let above = "cannot be greater than status.replicas";
    check_counts(
        &[
            ("observedGeneration", status.observed_generation),
            ("replicas", status.replicas.map(i64::from)),
            ("updatedReplicas", status.updated_replicas.map(i64::from)),
            ("readyReplicas", status.ready_replicas.map(i64::from)),
            ("availableReplicas", status.available_replicas.map(i64::from)),
            ("unavailableReplicas", status.unavailable_replicas.map(i64::from)),
            ("terminatingReplicas", status.terminating_replicas.map(i64::from)),
            ("collisionCount", status.collision_count.map(i64::from)),
        ],
        &[
            ("updatedReplicas", "replicas", above),
            ("readyReplicas", "replicas", above),
            ("availableReplicas", "replicas", above),
            ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
        ],
        &mut faults,
    );
    let collisions = |status: &DeploymentStatus| status.collision_count;
    let old = old.and_then(|old| old.status.as_ref()).and_then(collisions);
    check_collisions(collisions(status), old, &mut faults);
    faults
}

/// Warnings about the template of a Deployment that is new or has a new generation.
fn warnings(deployment: &Deployment, old: Option<&Deployment>) -> Vec<String> {
    let generation = |deployment: &Deployment| deployment.metadata.generation;
    if old.is_some_and(|old| generation(old) == generation(deployment)) {
        return Vec::new();
    }
    let name = deployment.metadata.name.as_deref();
    let of_name = old.is_none().then(|| warnings::of_name(name)).flatten();
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let of_template = template.map(|template| warnings::of_template(template, "spec.template"));
    of_name.into_iter().chain(of_template.into_iter().flatten()).collect()
}

/// Validates the rollout strategy.
fn check_strategy(spec: &DeploymentSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.strategy.rollingUpdate";
    let Some(strategy) = &spec.strategy else { return };
    let rolling = strategy.rolling_update.as_ref();
    match strategy.type_.as_deref() {
        Some("Recreate") => {
            if rolling.is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                faults.push(FieldError::forbidden(AT, why));
            }
        }
        Some("RollingUpdate") => {
            let Some(rolling) = rolling else {
                let why = "this should be defaulted and never be nil";
                return faults.push(FieldError::required("spec.strategy.rollingUpdate", why));
            };
            let surge = rolling.max_surge.as_ref();
            let unavailable = rolling.max_unavailable.as_ref();
            let at = |field| format!("{AT}.{field}");
            if let Some(unavailable) = unavailable {
                share::check(&at("maxUnavailable"), unavailable, faults);
            }
            if let Some(surge) = surge {
                share::check(&at("maxSurge"), surge, faults);
            }
            if surge.is_some_and(share::is_nothing) && unavailable.is_some_and(share::is_nothing) {
                let why = "may not be 0 when `maxSurge` is 0";
                let value = to_json(&unavailable);
                faults.push(FieldError::invalid(at("maxUnavailable"), value, why));
            }
            if let Some(unavailable) = unavailable {
                share::check_at_most_all(&at("maxUnavailable"), unavailable, faults);
            }
        }
        other => {
            let supported = ["Recreate", "RollingUpdate"];
            let value = quote(other.unwrap_or_default());
            faults.push(FieldError::not_supported("spec.strategy", value, &supported));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::share::PERCENT;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    fn deployment(more: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "Recreate"},
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
        let spec = |spec: Value| prepared(prepare, json!({"spec": spec}))["spec"].clone();
        let filled = spec(json!({"template": {"spec": {"containers": []}}}));
        assert_eq!(filled["replicas"], 1);
        assert_eq!(filled["revisionHistoryLimit"], 10);
        assert_eq!(filled["progressDeadlineSeconds"], 600);
        assert_eq!(filled["template"]["spec"]["restartPolicy"], "Always");
        let quarter = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        assert_eq!(filled["strategy"], json!({"type": "RollingUpdate", "rollingUpdate": quarter}));
        let given = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}});
        let filled = spec(json!({"replicas": 0, "strategy": given}));
        assert_eq!(filled["replicas"], 0);
        let rolling = json!({"maxSurge": 0, "maxUnavailable": "25%"});
        assert_eq!(filled["strategy"]["rollingUpdate"], rolling);
        let recreated = spec(json!({"strategy": {"type": "Recreate"}}));
        assert_eq!(recreated["strategy"], json!({"type": "Recreate"}));
    }

    #[test]
    fn deployment_validation_reports_invalid_fields() {
        let rolling = |rolling: Value| json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"replicas": -1, "minReadySeconds": 600}),
                vec![
                    "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                    "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
                ],
            ),
            (
                json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
                vec![
                    "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
                ],
            ),
            (
                json!({"strategy": {"type": "X"}}),
                vec![
                    "spec.strategy: Unsupported value: \"X\": supported values: \"Recreate\", \"RollingUpdate\"",
                ],
            ),
            (
                rolling(json!({"maxSurge": "0%", "maxUnavailable": 0})),
                vec![
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
                ],
            ),
            (
                rolling(json!({"maxSurge": "101%", "maxUnavailable": "101%"})),
                vec![
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, deployment(more.clone())), expected, "{more}");
        }
        let faults = faults_of_new(validate, deployment(rolling(json!({"maxSurge": "x"}))));
        let expected =
            format!("spec.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": {PERCENT}");
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn deployment_selector_is_immutable() {
        let other = deployment(
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        );
        let old = deployment(json!({}));
        assert_eq!(faults_of_update(validate, old.clone(), old.clone()), [] as [&str; 0]);
        let faults = faults_of_update(validate, old, other);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("spec.selector: Invalid value: "), "{faults:?}");
        assert!(faults[0].ends_with(": field is immutable"), "{faults:?}");
    }

    #[test]
    fn deployment_printer_columns_are_filled() {
        let mut deployment = deployment(json!({"replicas": 3}));
        deployment["status"] = json!({"readyReplicas": 1, "updatedReplicas": 2});
        assert_eq!(
            cells(columns(), deployment),
            json!({
                "Ready": "1/3", "Up-to-date": 2, "Available": 0, "Age": "<unknown>",
                "Containers": "c", "Images": "i", "Selector": "a=b",
            })
        );
    }
}
