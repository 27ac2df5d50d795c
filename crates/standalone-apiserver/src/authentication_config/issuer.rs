//! The issuer of tokens: its discovery document and its keys, which are fetched over HTTPS.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aggregated_apiserver::webhooks::{Webhook, WebhookCallError, WebhookCalls};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::claims::{Claims, ClaimsMapper};
use super::document;
use super::signature::{ParsedToken, PublicKey, read_keys};

/// The interval between attempts to read the discovery document, same as in kube-apiserver.
const RETRY: Duration = Duration::from_secs(10);
/// The shortest interval between requests for keys.
const REFRESH: Duration = Duration::from_secs(5);
/// The longest time of a request to an issuer. It is shorter than the deadline of an authentication.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The largest size of a document, in bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// A token is accepted this number of seconds before its `nbf`, same as in kube-apiserver.
const LEEWAY: i64 = 60;

/// An issuer, with the mapper of its claims. Dropping it ends its requests.
pub(super) struct Issuer {
    provider: Arc<Provider>,
    audiences: Vec<String>,
    mapper: ClaimsMapper,
    initialization: AbortHandle,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.initialization.abort();
    }
}

/// The endpoints and the keys of an issuer.
struct Provider {
    url: String,
    discovery_url: String,
    certificate_authority: Option<String>,
    calls: Arc<WebhookCalls>,
    keys: RwLock<Arc<Keys>>,
    /// The time of the last request for keys.
    requested: Mutex<Option<Instant>>,
}

/// The keys that were fetched last.
#[derive(Default)]
struct Keys {
    /// The URL of the key set, once the discovery document is known.
    url: Option<String>,
    keys: Vec<PublicKey>,
}

impl Issuer {
    /// Creates an issuer, and starts to fetch its discovery document and its keys.
    pub(super) fn start(
        configured: document::Issuer,
        mapper: ClaimsMapper,
        calls: &Arc<WebhookCalls>,
    ) -> Self {
        let url = configured.url;
        let discovery_url = match configured.discovery_url.is_empty() {
            false => configured.discovery_url,
            true => {
                let url = url.strip_suffix('/').unwrap_or(&url);
                format!("{url}/.well-known/openid-configuration")
            }
        };
        let authority = configured.certificate_authority;
        let provider = Arc::new(Provider {
            url,
            discovery_url,
            certificate_authority: Some(authority).filter(|authority| !authority.is_empty()),
            calls: Arc::clone(calls),
            keys: RwLock::default(),
            requested: Mutex::default(),
        });
        let initialization = tokio::spawn(Arc::clone(&provider).initialize()).abort_handle();
        Self { provider, audiences: configured.audiences, mapper, initialization }
    }

    /// The URL of the issuer.
    pub(super) fn url(&self) -> &str {
        &self.provider.url
    }

    /// Whether the discovery document is known.
    pub(super) fn is_initialized(&self) -> bool {
        self.provider.keys().url.is_some()
    }

    /// Verifies a token, and returns its user. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The reason, if the token is invalid.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        now: i64,
    ) -> Result<aggregated_apiserver::User, String> {
        if !self.is_initialized() {
            return Err("authenticator not initialized".to_owned());
        }
        let claims = self.verify(token, now).await.map_err(|why| format!("verify token: {why}"))?;
        self.mapper.user_of(claims)
    }

    async fn verify(&self, token: &str, now: i64) -> Result<Claims, String> {
        let parsed = ParsedToken::new(token)?;
        let known = self.provider.keys();
        if !parsed.is_signed_by(&known.keys) {
            let keys = self.provider.newer_keys(&known).await?;
            if !keys.is_some_and(|keys| parsed.is_signed_by(&keys.keys)) {
                return Err("failed to verify id token signature".to_owned());
            }
        }
        let claims = parsed.into_claims();
        check_claims(&claims, &self.audiences, now)?;
        Ok(claims)
    }
}

/// Checks the registered claims of a token.
fn check_claims(claims: &Claims, audiences: &[String], now: i64) -> Result<(), String> {
    for name in ["sub", "nonce", "at_hash"] {
        if claims.get(name).is_some_and(|claim| !claim.is_string() && !claim.is_null()) {
            return Err(format!("failed to unmarshal claims: {name} is not a string"));
        }
    }
    let audience = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        Some(Value::String(one)) => Some(vec![one.as_str()]),
        None | Some(Value::Null) => Some(Vec::new()),
        Some(_) => None,
    };
    let audience = audience.ok_or("failed to unmarshal claims: aud is not a string or a list")?;
    if !audiences.iter().any(|known| audience.contains(&known.as_str())) {
        return Err(format!("expected audience in {audiences:?} got {audience:?}"));
    }
    let time = |name: &str| {
        let seconds = claims.get(name).map(seconds).transpose();
        seconds.map_err(|()| format!("failed to unmarshal claims: {name} is not a number"))
    };
    time("iat")?;
    match time("exp")? {
        Some(expiry) if expiry > now => {}
        expiry => return Err(format!("token is expired (Token Expiry: {})", expiry.unwrap_or(0))),
    }
    let start = if claims.get("nbf") == Some(&Value::Null) { None } else { time("nbf")? };
    match start {
        Some(start) if now.saturating_add(LEEWAY) < start => {
            Err(format!("current time {now} before the nbf (not before) time: {start}"))
        }
        _ => Ok(()),
    }
}

/// A time in a claim, in seconds since 1970. A string may contain the number.
fn seconds(claim: &Value) -> Result<i64, ()> {
    let number = match claim {
        Value::Number(number) => number.clone(),
        Value::String(text) => text.parse().map_err(|_| ())?,
        _ => return Err(()),
    };
    number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).ok_or(())
}

impl Provider {
    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_keys(&self, keys: Keys) -> Arc<Keys> {
        let keys = Arc::new(keys);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&keys);
        keys
    }

    /// Fetches the discovery document, until this succeeds, and then the keys.
    async fn initialize(self: Arc<Self>) {
        let url = loop {
            match self.discover().await {
                Ok(url) => break url,
                Err(error) => {
                    tracing::warn!(issuer = self.url, %error, "cannot discover a token issuer");
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        let mut requested = self.requested.lock().await;
        let keys = self.fetch_keys(&url).await;
        // A failed request is repeated for the first token.
        *requested = keys.is_ok().then(Instant::now);
        let keys = keys.unwrap_or_else(|error| {
            tracing::warn!(issuer = self.url, %error, "cannot fetch the keys of a token issuer");
            Vec::new()
        });
        self.set_keys(Keys { url: Some(url), keys });
        tracing::info!(issuer = self.url, "initialized the authenticator of a token issuer");
    }

    /// Returns the URL of the keys.
    async fn discover(&self) -> Result<String, String> {
        let document = self.fetch(&self.discovery_url).await?;
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| format!("failed to decode provider discovery object: {error}"))?;
        let text = |name: &str| document[name].as_str().unwrap_or_default();
        let issuer = text("issuer");
        if issuer != self.url {
            return Err(format!(
                "issuer did not match the issuer returned by provider, expected {:?} got {issuer:?}",
                self.url
            ));
        }
        match text("jwks_uri") {
            "" => Err("provider did not return JWKS URL".to_owned()),
            url if url.starts_with("https://") => Ok(url.to_owned()),
            url => Err(format!("the JWKS URL {url:?} must have the scheme https")),
        }
    }

    /// Fetches the keys, unless newer keys than `known` are there already, or the last request was a few seconds ago.
    /// The request continues if the caller goes away. The result is `None` if the keys are not newer.
    ///
    /// # Errors
    /// The reason, if the keys cannot be fetched.
    async fn newer_keys(self: &Arc<Self>, known: &Arc<Keys>) -> Result<Option<Arc<Keys>>, String> {
        let (provider, known) = (Arc::clone(self), Arc::clone(known));
        let fetched = tokio::spawn(async move {
            let mut requested = provider.requested.lock().await;
            let present = provider.keys();
            if !Arc::ptr_eq(&present, &known) {
                return Ok(Some(present));
            }
            let Some(url) = &known.url else { return Ok(None) };
            if requested.is_some_and(|requested| requested.elapsed() < REFRESH) {
                return Ok(None);
            }
            *requested = Some(Instant::now());
            let keys = provider.fetch_keys(url).await?;
            Ok(Some(provider.set_keys(Keys { url: known.url.clone(), keys })))
        });
        fetched.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn fetch_keys(&self, url: &str) -> Result<Vec<PublicKey>, String> {
        let keys = self.fetch(url).await.and_then(|document| read_keys(&document));
        keys.map_err(|why| format!("fetching keys: {why}"))
    }

    async fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        let ca_bundle = self.certificate_authority.as_ref().map(String::as_bytes);
        let webhook = Webhook { url, ca_bundle };
        let address = webhook.address();
        let turn = self.calls.turn(&address, &self.url, TIMEOUT).await;
        let turn = turn.map_err(|busy| busy.to_string())?;
        match self.calls.get(webhook, &turn).await {
            Ok(document) if document.len() > SIZE_LIMIT => {
                Err(format!("{url}: the document is larger than {SIZE_LIMIT} bytes"))
            }
            Ok(document) => Ok(document),
            Err(WebhookCallError::Failed(why)) => Err(why),
            Err(WebhookCallError::Busy(why)) => Err(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn registered_claims_are_checked() {
        let check = |claims: Value| {
            let Value::Object(mut claims) = claims else { panic!("{claims}") };
            claims.entry("aud").or_insert_with(|| json!("a"));
            check_claims(&claims, &["a".to_owned(), "b".to_owned()], 1_000)
        };
        for valid in [
            json!({"exp": 1_001}),
            json!({"exp": 1_001.5}),
            json!({"exp": "1001"}),
            json!({"exp": 1_001, "nbf": 1_060, "aud": ["x", "b"]}),
            json!({"exp": 1_001, "nbf": null, "sub": null}),
        ] {
            assert_eq!(check(valid.clone()), Ok(()), "{valid}");
        }
        for (invalid, expected) in [
            (json!({}), "token is expired"),
            (json!({"exp": 1_000}), "token is expired"),
            (json!({"exp": null}), "failed to unmarshal claims: exp"),
            (json!({"exp": true}), "failed to unmarshal claims: exp"),
            (json!({"exp": 1_001, "nbf": 1_061}), "current time 1000 before"),
            (json!({"exp": 1_001, "iat": "x"}), "failed to unmarshal claims: iat"),
            (json!({"exp": 1_001, "sub": 5}), "failed to unmarshal claims: sub"),
            (json!({"exp": 1_001, "aud": "c"}), "expected audience"),
            (json!({"exp": 1_001, "aud": [5]}), "failed to unmarshal claims: aud"),
        ] {
            let why = check(invalid.clone()).unwrap_err();
            assert!(why.starts_with(expected), "{invalid}: {why}");
        }
    }
}
