//! Conversion between versions of a kind by a webhook: the configuration, and the validation of responses. This module
//! does not call the webhook.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, WebhookClientConfig,
};
use serde_json::Value;

use super::Kind;
use super::conversion::Converter;
use super::erased_conversion::{Changeable, check_same, restore_metadata};
use super::erased_validation::whole_floats_to_integers;
use super::questions::{self, Conversion, Question};
use crate::object::Tree;
use crate::quota;

/// The supported versions of ConversionReviews.
pub(super) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The default port of a webhook's Service, same as in kube-apiserver.
const PORT: i32 = 443;

/// Calls the conversion webhooks of a server.
pub trait CallWebhooks: fmt::Debug + Send + Sync {
    /// Answers the first of these questions, at least one. All questions have the same webhook and version. The error
    /// is the reason why the webhook was not called for this user.
    fn call(
        self: Arc<Self>,
        questions: Arc<[Question]>,
        user: String,
    ) -> BoxFuture<'static, Result<Arc<[Conversion]>, String>>;
}

/// A webhook that converts the objects of a kind.
#[derive(Clone, Debug)]
pub struct WebhookConversion {
    /// The definition that contains the webhook, such as `foos.example.com`.
    pub definition: String,
    /// The URL: `https://host:port/path`.
    pub url: String,
    /// The CA certificates against which the webhook is verified, as PEM; `None` for the CAs of the system.
    pub ca_bundle: Option<Vec<u8>>,
    /// The version of ConversionReviews that the webhook accepts.
    pub review_version: &'static str,
    /// The client that calls the webhook; `None` for a kind that no server serves.
    pub calls: Option<Arc<dyn CallWebhooks>>,
}

impl WebhookConversion {
    /// The webhook of a definition; `None` if it has none, or if its configuration is invalid.
    pub(super) fn of(
        definition: &str,
        conversion: Option<&CustomResourceConversion>,
    ) -> Option<Arc<Self>> {
        let conversion = conversion.filter(|conversion| conversion.strategy == "Webhook")?;
        let webhook = conversion.webhook.as_ref()?;
        let config = webhook.client_config.as_ref()?;
        let review_version = webhook
            .conversion_review_versions
            .iter()
            .find_map(|said| REVIEW_VERSIONS.iter().find(|known| *known == said).copied())?;
        let ca_bundle = config.ca_bundle.as_ref().map(|bundle| bundle.0.clone());
        Some(Arc::new(Self {
            definition: definition.to_owned(),
            url: url(config)?,
            ca_bundle: ca_bundle.filter(|bundle| !bundle.trim_ascii().is_empty()),
            review_version,
            calls: None,
        }))
    }

    /// Converts an object to another version, such as `example.com/v1`, if the webhook has been called for it.
    ///
    /// # Errors
    /// The reason why the object cannot be converted, or that the webhook must be called first.
    pub(super) fn convert(self: &Arc<Self>, mut tree: Tree, to: String) -> Result<Tree, String> {
        whole_floats_to_integers(&mut tree);
        questions::answer(Question { webhook: Arc::clone(self), object: tree, to })
    }

    /// The error if the webhook cannot be called for an object, or if its response is unusable.
    pub fn failed(&self, object: &Tree, why: &str) -> String {
        format!("conversion webhook for {} failed: {why}", type_of(object))
    }
}

impl Kind {
    /// Sets the client that calls the webhook.
    #[must_use]
    pub fn with_webhook_calls(mut self, calls: Arc<dyn CallWebhooks>) -> Self {
        if let Some(Converter::Webhook(webhook)) = &mut self.conversion {
            Arc::make_mut(webhook).calls = Some(calls);
        }
        self
    }
}

/// The URL of a webhook. The host of a Service is its DNS name in the cluster.
fn url(config: &WebhookClientConfig) -> Option<String> {
    if let Some(url) = &config.url {
        return Some(url.clone());
    }
    let service = config.service.as_ref()?;
    let path = service.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let port = service.port.unwrap_or(PORT);
    Some(format!("https://{}.{}.svc:{port}/{path}", service.name, service.namespace))
}

/// The type of an object for messages: `example.com/v1, Kind=Foo`.
fn type_of(object: &Tree) -> String {
    format!("{}, Kind={}", text(object, "apiVersion"), text(object, "kind"))
}

fn text<'a>(object: &'a Tree, member: &str) -> &'a str {
    object.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Validates an object that a webhook has returned. Errors have kube-apiserver's messages.
///
/// # Errors
/// If the result is another object or is invalid.
pub fn checked(question: &Question, converted: Value) -> Result<Tree, String> {
    let object = &question.object;
    let invalid = |what: &str, why: String| {
        format!("conversion webhook for {} returned invalid {what}: {why}", type_of(object))
    };
    let Value::Object(mut converted) = converted else {
        return Err(invalid("object", "it is no object".to_owned()));
    };
    let received = text(&converted, "apiVersion");
    if received != question.to {
        let why = format!("invalid groupVersion (expected {}, received {received})", question.to);
        return Err(invalid("object at index 0", why));
    }
    let (expected, received) = (text(object, "kind"), text(&converted, "kind"));
    if expected != received {
        let why = format!("invalid kind (expected {expected}, received {received})");
        return Err(invalid("object at index 0", why));
    }
    if quota::of_tree(&converted) > quota::TREE_LIMIT {
        let limit = quota::TREE_LIMIT;
        return Err(invalid("object", format!("it takes more than {limit} bytes of memory")));
    }
    check_same(object, &converted).map_err(|why| invalid("object", why))?;
    restore_metadata(object.clone(), &mut converted, Changeable::LabelsAndAnnotations)
        .map_err(|why| invalid("metadata", why))?;
    Ok(converted)
}
