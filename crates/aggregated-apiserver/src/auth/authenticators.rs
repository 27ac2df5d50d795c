//! The chain of authenticators.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use super::authenticator::{Authenticator, ClientCertificate, TokenAuthenticator};
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
/// Authenticators::new().front_proxy().client_certificate().with(own).token_review()
/// # }
/// ```
///
/// This is the recommended order. kube-apiserver has authenticated the requests that it proxies, but forwards other
/// headers of the client: an authenticator before [`front_proxy`](Self::front_proxy) can change their user. An
/// authenticator behind [`token_review`](Self::token_review) receives a token only after the cluster has received it,
/// and never while the cluster does not respond.
#[derive(Clone)]
pub struct Authenticators {
    entries: Arc<Vec<AuthenticatorEntry>>,
    credential_headers: Arc<Vec<HeaderName>>,
    audiences: Arc<Vec<String>>,
}

/// An authenticator of a chain.
#[derive(Clone)]
pub(crate) enum AuthenticatorEntry {
    FrontProxy,
    ClientCertificate,
    TokenReview,
    Own(Arc<dyn Authenticator>),
    Tokens(OwnTokens),
}

/// An authenticator of bearer tokens.
#[derive(Clone)]
pub(crate) struct OwnTokens {
    name: &'static str,
    authenticator: Arc<dyn TokenAuthenticator>,
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
        let (entries, credential_headers) = (Arc::default(), Arc::default());
        Self { entries, credential_headers, audiences: Arc::default() }
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
    pub fn with_tokens<T: TokenAuthenticator>(self, authenticator: T) -> Self {
        let (name, authenticator) = (std::any::type_name::<T>(), Arc::new(authenticator));
        self.and(AuthenticatorEntry::Tokens(OwnTokens { name, authenticator }))
    }

    /// Adds an audience of the server. If an own authenticator returns [audiences](Authenticated::audiences) and none of
    /// them is an audience of the server, the request is rejected with 401. A server without audiences, which is the
    /// default behind kube-apiserver, accepts all audiences: its authenticators must check them. A standalone server has
    /// the audience `https://kubernetes.default.svc`.
    ///
    /// ```
    /// # use aggregated_apiserver::auth::{Authenticators, TokenAuthenticator};
    /// # fn chain(own: impl TokenAuthenticator) -> Authenticators {
    /// Authenticators::new().front_proxy().with_tokens(own).with_audience("foo-server")
    /// # }
    /// ```
    #[must_use]
    pub fn with_audience(mut self, audience: impl Into<String>) -> Self {
        let audience = audience.into();
        if !self.audiences.contains(&audience) {
            Arc::make_mut(&mut self.audiences).push(audience);
        }
        self
    }

    /// The audiences of the server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    fn and(mut self, entry: AuthenticatorEntry) -> Self {
        Arc::make_mut(&mut self.entries).push(entry);
        self
    }

    /// Calls the authenticators of bearer tokens for a token without a request, for example the token of a TokenReview.
    /// `None` means that none of them has an opinion. The caller must compare the audiences.
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
        for entry in self.entries.iter() {
            let AuthenticatorEntry::Tokens(own) = entry else { continue };
            if let Some(Authenticated { user, audiences }) = own.call(token).await? {
                return Ok(Some(Authenticated { user: user.authenticated(), audiences }));
            }
        }
        Ok(None)
    }

    /// Whether the credentials are valid for the server, same as in kube-apiserver.
    pub(crate) fn accept(&self, authenticated: &Authenticated) -> bool {
        let (own, given) = (self.audiences(), &authenticated.audiences);
        own.is_empty() || given.is_empty() || given.iter().any(|one| own.contains(one))
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
        (certificate, token): (Option<&ClientCertificate>, Option<&str>),
    ) -> Result<Option<Authenticated>, AuthError> {
        let request = AuthenticationRequest { head, address, certificate, token };
        let called = caught(|| self.authenticate(&request)).await;
        called.map_err(|error| error.of(self.name()))
    }
}

impl OwnTokens {
    /// Calls the authenticator for a token.
    ///
    /// # Errors
    /// Same as [`Authenticator::call`].
    pub(crate) async fn call(&self, token: &str) -> Result<Option<Authenticated>, AuthError> {
        let called = caught(|| self.authenticator.authenticate_token(token)).await;
        called.map_err(|error| error.of(self.name))
    }
}
