//! The webhooks that are configured at one time.

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::webhooks::WebhookCalls;
use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::ask;
use crate::built_in::admissionregistration::GROUP;

const PORT: i32 = 443;
/// The largest valid timeout, in seconds. Another release may have stored a larger one.
const LONGEST: i32 = 30;
const MUTATING: &str = MutatingWebhookConfiguration::URL_PATH_SEGMENT;
const VALIDATING: &str = ValidatingWebhookConfiguration::URL_PATH_SEGMENT;

/// A webhook.
#[derive(Debug)]
pub(super) struct Hook {
    pub name: String,
    /// The name of the configuration.
    pub configuration: String,
    /// The URL.
    pub url: String,
    /// The CA bundle as PEM; the system's trust store if it is missing.
    pub ca_bundle: Option<Vec<u8>>,
    pub rules: Vec<RuleWithOperations>,
    /// Whether a write fails if the call of the webhook fails.
    pub fails_closed: bool,
    /// Whether `matchPolicy` is `Exact`: the rules do not match other versions of a kind.
    pub is_exact: bool,
    pub namespace_selector: LabelSelector,
    pub object_selector: LabelSelector,
    /// Whether the webhook may be called for dry runs.
    pub takes_dry_runs: bool,
    pub timeout: Duration,
    /// The AdmissionReview version that the webhook accepts, `v1` or `v1beta1`.
    pub review_version: Option<&'static str>,
    /// Whether the webhook is called again if a later webhook has changed the object.
    pub is_reinvoked: bool,
    /// The calls of this server, with their common limits.
    pub calls: Arc<WebhookCalls>,
}

/// The configured webhooks, in the order of the names of their configurations.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    pub mutating: Vec<Hook>,
    pub validating: Vec<Hook>,
}

/// The parsed configurations, with the state that they were read from.
#[derive(Clone)]
pub(super) struct Known {
    /// The numbers of changes of both kinds of configurations when they were read.
    changes: [Option<u64>; 2],
    hooks: Arc<Hooks>,
    /// The calls of this server, with their common limits.
    calls: Arc<WebhookCalls>,
}

impl Default for Known {
    fn default() -> Self {
        Self { changes: [None; 2], hooks: Arc::default(), calls: Arc::new(ask::calls()) }
    }
}

impl Known {
    /// The parsed webhooks.
    pub(super) fn hooks(self) -> Arc<Hooks> {
        self.hooks
    }

    /// Parses the configurations again if they have changed. Returns whether they have changed.
    pub(super) fn refresh(&mut self, kinds: &RuntimeKinds) -> bool {
        // The numbers are read before the objects, so that a change in between causes another refresh.
        let changes = [MUTATING, VALIDATING].map(|plural| kinds.changes(GROUP, plural));
        if changes == self.changes {
            return false;
        }
        let mutating = objects::<MutatingWebhookConfiguration>(kinds, MUTATING);
        let validating = objects::<ValidatingWebhookConfiguration>(kinds, VALIDATING);
        let calls = &self.calls;
        let mutating = mutating.into_iter().flat_map(|one| {
            let configuration = one.metadata.name.unwrap_or_default();
            let webhooks = one.webhooks.unwrap_or_default().into_iter();
            webhooks.map(move |webhook| Hook::of_mutating(webhook, configuration.clone(), calls))
        });
        let validating = validating.into_iter().flat_map(|one| {
            let configuration = one.metadata.name.unwrap_or_default();
            let webhooks = one.webhooks.unwrap_or_default().into_iter();
            webhooks.map(move |webhook| Hook::of_validating(webhook, configuration.clone(), calls))
        });
        let hooks = Hooks { mutating: mutating.collect(), validating: validating.collect() };
        (self.changes, self.hooks) = (changes, Arc::new(hooks));
        true
    }
}

/// The stored configurations, in the order of their names.
fn objects<K: serde::de::DeserializeOwned>(kinds: &RuntimeKinds, plural: &str) -> Vec<K> {
    let kept = kinds.objects(GROUP, plural);
    let objects = kept.iter().flat_map(|kept| kept.iter());
    // Stored objects match their type.
    objects.filter_map(|one| serde_json::from_value(Value::Object(one.to_tree())).ok()).collect()
}

impl Hook {
    fn of_mutating(
        webhook: MutatingWebhook,
        configuration: String,
        calls: &Arc<WebhookCalls>,
    ) -> Self {
        let is_reinvoked = webhook.reinvocation_policy.as_deref() == Some("IfNeeded");
        let judging = ValidatingWebhook {
            admission_review_versions: webhook.admission_review_versions,
            client_config: webhook.client_config,
            failure_policy: webhook.failure_policy,
            match_conditions: webhook.match_conditions,
            match_policy: webhook.match_policy,
            name: webhook.name,
            namespace_selector: webhook.namespace_selector,
            object_selector: webhook.object_selector,
            rules: webhook.rules,
            side_effects: webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
        };
        Self { is_reinvoked, ..Self::of_validating(judging, configuration, calls) }
    }

    fn of_validating(
        webhook: ValidatingWebhook,
        configuration: String,
        calls: &Arc<WebhookCalls>,
    ) -> Self {
        let seconds = webhook.timeout_seconds.unwrap_or(LONGEST).clamp(1, LONGEST);
        let known = |version: &String| ["v1", "v1beta1"].into_iter().find(|known| known == version);
        let ca_bundle = webhook.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone());
        Self {
            url: url(&webhook.client_config),
            name: webhook.name,
            configuration,
            ca_bundle: ca_bundle.filter(|bundle| !bundle.trim_ascii().is_empty()),
            rules: webhook.rules.unwrap_or_default(),
            fails_closed: webhook.failure_policy.as_deref() != Some("Ignore"),
            is_exact: webhook.match_policy.as_deref() == Some("Exact"),
            namespace_selector: webhook.namespace_selector.unwrap_or_default(),
            object_selector: webhook.object_selector.unwrap_or_default(),
            takes_dry_runs: ["None", "NoneOnDryRun"].contains(&webhook.side_effects.as_str()),
            timeout: Duration::from_secs(u64::from(seconds.unsigned_abs())),
            review_version: webhook.admission_review_versions.iter().find_map(known),
            is_reinvoked: false,
            calls: Arc::clone(calls),
        }
    }
}

/// The URL of a webhook. A Service has its DNS name in the cluster.
fn url(config: &WebhookClientConfig) -> String {
    if let Some(url) = &config.url {
        let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        return if has_path { url.clone() } else { format!("{url}/") };
    }
    let Some(service) = &config.service else { return String::new() };
    let path = service.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let port = service.port.unwrap_or(PORT);
    format!("https://{}.{}.svc:{port}/{path}", service.name, service.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn webhook_urls_are_built_from_the_client_config() {
        for (config, expected) in [
            (json!({"url": "https://h"}), "https://h/"),
            (json!({"url": "https://h:1/a/b"}), "https://h:1/a/b"),
            (json!({"service": {"name": "s", "namespace": "n"}}), "https://s.n.svc:443/"),
            (
                json!({"service": {"name": "s", "namespace": "n", "path": "/p", "port": 8443}}),
                "https://s.n.svc:8443/p",
            ),
        ] {
            assert_eq!(url(&serde_json::from_value(config).unwrap()), expected);
        }
    }
}
