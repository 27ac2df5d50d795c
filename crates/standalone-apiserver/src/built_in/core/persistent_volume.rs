//! PersistentVolumes.

mod inline;
mod older_sources;
mod sources;
mod validation;

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::types::Quantity;
use aggregated_apiserver::{Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::persistent_volume_claim::{CLASS_ANNOTATION, shown_modes};
use crate::built_in::cell_texts::UNSET;
use crate::built_in::defaulting::set_default;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;
use validation::{validate, warnings};

pub(crate) use inline::check as check_inline_spec;
pub(crate) use sources::{check_driver_name, set_defaults as set_source_defaults};

pub(crate) fn row() -> Row<PersistentVolume> {
    let rules = Validation::new()
        .prepare(|volume, context| {
            set_defaults(volume);
            if context.is_admitted {
                set_transition_time(volume, context.old().as_ref(), context.now);
            }
        })
        .validate(|volume, old, _| validate(volume, old))
        .warn(|volume, _, _| warnings(volume));
    Row {
        short_names: &["pv"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    // The fields that no manager owns unless a client sets them.
    const FILLED: &[FilledField] = &[
        FilledField::field("/status/lastPhaseTransitionTime").replaced(),
        FilledField::field("/metadata/finalizers").by_admission(),
    ];
    Strategy { returns_deleted_object: true, filled_by_system: FILLED, ..without_generation() }
}

fn columns() -> Vec<Column<PersistentVolume>> {
    type Text = fn(&PersistentVolume) -> Option<String>;
    let text = |heading, nothing: &'static str, of: Text| {
        Column::computed(heading, move |volume: &PersistentVolume, _| {
            of(volume).unwrap_or_else(|| nothing.to_owned())
        })
    };
    vec![
        text("Capacity", "0", |volume| {
            let size = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
            Some(Quantity::parse(&size.0).ok()?.to_string())
        }),
        text("Access Modes", "", |volume| {
            Some(shown_modes(volume.spec.as_ref()?.access_modes.as_ref()?))
        }),
        text("Reclaim Policy", "", |volume| {
            volume.spec.as_ref()?.persistent_volume_reclaim_policy.clone()
        }),
        text("Status", "", |volume| match volume.metadata.deletion_timestamp {
            Some(_) => Some("Terminating".to_owned()),
            None => volume.status.as_ref()?.phase.clone(),
        }),
        text("Claim", "", |volume| {
            let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            Some(format!("{}/{}", text(&claim.namespace), text(&claim.name)))
        }),
        text("StorageClass", "", |volume| {
            let annotations = volume.metadata.annotations.as_ref();
            let old = annotations.and_then(|all| all.get(CLASS_ANNOTATION)).cloned();
            old.or_else(|| volume.spec.as_ref()?.storage_class_name.clone())
        }),
        text("VolumeAttributesClass", UNSET, |volume| {
            volume.spec.as_ref()?.volume_attributes_class_name.clone()
        }),
        text("Reason", "", |volume| volume.status.as_ref()?.reason.clone()),
        Column::age(),
        text("VolumeMode", UNSET, |volume| volume.spec.as_ref()?.volume_mode.clone()).wide(),
    ]
}

fn set_defaults(volume: &mut PersistentVolume) {
    let spec = volume.spec.get_or_insert_default();
    set_default(&mut spec.persistent_volume_reclaim_policy, "Retain");
    spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
    sources::set_defaults(spec);
    let status = volume.status.get_or_insert_default();
    set_default(&mut status.phase, "Pending");
}

/// Sets the time of the last change of the phase.
fn set_transition_time(
    volume: &mut PersistentVolume,
    old: Option<&PersistentVolume>,
    now: Timestamp,
) {
    let status = volume.status.get_or_insert_default();
    let before = old.and_then(|old| old.status.as_ref());
    let known = before.and_then(|before| before.last_phase_transition_time.clone());
    let moved = &mut status.last_phase_transition_time;
    if before.is_some_and(|before| before.phase == status.phase) {
        if moved.is_none() {
            *moved = known;
        }
    } else if moved.is_none() || *moved == known {
        *moved = Some(Time(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, now, object, prepared};
    use serde_json::{Value, json};

    fn prepare(volume: &mut PersistentVolume, old: Option<&PersistentVolume>) {
        set_defaults(volume);
        set_transition_time(volume, old, now());
    }

    #[test]
    fn defaults() {
        let volume = json!({"spec": {"hostPath": {"path": "/a"}}});
        let volume = prepared(|volume| prepare(volume, None), volume);
        assert_eq!(
            volume["spec"],
            json!({
                "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
                "hostPath": {"path": "/a", "type": ""},
            })
        );
        let status = json!({"phase": "Pending", "lastPhaseTransitionTime": "2024-05-01T12:00:00Z"});
        assert_eq!(volume["status"], status);
    }

    #[test]
    fn phase_transition_time_is_set_when_a_volume_phase_changes() {
        const BEFORE: &str = "2024-01-01T00:00:00Z";
        const NOW: &str = "2024-05-01T12:00:00Z";
        let old: PersistentVolume =
            object(json!({"status": {"phase": "Available", "lastPhaseTransitionTime": BEFORE}}));
        let moved = |status: Value| {
            let volume = json!({"status": status});
            let volume = prepared(|volume| prepare(volume, Some(&old)), volume);
            volume["status"]["lastPhaseTransitionTime"].clone()
        };
        const OTHER: &str = "2024-02-02T00:00:00Z";
        assert_eq!(moved(json!({"phase": "Available"})), BEFORE);
        assert_eq!(moved(json!({"phase": "Bound"})), NOW);
        assert_eq!(moved(json!({"phase": "Bound", "lastPhaseTransitionTime": BEFORE})), NOW);
        assert_eq!(moved(json!({"phase": "Bound", "lastPhaseTransitionTime": OTHER})), OTHER);
    }

    #[test]
    fn persistent_volume_printer_columns_are_filled() {
        let volume = json!({
            "spec": {
                "capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
                "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block",
            },
            "status": {"phase": "Bound", "reason": "R"},
        });
        assert_eq!(
            cells(columns(), volume),
            json!({
                "Capacity": "1Gi", "Access Modes": "RWX", "Reclaim Policy": "Retain",
                "Status": "Bound", "Claim": "n/c", "StorageClass": "fast",
                "VolumeAttributesClass": "<unset>", "Reason": "R", "Age": "<unknown>",
                "VolumeMode": "Block",
            })
        );
    }
}
