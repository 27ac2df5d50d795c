//! DeviceClasses.

use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::resource::v1::DeviceClass;

use super::checks::check_each;
use super::configuration::{CONFIGURATIONS, check_opaque, check_selectors};
use crate::built_in::checks::{FieldErrors, is_same, quote};
use crate::built_in::resource_names::is_extended;
use crate::built_in::row::Row;
use crate::built_in::strategy::with_generation;

pub(crate) fn row() -> Row<DeviceClass> {
    let rules = Validation::new().validate(|class, old, _| validate(class, old));
    Row { rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..with_generation() }
}

fn validate(class: &DeviceClass, old: Option<&DeviceClass>) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &class.spec;
    check_selectors(spec.selectors.as_ref(), "spec.selectors", &mut faults);
    let stored = old.is_some_and(|old| is_same(&old.spec.config, &spec.config));
    let configurations = spec.config.as_ref();
    check_each(configurations, CONFIGURATIONS, "spec.config", &mut faults, |one, at, faults| {
        check_opaque(one.opaque.as_ref(), stored, at, faults);
    });
    let name = spec.extended_resource_name.as_ref();
    if let Some(name) = name.filter(|name| !is_extended(name)) {
        let why = "must be a valid extended resource name";
        faults.push(FieldError::invalid("spec.extendedResourceName", quote(name), why));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::faults_of_new;
    use serde_json::json;

    #[test]
    fn invalid_device_classes_are_rejected() {
        let valid = json!({
            "selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "a.b/gpu",
            "config": [{"opaque": {"driver": "a.b", "parameters": {"c": 1}}}],
        });
        assert_eq!(faults_of_new(validate, json!({"spec": valid})), [] as [&str; 0]);
        let broken = json!({
            "selectors": [{}], "extendedResourceName": "cpu",
            "config": [{}, {"opaque": {"driver": "", "parameters": 5}}],
        });
        assert_eq!(
            faults_of_new(validate, json!({"spec": broken})),
            [
                "spec.selectors[0].cel: Required value",
                "spec.config[0].opaque: Required value",
                "spec.config[1].opaque.driver: Required value",
                "spec.config[1].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
                "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
            ]
        );
    }
}
