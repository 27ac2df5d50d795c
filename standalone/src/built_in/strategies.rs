//! In what each of these kinds differs from one that a definition describes.

use aggregated_apiserver::{NameRule, SelectableFields, Strategy, whole_seconds};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::strategy::{base, counted, guarded};
use crate::definitions::FINALIZER;

/// Says in the status of a definition that its objects will be removed.
fn note_termination(definition: &mut Map<String, Value>, now: Timestamp) {
    let status = definition.entry("status").or_insert_with(|| json!({}));
    if status["conditions"].is_null() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    if conditions.iter().any(|condition| condition["type"] == "Terminating") {
        return;
    }
    conditions.push(json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": whole_seconds(now).to_string(),
    }));
}

pub(super) fn definitions() -> Strategy {
    Strategy {
        allows_unconditional_update: false,
        updates_metadata_with_status: false,
        // Whoever serves it lets it go when its objects are gone.
        held_by: Some("/spec/versions"),
        marked_by_time_alone: true,
        prepare_for_deletion: Some(|definition, now| {
            note_termination(definition, now);
            let metadata = definition.entry("metadata").or_insert_with(|| json!({}));
            let finalizers = metadata
                .as_object_mut()
                .map(|metadata| metadata.entry("finalizers").or_insert_with(|| json!([])));
            if let Some(Value::Array(finalizers)) = finalizers
                && !finalizers.contains(&FINALIZER.into())
            {
                finalizers.push(FINALIZER.into());
            }
        }),
        ..counted()
    }
}

pub(super) fn pods() -> Strategy {
    let selectable = SelectableFields::default()
        .or("spec.nodeName", "")
        .or("spec.restartPolicy", "")
        .or("spec.schedulerName", "")
        .or("spec.serviceAccountName", "")
        .or("spec.hostNetwork", "false")
        .or("status.phase", "")
        .or("status.podIP", "")
        .or("status.nominatedNodeName", "");
    Strategy {
        selectable,
        returns_deleted_object: true,
        grace_period: Some(grace_period_of_pod),
        kept: &["/spec/priority", "/spec/preemptionPolicy"],
        ..base()
    }
}

/// Nobody has to be waited for where nothing runs, or runs any more.
fn grace_period_of_pod(pod: &Map<String, Value>) -> Option<i64> {
    let text = |part: &str, field: &str| pod.get(part).and_then(|part| part[field].as_str());
    let is_bound = text("spec", "nodeName").is_some_and(|node| !node.is_empty());
    let is_over = matches!(text("status", "phase"), Some("Succeeded" | "Failed"));
    let usual = pod.get("spec").and_then(|spec| spec["terminationGracePeriodSeconds"].as_i64());
    (is_bound && !is_over).then(|| usual.unwrap_or(30))
}

pub(super) fn api_services() -> Strategy {
    Strategy { names: NameRule::PathSegment, updates_metadata_with_status: false, ..guarded() }
}

pub(super) fn namespaces() -> Strategy {
    Strategy {
        names: NameRule::Label,
        has_generation: false,
        selectable: SelectableFields::default().or("status.phase", "").found_at(
            "name",
            &["metadata.name"],
            "",
        ),
        deletes_collections: false,
        held_by: Some("/spec/finalizers"),
        has_finalize: true,
        marked_by_time_alone: true,
        prepare_for_deletion: Some(|namespace, _| {
            let status = namespace.entry("status").or_insert_with(|| json!({}));
            status["phase"] = "Terminating".into();
        }),
        kept: &["/spec"],
        ..base()
    }
}

pub(super) fn nodes() -> Strategy {
    let selectable = SelectableFields::default().or("spec.unschedulable", "false");
    Strategy {
        has_generation: false,
        selectable,
        keeps_status_on_create: true,
        storage_prefix: Some("minions"),
        ..base()
    }
}

pub(super) fn deployments() -> Strategy {
    Strategy { metadata_kept_by_status: &["labels"], counts_annotations: true, ..counted() }
}

pub(super) fn services() -> Strategy {
    let selectable = SelectableFields::default().or("spec.clusterIP", "").or("spec.type", "");
    Strategy {
        names: NameRule::Label,
        has_generation: false,
        selectable,
        returns_deleted_object: true,
        allows_create_on_update: true,
        storage_prefix: Some("services/specs"),
        ..base()
    }
}

pub(super) fn jobs() -> Strategy {
    let selectable =
        SelectableFields::default().found_at("status.successful", &["status.succeeded"], "0");
    let why = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    Strategy { selectable, warning_without_propagation_policy: Some(why), ..base() }
}
