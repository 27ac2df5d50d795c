//! A configured webhook.

use std::sync::Arc;
use std::time::Duration;

use crate::webhook::Calls;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, RuleWithOperations, ValidatingWebhook, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::admission::conditions;
use crate::admission::expressions::Expression;

const PORT: i32 = 443;
/// The largest valid timeout, in seconds. Another release may have stored a larger one.
const LONGEST: i32 = 30;

/// A webhook.
#[derive(Debug)]
pub struct Hook {
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
    pub conditions: Vec<Expression>,
    /// Whether the webhook may be called for dry runs.
    pub takes_dry_runs: bool,
    pub timeout: Duration,
    /// The AdmissionReview version that the webhook accepts, `v1` or `v1beta1`.
    pub review_version: Option<&'static str>,
    /// Whether the webhook is called again if a later webhook has changed the object.
    pub is_reinvoked: bool,
    /// The calls of this server, with their common limits.
    pub calls: Arc<Calls>,
}

/// The configured webhooks of one type, in the order of the names of their configurations.
pub type Hooks = Vec<Arc<Hook>>;

impl Hook {
    pub(super) fn of_mutating(
        webhook: MutatingWebhook,
        configuration: &str,
        calls: &Arc<Calls>,
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

    pub(super) fn of_validating(
        webhook: ValidatingWebhook,
        configuration: &str,
        calls: &Arc<Calls>,
    ) -> Self {
        let seconds = webhook.timeout_seconds.unwrap_or(LONGEST).clamp(1, LONGEST);
        let known = |version: &String| ["v1", "v1beta1"].into_iter().find(|known| known == version);
        let ca_bundle = webhook.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone());
        Self {
            url: url(&webhook.client_config),
            name: webhook.name,
            configuration: configuration.to_owned(),
            ca_bundle: ca_bundle.filter(|bundle| !bundle.trim_ascii().is_empty()),
            rules: webhook.rules.unwrap_or_default(),
            fails_closed: webhook.failure_policy.as_deref() != Some("Ignore"),
            is_exact: webhook.match_policy.as_deref() == Some("Exact"),
            namespace_selector: webhook.namespace_selector.unwrap_or_default(),
            object_selector: webhook.object_selector.unwrap_or_default(),
            conditions: conditions::compile(&webhook.match_conditions.unwrap_or_default()),
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
