//! The chain of authenticators.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

use super::authenticator::{Authenticator, ClientCertificate, OfTokens, TokenAuthenticator};
use super::call::caught;
use super::{AuthError, Authenticated, AuthenticationRequest};

/// The maximum length of a token, in bytes. Service account tokens have one or two kilobytes.
pub(crate) const TOKEN_LIMIT: usize = 16 << 10;

/// A chain of authenticators. They are called in the order in which they were added, until one returns a user or an
/// error. The default is the chain of the built-in authenticators.
///
/// ```
/// # use aggregated_apiserver::auth::{Authenticator, Authenticators};
/// # fn chain(own: impl Authenticator) -> Authenticators {
/// // Certificates take precedence over the own authenticator, and no token is sent to the cluster.
/// Authenticators::new().front_proxy().client_certificate().with(own)
/// # }
/// ```
#[derive(Clone)]
pub struct Authenticators {
    entries: Arc<Vec<AuthenticatorEntry>>,
    credential_headers: Arc<Vec<HeaderName>>,
}

/// An authenticator of a chain.
#[derive(Clone)]
pub(crate) enum AuthenticatorEntry {
    FrontProxy,
    ClientCertificate,
    TokenReview,
    Own(Arc<dyn Authenticator>),
}

impl Default for Authenticators {
    fn default() -> Self {
        Self::new().built_in()
    }
}

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authenticators").field(&self.entries.len()).finish()
    }
}

impl Authenticators {
    /// An empty chain, which authenticates no client.
    pub fn new() -> Self {
        Self { entries: Arc::default(), credential_headers: Arc::default() }
    }

    /// Adds the built-in authenticators: the front proxy, client certificates, and reviews of tokens.
    #[must_use]
    pub fn built_in(self) -> Self {
        self.front_proxy().client_certificate().token_review()
    }

    /// Adds the authenticator of requests that kube-apiserver proxies (`--requestheader-client-ca-file`). Without it,
    /// an aggregated server rejects the requests of all users of the cluster.
    #[must_use]
    pub fn front_proxy(self) -> Self {
        self.and(AuthenticatorEntry::FrontProxy)
    }

    /// Adds the authenticator of client certificates (`--client-ca-file`).
    #[must_use]
    pub fn client_certificate(self) -> Self {
        self.and(AuthenticatorEntry::ClientCertificate)
    }

    /// Adds the authenticator that sends bearer tokens to the cluster, in TokenReviews. In a standalone server it knows
    /// the tokens of ServiceAccounts and those of `--token-auth-file`.
    #[must_use]
    pub fn token_review(self) -> Self {
        self.and(AuthenticatorEntry::TokenReview)
    }

    /// Adds an authenticator.
    #[must_use]
    pub fn with(mut self, authenticator: impl Authenticator) -> Self {
        let headers = authenticator.credential_headers();
        Arc::make_mut(&mut self.credential_headers).extend(headers);
        self.and(AuthenticatorEntry::Own(Arc::new(authenticator)))
    }

    /// Adds an authenticator of bearer tokens.
    #[must_use]
    pub fn with_tokens(self, authenticator: impl TokenAuthenticator) -> Self {
        self.with(OfTokens(authenticator))
    }

    fn and(mut self, entry: AuthenticatorEntry) -> Self {
        Arc::make_mut(&mut self.entries).push(entry);
        self
    }

    /// Calls the own authenticators of the chain for a token without a request, for example the token of a TokenReview.
    /// `None` means that none of them has an opinion.
    ///
    /// # Errors
    /// If an authenticator rejects the token, or the token is longer than 16 KiB.
    pub async fn authenticate_token(
        &self,
        token: &str,
    ) -> Result<Option<Authenticated>, AuthError> {
        if token.len() > TOKEN_LIMIT {
            return Err(AuthError::new("the token is too long"));
        }
        let (mut head, ()) = Request::new(()).into_parts();
        if let Ok(value) = HeaderValue::from_str(&format!("Bearer {token}")) {
            head.headers.insert(AUTHORIZATION, value);
        }
        for entry in self.entries.iter() {
            let AuthenticatorEntry::Own(own) = entry else { continue };
            let found = call(&**own, &head, None, (None, Some(token))).await?;
            if let Some(Authenticated { user, audiences }) = found {
                return Ok(Some(Authenticated { user: user.authenticated(), audiences }));
            }
        }
        Ok(None)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AuthenticatorEntry> {
        self.entries.iter()
    }

    /// The headers with credentials that own authenticators read.
    pub(crate) fn credential_headers(&self) -> &[HeaderName] {
        &self.credential_headers
    }
}

impl dyn Authenticator {
    /// Calls the authenticator for a request.
    ///
    /// # Errors
    /// The error of the authenticator, with its name; an error if it panics or does not finish in time.
    pub(crate) async fn call(
        &self,
        head: &Parts,
        address: Option<IpAddr>,
        credentials: (Option<&ClientCertificate>, Option<&str>),
    ) -> Result<Option<Authenticated>, AuthError> {
        call(self, head, address, credentials).await
    }
}

async fn call(
    authenticator: &dyn Authenticator,
    head: &Parts,
    address: Option<IpAddr>,
    (certificate, token): (Option<&ClientCertificate>, Option<&str>),
) -> Result<Option<Authenticated>, AuthError> {
    let request = AuthenticationRequest { head, address, certificate, token };
    let called = caught(|| authenticator.authenticate(&request)).await;
    called.map_err(|why| AuthError::new(format!("{}: {why}", authenticator.name())))
}
