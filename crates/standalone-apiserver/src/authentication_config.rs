//! AuthenticationConfiguration: tokens of OpenID Connect issuers, and the paths of anonymous requests.
//!
//! The file is that of kube-apiserver's `--authentication-config`, and its errors have the same messages. Three features
//! are rejected: egress selectors, signatures with ES512, and groups at another endpoint (distributed claims).

mod anonymous;
mod claims;
mod document;
mod expression;
mod issuer;
mod reload;
mod shape;
mod signature;
mod validation;

use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use aggregated_apiserver::FieldError;
use aggregated_apiserver::auth::{AuthError, Authenticated, Authenticators, TokenAuthenticator};
use aggregated_apiserver::webhooks::WebhookCalls;
use futures::future::BoxFuture;

use crate::controllers::definitions::Now;
use crate::service_account_tokens::ISSUER;
use anonymous::AnonymousPaths;
use claims::ClaimsMapper;
use document::Anonymous;
use issuer::Issuer;

/// The largest size of a file, in bytes.
const FILE_LIMIT: u64 = 4 << 20;
/// The largest number of concurrent requests to issuers.
const CALLS: usize = 16;
/// The largest number of concurrent requests to one server.
const CALLS_OF_ONE: usize = 4;
/// The largest number of large documents that are read concurrently.
const ANSWERS_READ: usize = 4;

/// A valid AuthenticationConfiguration.
#[derive(Debug)]
pub(crate) struct AuthenticationConfig {
    issuers: Vec<(document::Issuer, ClaimsMapper)>,
    anonymous: Option<Anonymous>,
}

/// Reads the document in a file.
///
/// # Errors
/// The reason, if the file cannot be read or is too large.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > FILE_LIMIT {
        return Err(format!("must not be larger than {FILE_LIMIT} bytes"));
    }
    fs::read_to_string(file).map_err(|error| error.to_string())
}

impl AuthenticationConfig {
    /// Parses and validates a document.
    ///
    /// # Errors
    /// All errors of the document, with kube-apiserver's messages.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let document = document::decode(text)?;
        let issuers = validation::compile(&document).map_err(|errors| {
            format!("invalid authentication configuration: {}", joined(&errors))
        })?;
        for (issuer, _) in &issuers {
            if issuer.url == ISSUER {
                let why = format!("URL must not overlap with disallowed issuers: [{ISSUER}]");
                return Err(
                    FieldError::invalid("issuer.url", format!("{ISSUER:?}"), &why).to_string()
                );
            }
            let selector = &issuer.egress_selector_type;
            if !selector.is_empty() {
                return Err(format!(
                    "oidc: egress lookup required with egress selector type {selector:?}"
                ));
            }
        }
        Ok(Self { issuers, anonymous: document.anonymous })
    }

    /// Whether requests without credentials are accepted; `None` if the document does not configure them.
    pub(crate) fn allows_anonymous(&self) -> Option<bool> {
        let anonymous = self.anonymous.as_ref()?;
        Some(anonymous.enabled && anonymous.conditions.is_empty())
    }

    /// Adds the authenticators of the document to a chain, and starts to fetch the keys of issuers.
    pub(crate) fn add_to(
        self,
        chain: Authenticators,
        now: &Now,
    ) -> (Authenticators, Arc<JwtAuthenticators>) {
        let jwt = Arc::new(JwtAuthenticators {
            issuers: RwLock::default(),
            anonymous: self.anonymous.clone(),
            calls: Arc::new(WebhookCalls::new(CALLS, CALLS_OF_ONE, ANSWERS_READ)),
            now: Arc::clone(now),
        });
        let paths = self.anonymous.clone().and_then(AnonymousPaths::new);
        jwt.set_issuers(jwt.start(self));
        let chain = chain.with_tokens(SharedJwtAuthenticators(Arc::clone(&jwt)));
        let chain = paths.into_iter().fold(chain, Authenticators::with);
        (chain, jwt)
    }
}

/// Joins errors same as Go: several errors are in brackets, and equal ones are not repeated.
fn joined(errors: &[FieldError]) -> String {
    let mut messages: Vec<String> = Vec::new();
    for message in errors.iter().map(ToString::to_string) {
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match messages.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// The authenticators of the tokens of all issuers. The issuers change when the file changes.
pub(crate) struct JwtAuthenticators {
    issuers: RwLock<Arc<Vec<Issuer>>>,
    /// The configuration at the start, which cannot change while the server runs.
    anonymous: Option<Anonymous>,
    calls: Arc<WebhookCalls>,
    now: Now,
}

impl JwtAuthenticators {
    /// Starts the issuers of a configuration.
    fn start(&self, config: AuthenticationConfig) -> Vec<Issuer> {
        let start = |(issuer, mapper)| Issuer::start(issuer, mapper, &self.calls);
        config.issuers.into_iter().map(start).collect()
    }

    fn issuers(&self) -> Arc<Vec<Issuer>> {
        Arc::clone(&self.issuers.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_issuers(&self, issuers: Vec<Issuer>) {
        *self.issuers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(issuers);
    }

    async fn authenticate(&self, token: &str) -> Result<Option<Authenticated>, AuthError> {
        let Some(name) = signature::untrusted_issuer(token) else { return Ok(None) };
        let issuers = self.issuers();
        let Some(issuer) = issuers.iter().find(|issuer| issuer.url() == name) else {
            return Ok(None);
        };
        let user = issuer.authenticate(token, (self.now)().as_second()).await;
        user.map(|user| Some(Authenticated::new(user)))
            .map_err(|why| AuthError::new(format!("issuer {name:?}: {why}")))
    }
}

/// The authenticator of a chain, which shares the issuers with their reload.
struct SharedJwtAuthenticators(Arc<JwtAuthenticators>);

impl TokenAuthenticator for SharedJwtAuthenticators {
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        Box::pin(self.0.authenticate(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(fields: &str) -> String {
        let head =
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";
        AuthenticationConfig::parse(&format!("{head}{fields}")).err().unwrap_or_default()
    }

    const JWT: &str = "jwt:\n- issuer: {url: https://a.example.com, audiences: [a]}\n";

    #[test]
    fn invalid_documents_have_the_messages_of_kube_apiserver() {
        for (text, expected) in [
            (
                "jwt: 5",
                "json: cannot unmarshal number into Go struct field AuthenticationConfiguration.jwt of type []v1beta1.JWTAuthenticator",
            ),
            (
                "foo: 1\nanonymous: {b: 1}",
                "strict decoding error: unknown field \"anonymous.b\", unknown field \"foo\"",
            ),
            (
                "jwt: []\njwt: []",
                "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"jwt\" already set in map",
            ),
            (
                "anonymous: {enabled: false, conditions: [{path: /a}]}",
                "invalid authentication configuration: anonymous.conditions: Invalid value: [{\"Path\":\"/a\"}]: enabled should be set to true when conditions are defined",
            ),
            (
                "jwt: [{issuer: {url: 'http://a?b', audiences: [a, a]}, claimMappings: {username: {claim: a}}}]",
                "invalid authentication configuration: [jwt[0].issuer.url: Invalid value: \"http://a?b\": URL scheme must be https, jwt[0].issuer.url: Invalid value: \"http://a?b\": URL must not contain a query, jwt[0].issuer.audiences[1]: Duplicate value: \"a\", jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences, jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing]",
            ),
        ] {
            assert_eq!(error(text), expected);
        }
        assert_eq!(AuthenticationConfig::parse("").unwrap_err(), "empty config data");
    }

    #[test]
    fn unsupported_features_are_rejected() {
        let egress = JWT.replace("[a]}", "[a], egressSelectorType: cluster}");
        let mapping = "  claimMappings: {username: {claim: sub, prefix: ''}}";
        assert_eq!(
            error(&format!("{egress}{mapping}")),
            "oidc: egress lookup required with egress selector type \"cluster\""
        );
        let own = JWT.replace("https://a.example.com", ISSUER);
        assert!(error(&format!("{own}{mapping}")).contains("URL must not overlap"));
        assert_eq!(error(&format!("{JWT}{mapping}")), "");
    }

    #[test]
    fn the_example_of_the_guide_is_valid() {
        let guide = include_str!("../../../docs/guides/openid-connect.md");
        let (_, rest) = guide.split_once("```yaml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        assert_eq!(AuthenticationConfig::parse(example).unwrap().issuers.len(), 1);
    }

    #[test]
    fn expressions_use_fields_of_the_claims() {
        let mapping = |expression: &str| {
            format!("{JWT}  claimMappings: {{username: {{expression: '{expression}'}}}}\n")
        };
        for whole in
            ["string(size(claims))", "claims.map(name, name)[0]", "\"a\" in claims ? \"a\" : \"b\""]
        {
            let why = error(&mapping(whole));
            assert!(why.ends_with("claims must be used with a field, such as claims.sub"), "{why}");
        }
        for part in [
            "claims[\"a\"]",
            "claims.?a.orValue(claims.b)",
            "has(claims.a) ? claims[?claims.a].orValue(\"\") : \"\"",
        ] {
            assert_eq!(error(&mapping(part)), "", "{part}");
        }
    }

    #[test]
    fn an_expression_with_an_email_needs_its_verification() {
        let mapping = |more: &str| {
            format!("{JWT}  claimMappings: {{username: {{expression: claims.email}}{more}}}\n")
        };
        assert!(error(&mapping("")).contains("claims.email_verified must be used in"));
        let extra = ", extra: [{key: a.b/c, valueExpression: 'string(claims.?email_verified.orValue(true))'}]";
        assert_eq!(error(&mapping(extra)), "");
        let rule = "  claimValidationRules: [{expression: 'has(claims.email_verified)'}]\n";
        assert_eq!(error(&format!("{}{rule}", mapping(""))), "");
    }
}
