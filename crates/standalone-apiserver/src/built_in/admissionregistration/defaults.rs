//! The defaults of webhooks.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, RuleWithOperations, ValidatingWebhook, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::built_in::defaulting::set_missing;

const PORT: i32 = 443;
const TIMEOUT_SECONDS: i32 = 10;

pub(super) fn set_of_mutating(webhook: &mut MutatingWebhook) {
    set_missing(&mut webhook.reinvocation_policy, "Never");
    Fields {
        failure_policy: &mut webhook.failure_policy,
        match_policy: &mut webhook.match_policy,
        selectors: [&mut webhook.namespace_selector, &mut webhook.object_selector],
        timeout_seconds: &mut webhook.timeout_seconds,
        rules: &mut webhook.rules,
        client_config: &mut webhook.client_config,
    }
    .set();
}

pub(super) fn set_of_validating(webhook: &mut ValidatingWebhook) {
    Fields {
        failure_policy: &mut webhook.failure_policy,
        match_policy: &mut webhook.match_policy,
        selectors: [&mut webhook.namespace_selector, &mut webhook.object_selector],
        timeout_seconds: &mut webhook.timeout_seconds,
        rules: &mut webhook.rules,
        client_config: &mut webhook.client_config,
    }
    .set();
}

/// The fields with defaults, which both sorts of webhooks have.
struct Fields<'a> {
    failure_policy: &'a mut Option<String>,
    match_policy: &'a mut Option<String>,
    selectors: [&'a mut Option<LabelSelector>; 2],
    timeout_seconds: &'a mut Option<i32>,
    rules: &'a mut Option<Vec<RuleWithOperations>>,
    client_config: &'a mut WebhookClientConfig,
}

impl Fields<'_> {
    fn set(self) {
        set_missing(self.failure_policy, "Fail");
        set_missing(self.match_policy, "Equivalent");
        for selector in self.selectors {
            selector.get_or_insert_default();
        }
        self.timeout_seconds.get_or_insert(TIMEOUT_SECONDS);
        for rule in self.rules.iter_mut().flatten() {
            set_missing(&mut rule.scope, "*");
        }
        if let Some(service) = &mut self.client_config.service {
            service.port.get_or_insert(PORT);
        }
    }
}
