//! VolumeAttributesClasses.

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use super::storage_class::{check_parameters, check_provisioner};
use crate::built_in::checks::FieldErrors;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<VolumeAttributesClass> {
    let rules = Validation::new().validate(|class, old, _| validate(class, old));
    Row { short_names: &["vac"], columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    // No manager owns the finalizer, unless a client sets it.
    const FILLED: &[FilledField] = &[FilledField::field("/metadata/finalizers").by_admission()];
    Strategy { returns_deleted_object: true, filled_by_system: FILLED, ..without_generation() }
}

fn columns() -> Vec<Column<VolumeAttributesClass>> {
    vec![
        Column::computed("DriverName", |class: &VolumeAttributesClass, _| {
            class.driver_name.clone()
        }),
        Column::age(),
    ]
}

fn validate(class: &VolumeAttributesClass, old: Option<&VolumeAttributesClass>) -> FieldErrors {
    let mut faults = Vec::new();
    if old.is_some_and(|old| old.driver_name != class.driver_name) {
        faults.push(FieldError::forbidden("driverName", "updates to driverName are forbidden."));
    }
    if old.is_some_and(|old| old.parameters != class.parameters) {
        faults.push(FieldError::forbidden("parameters", "updates to parameters are forbidden."));
    }
    check_provisioner("driverName", &class.driver_name, &mut faults);
    check_parameters(class.parameters.as_ref(), &mut faults);
    if class.parameters.as_ref().is_none_or(|parameters| parameters.is_empty()) {
        let why = "must contain at least one key/value pair";
        faults.push(FieldError::required("parameters", why));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::json;

    #[test]
    fn volume_attributes_classes_are_validated_and_do_not_change() {
        let class = json!({"driverName": "a.b", "parameters": {"iops": "1"}});
        assert_eq!(faults_of_new(validate, class.clone()), [] as [&str; 0]);
        assert_eq!(
            faults_of_new(validate, json!({"driverName": ""})),
            [
                "driverName: Required value",
                "parameters: Required value: must contain at least one key/value pair",
            ]
        );
        let other = json!({"driverName": "c.d", "parameters": {"iops": "2"}});
        assert_eq!(
            faults_of_update(validate, class.clone(), other),
            [
                "driverName: Forbidden: updates to driverName are forbidden.",
                "parameters: Forbidden: updates to parameters are forbidden.",
            ]
        );
        let shown = json!({"DriverName": "a.b", "Age": "<unknown>"});
        assert_eq!(cells(columns(), class), shown);
    }
}
