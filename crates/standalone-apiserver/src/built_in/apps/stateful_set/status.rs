//! The status of StatefulSets.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use crate::built_in::apps::replicated::{check_collisions, check_counts};
use crate::built_in::checks::FieldErrors;

/// Validates a status, compared with the old one if there is any.
pub(super) fn validate(set: &StatefulSet, old: Option<&StatefulSet>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = StatefulSetStatus::default();
    let status = set.status.as_ref().unwrap_or(&nothing);
    let above = "cannot be greater than status.replicas";
    check_counts(
        &[
            ("replicas", Some(i64::from(status.replicas))),
            ("readyReplicas", status.ready_replicas.map(i64::from)),
            ("currentReplicas", status.current_replicas.map(i64::from)),
            ("updatedReplicas", status.updated_replicas.map(i64::from)),
            ("availableReplicas", status.available_replicas.map(i64::from)),
            ("observedGeneration", status.observed_generation),
            ("collisionCount", status.collision_count.map(i64::from)),
        ],
        &[
            ("readyReplicas", "replicas", above),
            ("currentReplicas", "replicas", above),
            ("updatedReplicas", "replicas", above),
            ("availableReplicas", "replicas", above),
            ("availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas"),
        ],
        &mut faults,
    );
    let collisions = |status: &StatefulSetStatus| status.collision_count;
    let old = old.and_then(|old| old.status.as_ref()).and_then(collisions);
    check_collisions(collisions(status), old, &mut faults);
    faults
}
