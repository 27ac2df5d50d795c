//! StatefulSets.

mod status;
mod update_strategy;

use std::collections::BTreeSet;

use aggregated_apiserver::strategy::{FilledField, NameRule, names};
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::replicated::{check_runs_forever, check_selector};
use crate::built_in::checks::{
    FieldErrors, check_not_negative, check_one_of, check_with, quote, to_json,
};
use crate::built_in::core::persistent_volume_claim;
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy::with_generation;

const ROLLING: &str = "RollingUpdate";
const ON_DELETE: &str = "OnDelete";

pub(crate) fn row() -> Row<StatefulSet> {
    let rules = Validation::new()
        .prepare(|set, context| prepare(set, context.old().as_ref()))
        .validate(|set, old, _| validate(set, old))
        .validate_status(|set, old, _| status::validate(set, old))
        .warn(|set, old, _| warnings(set, old));
    Row {
        short_names: &["sts"],
        categories: ALL,
        subresources: Subresources::StatusAndScale,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// The feature is off by default in kube-apiserver: the field is dropped, but the client that sends it owns it.
const FILLED: &[FilledField] =
    &[FilledField::dropped("/spec/updateStrategy/rollingUpdate/maxUnavailable")];

fn strategy() -> Strategy {
    Strategy { filled_by_system: FILLED, names: NameRule::Dns1123Label, ..with_generation() }
}

fn columns() -> Vec<Column<StatefulSet>> {
    vec![
        Column::computed("Ready", |set: &StatefulSet, _| {
            let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
            let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
            format!("{}/{}", ready.unwrap_or_default(), wanted.unwrap_or_default())
        }),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
    ]
}

fn prepare(set: &mut StatefulSet, old: Option<&StatefulSet>) {
    let spec = set.spec.get_or_insert_default();
    set_default(&mut spec.pod_management_policy, "OrderedReady");
    let strategy = spec.update_strategy.get_or_insert_default();
    if strategy.type_.as_deref().unwrap_or_default().is_empty() {
        strategy.type_ = Some(ROLLING.to_owned());
        strategy.rolling_update.get_or_insert_default();
    }
    if strategy.type_.as_deref() == Some(ROLLING)
        && let Some(rolling) = &mut strategy.rolling_update
    {
        rolling.partition.get_or_insert(0);
    }
    let old_template = old.and_then(|old| old.spec.as_ref()).map(|old| &old.template);
    // The feature is off by default in kube-apiserver, which stores the field only if the old object has it.
    let old =
        old.and_then(|old| old.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref());
    if old.is_none_or(|old| old.max_unavailable.is_none())
        && let Some(rolling) = &mut strategy.rolling_update
    {
        rolling.max_unavailable = None;
    }
    let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_default();
    set_default(&mut retention.when_deleted, "Retain");
    set_default(&mut retention.when_scaled, "Retain");
    spec.replicas.get_or_insert(1);
    spec.revision_history_limit.get_or_insert(10);
    pod_template::set_defaults(&mut spec.template);
    pod_template::drop_disabled(&mut spec.template, old_template);
    for claim in spec.volume_claim_templates.iter_mut().flatten() {
        persistent_volume_claim::set_defaults(claim);
    }
    let status = set.status.get_or_insert_default();
    status.available_replicas.get_or_insert(0);
}

fn validate(set: &StatefulSet, old: Option<&StatefulSet>) -> FieldErrors {
    let mut faults = Vec::new();
    let Some(spec) = &set.spec else { return faults };
    let old = old.and_then(|old| old.spec.as_ref());
    // The template may have been stored when the validation was less strict; then it must not prevent scaling.
    let judges_template = old.is_none_or(|old| validate_spec(old, Some(old), true).is_empty());
    faults.append(&mut validate_spec(spec, old, judges_template));
    if old.is_some_and(|old| changes_more_than_it_may(spec, old)) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        faults.push(FieldError::forbidden("spec", why));
    }
    faults
}

/// Validates a spec. In an update, immutable fields are not validated again. Only the parts of the template that belong
/// to the set are validated, unless `judges_template` is true.
fn validate_spec(
    spec: &StatefulSetSpec,
    old: Option<&StatefulSetSpec>,
    judges_template: bool,
) -> FieldErrors {
    let is_updated = old.is_some();
    let mut faults = Vec::new();
    let policy = spec.pod_management_policy.as_deref().unwrap_or_default();
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        faults.push(FieldError::invalid("spec.podManagementPolicy", quote(policy), why));
    }
    if let Some(strategy) = &spec.update_strategy {
        update_strategy::validate(strategy, &mut faults);
    }
    if let Some(retention) = &spec.persistent_volume_claim_retention_policy {
        let at = |field| format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        let all = ["Retain", "Delete"];
        check_one_of(at("whenDeleted"), retention.when_deleted.as_ref(), &all, &mut faults);
        check_one_of(at("whenScaled"), retention.when_scaled.as_ref(), &all, &mut faults);
    }
    if !is_updated {
        for (index, claim) in spec.volume_claim_templates.iter().flatten().enumerate() {
            let at = format!("spec.volumeClaimTemplates[{index}].spec");
            persistent_volume_claim::validate_spec(claim.spec.as_ref(), &at, &mut faults);
        }
    }
    check_not_negative("spec.replicas", spec.replicas, &mut faults);
    check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start);
    check_not_negative("spec.ordinals.start", start, &mut faults);
    let service = spec.service_name.as_deref().unwrap_or_default();
    if !is_updated && !service.is_empty() {
        check_with("spec.serviceName", service, names::check_dns_1123_label, &mut faults);
    }
    check_selector(&spec.selector, "statefulset", &mut faults);
    check_template(spec, old, judges_template, &mut faults);
    faults
}

/// Validates the template in the form of its Pods: with the volumes of the claims that are created for each Pod, and
/// without a host name, because each Pod gets its own.
fn check_template(
    spec: &StatefulSetSpec,
    old: Option<&StatefulSetSpec>,
    judges_it: bool,
    faults: &mut FieldErrors,
) {
    let mut template = spec.template.clone();
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let mut of_selector = Vec::new();
    label_selector::validate(&spec.selector, "spec.selector", &mut of_selector);
    if !of_selector.is_empty() {
        faults.push(FieldError::invalid("spec.selector", to_json(&spec.selector), ""));
        return check_runs_forever(&template, "StatefulSet", faults);
    }
    // A selector that is missing in JSON is the default in Rust, and selects nothing.
    if spec.selector == LabelSelector::default()
        || (!label_selector::is_empty(&spec.selector)
            && !label_selector::matches(&spec.selector, labels.as_ref()))
    {
        let why = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", to_json(&labels), why));
    }
    let old = old.map(|old| &old.template);
    if judges_it {
        add_volumes(spec, &mut template);
        pod_template::validate(&template, old, "spec.template", faults);
    }
    label_selector::check_labels(labels.as_ref(), "spec.template.labels", faults);
    pod_template::check_annotations(&template, old, "spec.template.annotations", faults);
    check_runs_forever(&template, "StatefulSet", faults);
}

fn add_volumes(spec: &StatefulSetSpec, template: &mut PodTemplateSpec) {
    let Some(pod) = &mut template.spec else { return };
    (pod.subdomain, pod.hostname) = (None, None);
    let claims = spec.volume_claim_templates.iter().flatten();
    // Each name once. The validation of volumes reports a missing name.
    let names: BTreeSet<String> =
        claims.map(|claim| claim.metadata.name.clone().unwrap_or_default()).collect();
    if names.is_empty() {
        return;
    }
    let own = pod.volumes.take().unwrap_or_default();
    let own = own.into_iter().filter(|volume| !names.contains(&volume.name));
    let of_claim = |name: &String| {
        let claim_name = name.clone();
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        Volume { name: name.clone(), persistent_volume_claim: Some(source), ..Volume::default() }
    };
    pod.volumes = Some(names.iter().map(of_claim).chain(own).collect());
}

/// Whether an immutable field has changed.
fn changes_more_than_it_may(new: &StatefulSetSpec, old: &StatefulSetSpec) -> bool {
    let may_change = StatefulSetSpec {
        replicas: new.replicas,
        ordinals: new.ordinals.clone(),
        template: new.template.clone(),
        update_strategy: new.update_strategy.clone(),
        revision_history_limit: new.revision_history_limit,
        min_ready_seconds: new.min_ready_seconds,
        persistent_volume_claim_retention_policy: new
            .persistent_volume_claim_retention_policy
            .clone(),
        ..old.clone()
    };
    *new != may_change
}

fn warnings(set: &StatefulSet, old: Option<&StatefulSet>) -> Vec<String> {
    let generation = |set: &StatefulSet| set.metadata.generation;
    let is_changed = old.is_none_or(|old| generation(old) != generation(set));
    let template = set.spec.as_ref().map(|spec| &spec.template).filter(|_| is_changed);
    let of_template = |template| warnings::of_template(template, "spec.template");
    let mut warnings: Vec<String> = template.map(of_template).unwrap_or_default();
    let claims = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    for (index, claim) in claims.enumerate() {
        // The path is that of kube-apiserver, which differs from the path of the amounts.
        let at = format!("spec.volumeClaimTemplates[{index}]");
        let at = if old.is_some() { at + ".Spec" } else { at };
        warnings.append(&mut persistent_volume_claim::warnings_of_sizes(claim.spec.as_ref(), &at));
    }
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit);
    let negative = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
    warnings.extend(limit.filter(|limit| *limit < 0).map(|_| negative.to_owned()));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    fn set(more: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"a": "b"}},
            "podManagementPolicy": "Parallel",
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
            |spec: Value| prepared(|set| prepare(set, None), json!({"spec": spec}))["spec"].clone();
        let spec = filled(json!({"template": {"spec": {}}, "volumeClaimTemplates": [{}]}));
        assert_eq!(spec["replicas"], 1);
        assert_eq!(spec["revisionHistoryLimit"], 10);
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
        assert_eq!(spec["updateStrategy"], rolling);
        let retained = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
        assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], retained);
        assert_eq!(spec["template"]["spec"]["dnsPolicy"], "ClusterFirst");
        assert_eq!(spec["volumeClaimTemplates"][0]["status"]["phase"], "Pending");
        let named = filled(json!({"updateStrategy": {"type": "RollingUpdate"}}));
        assert_eq!(named["updateStrategy"], json!({"type": "RollingUpdate"}));
    }

    #[test]
    fn max_unavailable_is_dropped_unless_the_old_stateful_set_has_max_unavailable() {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
        let given = json!({"spec": {"updateStrategy": rolling}});
        let new = prepared(|set| prepare(set, None), given.clone());
        let rolling = &new["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(*rolling, json!({"partition": 0}));
        let old: StatefulSet = object(given.clone());
        let changed = prepared(|set| prepare(set, Some(&old)), given);
        let rolling = &changed["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(*rolling, json!({"partition": 0, "maxUnavailable": 2}));
    }

    #[test]
    fn stateful_set_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"podManagementPolicy": "X", "updateStrategy": {"type": "Y"}}),
                vec![
                    "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
                    "spec.updateStrategy: Invalid value: {\"Type\":\"Y\",\"RollingUpdate\":null}: must be 'RollingUpdate' or 'OnDelete'",
                ],
            ),
            (
                json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}),
                vec![
                    "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for updateStrategy 'RollingUpdate'",
                ],
            ),
            (
                json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {
                    "partition": -1, "maxUnavailable": "0%",
                }}}),
                vec![
                    "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
                    "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": cannot be 0",
                ],
            ),
            (
                json!({"serviceName": "a.b", "ordinals": {"start": -1}}),
                vec![
                    "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
                    "spec.serviceName: Invalid value: \"a.b\": must not contain dots",
                ],
            ),
            (
                json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "X"}}),
                vec![
                    "spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: \"X\": supported values: \"Retain\", \"Delete\"",
                ],
            ),
            (
                json!({"selector": {"matchLabels": {"a": "c"}}}),
                vec![
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, set(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn containers_of_a_stateful_set_can_mount_volume_claim_templates() {
        let claim = json!({"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }});
        let mut with_claim = set(json!({"volumeClaimTemplates": [claim]}));
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        with_claim["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts;
        assert_eq!(faults_of_new(validate, with_claim.clone()), [] as [&str; 0]);
        let mut without = with_claim.clone();
        without["spec"].as_object_mut().unwrap().remove("volumeClaimTemplates");
        assert_eq!(faults_of_new(validate, without.clone()).len(), 1);
        let changed = faults_of_update(validate, without, with_claim);
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(changed[0].starts_with("spec: Forbidden: updates to statefulset spec for fields"));
    }

    #[test]
    fn a_claim_without_a_name_is_refused_and_many_cost_little() {
        let claim = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }})
        };
        let unnamed = set(json!({"volumeClaimTemplates": [claim("")]}));
        assert_eq!(
            faults_of_new(validate, unnamed),
            [
                "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: Required value",
                "spec.template.spec.volumes[0].name: Required value",
            ]
        );
        let names: Vec<String> = (0..3_000).map(|number| format!("v{number}")).collect();
        let claims: Vec<Value> = names.iter().map(|name| claim(name)).collect();
        let mut many = set(json!({"volumeClaimTemplates": claims}));
        let volumes: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        many["spec"]["template"]["spec"]["volumes"] = volumes.into();
        let many: StatefulSet = object(many);
        let spec = many.spec.unwrap();
        let mut template = spec.template.clone();
        add_volumes(&spec, &mut template);
        let volumes = template.spec.unwrap().volumes.unwrap();
        assert_eq!(volumes.len(), 3_000);
        assert!(volumes.iter().all(|volume| volume.persistent_volume_claim.is_some()));
    }

    #[test]
    fn an_invalid_stored_template_does_not_block_scaling_a_stateful_set() {
        let mut old = set(json!({"replicas": 1}));
        old["spec"]["template"]["spec"]["containers"] = json!([]);
        let mut new = old.clone();
        new["spec"]["replicas"] = 2.into();
        assert_eq!(faults_of_update(validate, old.clone(), new), [] as [&str; 0]);
        assert_eq!(faults_of_update(validate, set(json!({})), old).len(), 1);
    }

    #[test]
    fn stateful_set_printer_columns_are_filled() {
        let mut set = set(json!({"replicas": 3}));
        set["status"] = json!({"replicas": 2, "readyReplicas": 1});
        let expected =
            json!({"Ready": "1/3", "Age": "<unknown>", "Containers": "c", "Images": "i"});
        assert_eq!(cells(columns(), set), expected);
    }
}
