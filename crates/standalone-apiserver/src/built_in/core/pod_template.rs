//! PodTemplates.

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};

use crate::built_in::cell_texts::{or_none, pairs};
use crate::built_in::checks::FieldErrors;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::with_generation;

pub(crate) fn row() -> Row<PodTemplate> {
    let rules = Validation::new()
        .prepare(|object: &mut PodTemplate, context| {
            let old = context.old::<PodTemplate>().and_then(|old| old.template);
            let template = object.template.get_or_insert_default();
            pod_template::drop_disabled(template, old.as_ref());
            pod_template::set_defaults(template);
        })
        .validate(|object, old, _| validate(object, old))
        .warn(|object, old, _| warnings(object, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..with_generation() }
}

fn columns() -> Vec<Column<PodTemplate>> {
    vec![
        containers_column(|object: &PodTemplate| object.template.as_ref()?.spec.as_ref()).always(),
        images_column(|object: &PodTemplate| object.template.as_ref()?.spec.as_ref()).always(),
        Column::computed("Pod Labels", |object: &PodTemplate, _| {
            let metadata = object.template.as_ref().and_then(|one| one.metadata.as_ref());
            or_none(pairs(metadata.and_then(|metadata| metadata.labels.as_ref())))
        }),
    ]
}

fn validate(object: &PodTemplate, old: Option<&PodTemplate>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = PodTemplateSpec::default();
    let template = object.template.as_ref().unwrap_or(&nothing);
    let old = old.and_then(|old| old.template.as_ref());
    pod_template::validate(template, old, "template", &mut faults);
    faults
}

/// Warnings about a template that is new or has a new generation.
fn warnings(object: &PodTemplate, old: Option<&PodTemplate>) -> Vec<String> {
    if old.is_some_and(|old| old.metadata.generation == object.metadata.generation) {
        return Vec::new();
    }
    let template = object.template.as_ref();
    template.map(|template| warnings::of_template(template, "template")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new};
    use serde_json::json;

    #[test]
    fn pod_templates_are_validated_and_printed_as_table_rows() {
        let spec = json!({
            "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
        });
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
        assert_eq!(
            cells(columns(), json!({"template": template})),
            json!({"Containers": "c", "Images": "i", "Pod Labels": "a=b"})
        );
        let broken = faults_of_new(validate, json!({"template": {"spec": {"containers": []}}}));
        assert!(broken.contains(&"template.spec.containers: Required value".to_owned()));
    }
}
