//! ResourceClaimTemplates.

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

use super::claim_spec;
use crate::built_in::checks::{FieldErrors, check_immutable};
use crate::built_in::pod_template::check_template_metadata;
use crate::built_in::row::Row;
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<ResourceClaimTemplate> {
    let rules = Validation::new()
        .prepare(|template: &mut ResourceClaimTemplate, _| {
            claim_spec::set_defaults(&mut template.spec.spec);
        })
        .validate(|template, old, _| validate(template, old));
    Row { rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..without_generation() }
}

fn validate(template: &ResourceClaimTemplate, old: Option<&ResourceClaimTemplate>) -> FieldErrors {
    let mut faults = Vec::new();
    if let Some(metadata) = &template.spec.metadata {
        check_template_metadata(metadata, "spec.metadata", &mut faults);
    }
    claim_spec::validate(&template.spec.spec, "spec.spec", &mut faults);
    if let Some(old) = old {
        check_immutable("spec", &template.spec, &old.spec, &mut faults);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update};
    use serde_json::json;

    #[test]
    fn templates_are_validated_and_do_not_change() {
        let template = |metadata| {
            json!({"spec": {"metadata": metadata, "spec": {"devices": {"requests": [
                {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
            ]}}}})
        };
        let plain = template(json!({"labels": {"a": "b"}}));
        assert_eq!(faults_of_new(validate, plain.clone()), [] as [&str; 0]);
        assert_eq!(
            faults_of_new(validate, template(json!({"name": "x"}))),
            ["spec.metadata.name: Forbidden: cannot be set"]
        );
        assert_eq!(faults_of_update(validate, plain, template(json!({}))).len(), 1);
    }
}
