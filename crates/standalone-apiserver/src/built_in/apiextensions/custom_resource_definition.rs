//! CustomResourceDefinitions.

pub(crate) mod approval;
mod error_paths;
mod validation;

use aggregated_apiserver::encoding::truncate_to_seconds;
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::{Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use serde_json::{Map, Value, json};

use crate::built_in::defaulting::is_new;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::with_generation;
use crate::controllers::definitions::FINALIZER;
use validation::validate;

pub(crate) fn row() -> Row<CustomResourceDefinition> {
    let rules = Validation::new()
        .prepare(|definition, context| prepare(definition, context.is_admitted))
        .validate(|definition, old, _| validate(definition, old))
        .warn(|definition, old, _| RuntimeKinds::unenforced(definition, old));
    Row {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        allows_unconditional_update: false,
        // The list is never empty: only the controller removes a definition, after its objects are deleted.
        held_by: Some("/spec/versions"),
        marked_by_time_alone: true,
        one_at_a_time: true,
        prepare_for_deletion: Some(|definition, now| {
            set_terminating(definition, now);
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
        ..with_generation()
    }
}

/// Sets the condition `Terminating` of a definition that is being deleted.
fn set_terminating(definition: &mut Map<String, Value>, now: Timestamp) {
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
        "lastTransitionTime": truncate_to_seconds(now).to_string(),
    }));
}

fn columns() -> Vec<Column<CustomResourceDefinition>> {
    vec![Column::path("Created At", ".metadata.creationTimestamp").of_type("date")]
}

fn prepare(definition: &mut CustomResourceDefinition, is_admitted: bool) {
    let is_new = is_new(&definition.metadata);
    let names = &mut definition.spec.names;
    if !names.kind.is_empty() {
        names.singular.get_or_insert_with(|| names.kind.to_lowercase());
        names.list_kind.get_or_insert_with(|| format!("{}List", names.kind));
    }
    let conversion = CustomResourceConversion { strategy: "None".to_owned(), webhook: None };
    let conversion = definition.spec.conversion.get_or_insert(conversion);
    let webhook = conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut());
    if let Some(service) = webhook.and_then(|config| config.service.as_mut()) {
        service.port.get_or_insert(443);
    }
    let Some(stored) = definition.spec.versions.iter().find(|version| version.storage) else {
        return;
    };
    let status = definition.status.get_or_insert_default();
    let versions = status.stored_versions.get_or_insert_default();
    if is_new && is_admitted {
        versions.clear();
    }
    if versions.is_empty() || (is_admitted && !versions.contains(&stored.name)) {
        versions.push(stored.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{now, prepared};

    #[test]
    fn defaults() {
        let filled = prepared(
            |definition| prepare(definition, true),
            json!({
                "spec": {
                    "names": {"kind": "Llama"},
                    "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}],
                },
                "status": {"storedVersions": ["v1"]},
            }),
        );
        assert_eq!(filled["spec"]["names"]["singular"], "llama");
        assert_eq!(filled["spec"]["names"]["listKind"], "LlamaList");
        assert_eq!(filled["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(filled["status"]["storedVersions"], json!(["v2"]));
    }

    #[test]
    fn an_update_adds_the_storage_version_to_stored_versions() {
        let stored = |before: Value| {
            let definition = json!({
                "metadata": {"resourceVersion": "1"},
                "spec": {"versions": [{"name": "v2", "storage": true}]},
                "status": {"storedVersions": before},
            });
            prepared(|definition| prepare(definition, true), definition)["status"]["storedVersions"]
                .clone()
        };
        assert_eq!(stored(json!(["v1"])), json!(["v1", "v2"]));
        assert_eq!(stored(json!(["v2"])), json!(["v2"]));
    }

    #[test]
    fn a_webhook_is_on_port_443() {
        let webhook = json!({"clientConfig": {"service": {"name": "s"}}});
        let filled = prepared(
            |definition| prepare(definition, true),
            json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}),
        );
        let conversion = &filled["spec"]["conversion"];
        assert_eq!(conversion["webhook"]["clientConfig"]["service"]["port"], 443);
        assert_eq!(conversion["strategy"], "Webhook");
    }

    #[test]
    fn a_deleted_definition_is_terminating_and_has_a_finalizer() {
        let prepare = strategy().prepare_for_deletion.unwrap();
        let mut definition = Map::new();
        prepare(&mut definition, now());
        assert_eq!(definition["metadata"], json!({"finalizers": [FINALIZER]}));
        assert_eq!(definition["status"]["conditions"][0]["reason"], "InstanceDeletionPending");
        let once = definition.clone();
        prepare(&mut definition, now());
        assert_eq!(definition, once);
    }
}
