//! In what each of these kinds differs from one that a definition describes.

use aggregated_apiserver::{NameRule, Strategy, whole_seconds};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::strategy::{counted, guarded};
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

pub(super) fn api_services() -> Strategy {
    Strategy { names: NameRule::PathSegment, updates_metadata_with_status: false, ..guarded() }
}
