//! ValidatingWebhookConfigurations.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;

use super::validation::{self, Webhook};
use super::{configuration, defaults};
use crate::built_in::checks::FieldErrors;
use crate::built_in::row::Row;

pub(crate) fn row() -> Row<ValidatingWebhookConfiguration> {
    configuration::row(prepare, validate, |one| one.webhooks.as_ref().map_or(0, Vec::len))
}

fn prepare(configuration: &mut ValidatingWebhookConfiguration) {
    configuration.webhooks.iter_mut().flatten().for_each(defaults::set_of_validating);
}

fn validate(configuration: &ValidatingWebhookConfiguration) -> FieldErrors {
    validation::faults(configuration.webhooks.iter().flatten().map(Webhook::of_validating))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::json;

    #[test]
    fn validating_webhooks_have_defaults_and_unique_names() {
        let webhook = json!({
            "name": "a.example.com",
            "clientConfig": {"url": "https://h/p"},
            "rules": [],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1", "v1beta1"],
        });
        let twice = json!({"metadata": {"name": "a"}, "webhooks": [webhook, webhook]});
        let filled = prepared(prepare, twice.clone());
        assert_eq!(filled["webhooks"][1]["failurePolicy"], "Fail");
        assert_eq!(filled["webhooks"][1]["reinvocationPolicy"], json!(null));
        assert_eq!(
            texts(&validate(&object(twice))),
            ["webhooks[1].name: Duplicate value: \"a.example.com\""]
        );
    }
}
