//! The trait [`Authenticator`], and the request that it receives.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri};

use super::AuthError;
use crate::user::User;

/// An authenticator: code that finds the user of a request.
///
/// Each call has a deadline of ten seconds. A call that panics or exceeds its deadline is an error. Results are not
/// cached. Requests of the server to itself are not authenticated.
///
/// The module [`auth`](super) has an example.
pub trait Authenticator: Send + Sync + 'static {
    /// The name of the authenticator in log lines; the name of its type by default.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// The headers with credentials that the authenticator reads, in addition to `Authorization`. The server removes
    /// them from requests before it passes the requests to handlers of subresources. The function is called once.
    fn credential_headers(&self) -> Vec<HeaderName> {
        Vec::new()
    }

    /// Returns the user of a request. `None` means no opinion: the next authenticator of the chain is called. If no
    /// authenticator has returned a user, a request with a bearer token or a client certificate is rejected, and other
    /// requests are anonymous. The server adds the group `system:authenticated` to the user. Members of the group
    /// `system:masters` are allowed everything.
    ///
    /// # Errors
    /// If the credentials are invalid or cannot be checked. The request is rejected with 401, and no other
    /// authenticator is called. The error is logged, and clients do not receive it.
    fn authenticate<'a>(
        &'a self,
        request: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>>;
}

/// An authenticator of bearer tokens. [`Authenticators::with_tokens`](super::Authenticators::with_tokens) adds it to a
/// chain. It has no opinion about requests without a token.
///
/// ```
/// use std::collections::HashMap;
///
/// use aggregated_apiserver::auth::{AuthError, Authenticated, Authenticators, TokenAuthenticator};
/// use aggregated_apiserver::{ApiServer, Kinds, User};
/// use futures::future::{BoxFuture, ready};
/// use sha2::{Digest, Sha256};
///
/// /// The names of users, by the digest of their tokens.
/// struct Tokens(HashMap<[u8; 32], String>);
///
/// impl TokenAuthenticator for Tokens {
///     fn authenticate_token<'a>(
///         &'a self,
///         token: &'a str,
///     ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
///         let digest: [u8; 32] = Sha256::digest(token).into();
///         let name = self.0.get(&digest);
///         let user = name.map(|name| User { name: name.clone(), ..User::default() });
///         Box::pin(ready(Ok(user.map(Authenticated::new))))
///     }
/// }
///
/// let tokens = Tokens(HashMap::from([(Sha256::digest("s3cret").into(), "jane".to_owned())]));
/// let server = ApiServer::new("foo-server", Kinds::new())
///     .with_authenticators(Authenticators::new().with_tokens(tokens).built_in());
/// ```
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// Returns the user of a token; `None` if another authenticator is to be called. A token has at most 16 KiB.
    ///
    /// # Errors
    /// Same as [`Authenticator::authenticate`].
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>>;
}

/// The authenticator of requests that a [`TokenAuthenticator`] implements.
pub(super) struct OfTokens<T>(pub T);

impl<T: TokenAuthenticator> Authenticator for OfTokens<T> {
    fn name(&self) -> &str {
        std::any::type_name::<T>()
    }

    fn authenticate<'a>(
        &'a self,
        request: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        match request.token {
            Some(token) => self.0.authenticate_token(token),
            None => Box::pin(ready(Ok(None))),
        }
    }
}

/// The result of an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authenticated {
    /// The user.
    pub user: User,
    /// The audiences that the credentials are valid for; empty if the authenticator knows none. A TokenReview of a
    /// standalone server returns them.
    pub audiences: Vec<String>,
}

impl Authenticated {
    /// This user, without audiences.
    pub fn new(user: User) -> Self {
        Self { user, audiences: Vec::new() }
    }

    /// The same user, with these audiences.
    #[must_use]
    pub fn with_audiences(self, audiences: Vec<String>) -> Self {
        Self { audiences, ..self }
    }
}

/// The head of a request that is to be authenticated.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticationRequest<'a> {
    pub(super) head: &'a Parts,
    pub(super) address: Option<IpAddr>,
    pub(super) certificate: Option<&'a ClientCertificate>,
    pub(super) token: Option<&'a str>,
}

impl<'a> AuthenticationRequest<'a> {
    /// The HTTP method.
    pub fn method(&self) -> &'a Method {
        &self.head.method
    }

    /// The path and the query.
    pub fn uri(&self) -> &'a Uri {
        &self.head.uri
    }

    /// The headers, with all credentials.
    pub fn headers(&self) -> &'a HeaderMap {
        &self.head.headers
    }

    /// The address of the client. Behind kube-apiserver, it is the address of kube-apiserver.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The client certificate of the connection, if the CA for clients (`--client-ca-file`) has signed it.
    pub fn certificate(&self) -> Option<&'a ClientCertificate> {
        self.certificate
    }

    /// The bearer token: from the header `Authorization`, or from the subprotocol of a WebSocket. It has at most
    /// 16 KiB, because requests with longer tokens are rejected.
    pub fn bearer_token(&self) -> Option<&'a str> {
        self.token
    }
}

/// A client certificate that the CA for clients has signed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The user and its groups: common name and organizations.
    pub user: User,
    /// The certificate, in DER.
    pub der: Arc<[u8]>,
}
