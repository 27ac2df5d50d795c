//! MutatingWebhookConfigurations.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use super::validation::{self, Webhook};
use super::{configuration, defaults};
use crate::built_in::checks::FieldErrors;
use crate::built_in::row::Row;

pub(crate) fn row() -> Row<MutatingWebhookConfiguration> {
    configuration::row(prepare, validate, |one| one.webhooks.as_ref().map_or(0, Vec::len))
}

fn prepare(configuration: &mut MutatingWebhookConfiguration) {
    configuration.webhooks.iter_mut().flatten().for_each(defaults::set_of_mutating);
}

fn validate(configuration: &MutatingWebhookConfiguration) -> FieldErrors {
    validation::faults(configuration.webhooks.iter().flatten().map(Webhook::of_mutating))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, prepared, texts};
    use serde_json::{Value, json};

    fn configuration(more: Value) -> Value {
        let mut webhook = json!({
            "name": "a.example.com",
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "a"}, "webhooks": [webhook]})
    }

    #[test]
    fn defaults() {
        let filled = prepared(prepare, configuration(json!({"failurePolicy": "Ignore"})));
        let webhook = &filled["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["matchPolicy"], "Equivalent");
        assert_eq!(webhook["reinvocationPolicy"], "Never");
        assert_eq!(webhook["timeoutSeconds"], 10);
        assert_eq!(webhook["namespaceSelector"], json!({}));
        assert_eq!(webhook["objectSelector"], json!({}));
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
    }

    #[test]
    fn mutating_webhook_configuration_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"name": "a.b", "timeoutSeconds": 31, "sideEffects": "Some"}),
                vec![
                    "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
                    "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
                    "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                ],
            ),
            (
                json!({"clientConfig": {"url": "http://h"}, "admissionReviewVersions": ["v2"]}),
                vec![
                    "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                    "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
                ],
            ),
            (
                json!({"matchConditions": [
                    {"name": "n", "expression": "object.spec.a == request.name"},
                    {"name": "n", "expression": "1"}, {"name": "a b", "expression": " "},
                ]}),
                vec![
                    "webhooks[0].matchConditions[1].expression: Invalid value: \"1\": must evaluate to bool but got int",
                    "webhooks[0].matchConditions[1].name: Duplicate value: \"n\"",
                    "webhooks[0].matchConditions[2].expression: Required value",
                    "webhooks[0].matchConditions[2].name: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ],
            ),
            (
                json!({"rules": [{
                    "apiGroups": ["*", "a"], "apiVersions": ["v1"], "operations": ["X"],
                    "resources": ["*", "pods"], "scope": "*",
                }]}),
                vec![
                    "webhooks[0].rules[0].operations[0]: Unsupported value: \"X\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
                    "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other API groups",
                    "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
                ],
            ),
        ] {
            let faults = validate(&object(configuration(more.clone())));
            assert_eq!(texts(&faults), expected, "{more}");
        }
    }

    #[test]
    fn mutating_webhook_configuration_printer_columns_are_filled() {
        let shown = cells(row().columns, configuration(json!({})));
        assert_eq!(shown, json!({"Webhooks": 1, "Age": "<unknown>"}));
    }
}
