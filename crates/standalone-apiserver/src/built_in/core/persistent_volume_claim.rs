//! PersistentVolumeClaims.

mod quota_usage;
mod validation;

use aggregated_apiserver::strategy::{FilledField, QuotaUsage};
use aggregated_apiserver::types::Quantity;
use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    TypedObjectReference,
};

use crate::built_in::cell_texts::UNSET;
use crate::built_in::defaulting::{set_default, set_missing};
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;
use validation::{validate, validate_status, warnings};

use validation::STORAGE;
pub(crate) use validation::{check_access_modes, validate_spec, warnings_of_sizes};

/// The annotation with the class, from before there was a field for it.
pub(crate) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) fn row() -> Row<PersistentVolumeClaim> {
    let rules = Validation::new()
        .prepare(|claim, context| prepare(claim, context.old().as_ref()))
        .validate(|claim, old, _| validate(claim, old))
        .warn(|claim, _, _| warnings(claim))
        .validate_status(|claim, _, _| validate_status(claim));
    Row {
        short_names: &["pvc"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

/// The fields that no manager owns unless a client sets them.
const FILLED: &[FilledField] = &[
    FilledField::field("/metadata/finalizers").by_admission(),
    FilledField::field("/spec/dataSource"),
    FilledField::field("/spec/dataSourceRef"),
    FilledField::field("/spec/storageClassName"),
];

fn strategy() -> Strategy {
    Strategy {
        filled_by_system: FILLED,
        returns_deleted_object: true,
        quota_usage: QuotaUsage::Evaluated(&quota_usage::ClaimEvaluator),
        ..without_generation()
    }
}

fn columns() -> Vec<Column<PersistentVolumeClaim>> {
    type Text = fn(&PersistentVolumeClaim) -> Option<String>;
    let text = |heading, nothing: &'static str, of: Text| {
        Column::computed(heading, move |claim: &PersistentVolumeClaim, _| {
            of(claim).unwrap_or_else(|| nothing.to_owned())
        })
    };
    vec![
        text("Status", "", |claim| {
            let goes = claim.metadata.deletion_timestamp.is_some();
            let phase = claim.status.as_ref().and_then(|status| status.phase.clone());
            if goes { Some("Terminating".to_owned()) } else { phase }
        }),
        text("Volume", "", |claim| claim.spec.as_ref()?.volume_name.clone()),
        text("Capacity", "", |claim| {
            bound_volume(claim)?;
            let status = claim.status.as_ref();
            let amount = status.and_then(|status| status.capacity.as_ref()?.get(STORAGE));
            let amount = amount.and_then(|amount| Quantity::parse(&amount.0).ok());
            Some(amount.map_or_else(|| "0".to_owned(), |amount| amount.to_string()))
        }),
        text("Access Modes", "", |claim| {
            bound_volume(claim)?;
            Some(shown_modes(claim.status.as_ref()?.access_modes.as_ref()?))
        }),
        text("StorageClass", "", |claim| Some(class(claim).unwrap_or_default().to_owned())),
        text("VolumeAttributesClass", UNSET, |claim| {
            claim.spec.as_ref()?.volume_attributes_class_name.clone()
        }),
        Column::age(),
        text("VolumeMode", UNSET, |claim| claim.spec.as_ref()?.volume_mode.clone()).wide(),
    ]
}

fn bound_volume(claim: &PersistentVolumeClaim) -> Option<&String> {
    claim.spec.as_ref()?.volume_name.as_ref().filter(|name| !name.is_empty())
}

/// Access modes in the format `RWO,RWX`: without duplicates, in a fixed order.
pub(crate) fn shown_modes(modes: &[String]) -> String {
    let all = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = all.iter().filter(|(mode, _)| modes.iter().any(|one| one == mode));
    shown.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The StorageClass of a claim.
fn class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotation = claim.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
    let field = || claim.spec.as_ref()?.storage_class_name.as_ref();
    annotation.or_else(field).map(String::as_str)
}

fn prepare(claim: &mut PersistentVolumeClaim, old: Option<&PersistentVolumeClaim>) {
    set_defaults(claim);
    let Some(spec) = &mut claim.spec else { return };
    let old = old.and_then(|old| old.spec.as_ref());
    let had_source =
        old.is_some_and(|old| old.data_source.is_some() || old.data_source_ref.is_some());
    // Data sources in another namespace are a feature that is off by default.
    let is_elsewhere = |source: &TypedObjectReference| {
        source.namespace.as_ref().is_some_and(|namespace| !namespace.is_empty())
    };
    if old.is_none_or(|old| old.data_source_ref.is_none()) {
        spec.data_source_ref = spec.data_source_ref.take().filter(|source| !is_elsewhere(source));
    }
    let is_known = |source: &TypedLocalObjectReference| {
        let group = source.api_group.as_deref().unwrap_or_default();
        matches!(
            (group, source.kind.as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    // Sources of other kinds than these two are always dropped, unless the newer field names them.
    if !had_source && spec.data_source_ref.is_none() {
        spec.data_source = spec.data_source.take().filter(is_known);
    }
    agree_on_source(spec);
}

/// Sets the defaults of a claim, or of a template of claims.
pub(crate) fn set_defaults(claim: &mut PersistentVolumeClaim) {
    set_missing(&mut claim.spec.get_or_insert_default().volume_mode, "Filesystem");
    set_default(&mut claim.status.get_or_insert_default().phase, "Pending");
}

/// Sets the older of the two fields for the data source from the newer one, and vice versa.
fn agree_on_source(spec: &mut PersistentVolumeClaimSpec) {
    match (&spec.data_source, &spec.data_source_ref) {
        (Some(older), None) => {
            spec.data_source_ref = Some(TypedObjectReference {
                api_group: older.api_group.clone(),
                kind: older.kind.clone(),
                name: older.name.clone(),
                namespace: None,
            });
        }
        (None, Some(newer)) if newer.namespace.as_ref().is_none_or(String::is_empty) => {
            spec.data_source = Some(TypedLocalObjectReference {
                api_group: newer.api_group.clone(),
                kind: newer.kind.clone(),
                name: newer.name.clone(),
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, prepared};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        let filled = prepared(|claim| prepare(claim, None), json!({}));
        assert_eq!(filled["spec"], json!({"volumeMode": "Filesystem"}));
        assert_eq!(filled["status"], json!({"phase": "Pending"}));
    }

    #[test]
    fn data_source_and_data_source_ref_are_copied_to_each_other() {
        let spec = |old: Option<&PersistentVolumeClaim>, spec: Value| {
            prepared(|claim| prepare(claim, old), json!({"spec": spec}))["spec"].clone()
        };
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let other = json!({"apiGroup": "x.io", "kind": "X", "name": "a"});
        for (given, source, newer) in [
            (json!({}), json!(null), json!(null)),
            (json!({"dataSource": claim}), claim.clone(), claim.clone()),
            (json!({"dataSourceRef": other}), other.clone(), other.clone()),
            (json!({"dataSource": other}), json!(null), json!(null)),
        ] {
            let spec = spec(None, given.clone());
            assert_eq!((&spec["dataSource"], &spec["dataSourceRef"]), (&source, &newer), "{given}");
        }
        let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"});
        let filled = spec(None, json!({"dataSourceRef": elsewhere}));
        assert_eq!((&filled["dataSource"], &filled["dataSourceRef"]), (&json!(null), &json!(null)));
        let filled = spec(None, json!({"dataSourceRef": elsewhere, "dataSource": claim}));
        assert_eq!((&filled["dataSource"], &filled["dataSourceRef"]), (&claim, &claim));
        let old: PersistentVolumeClaim = object(json!({"spec": {"dataSourceRef": other}}));
        let filled = spec(Some(&old), json!({"dataSource": other}));
        assert_eq!(filled["dataSourceRef"], other);
    }

    #[test]
    fn persistent_volume_claim_printer_columns_are_filled() {
        let claim = json!({
            "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Block"},
            "status": {
                "phase": "Bound", "capacity": {"storage": "1024Mi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteMany"],
            },
        });
        assert_eq!(
            cells(columns(), claim),
            json!({
                "Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO,RWX",
                "StorageClass": "fast", "VolumeAttributesClass": "<unset>", "Age": "<unknown>",
                "VolumeMode": "Block",
            })
        );
        let going = json!({
            "metadata": {
                "deletionTimestamp": "2024-05-01T11:00:00Z",
                "annotations": {CLASS_ANNOTATION: "old"},
            },
            "spec": {}, "status": {"phase": "Pending"},
        });
        let cells = cells(columns(), going);
        assert_eq!(
            (&cells["Status"], &cells["StorageClass"]),
            (&json!("Terminating"), &json!("old"))
        );
        assert_eq!((&cells["Capacity"], &cells["VolumeMode"]), (&json!(""), &json!("<unset>")));
    }
}
