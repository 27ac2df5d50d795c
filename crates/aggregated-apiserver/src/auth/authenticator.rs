//! The trait [`Authenticator`], and the request that it receives.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri};

use super::AuthError;
use crate::user::User;

/// An authenticator: code that finds the user of a request.
///
/// Each call has a deadline of ten seconds. A call that panics or exceeds its deadline is an error. The deadline ends a
/// call only where the future waits (`.await`). Blocking code occupies a thread of the server beyond the deadline, so
/// run it with `tokio::task::spawn_blocking`. Results are not cached. Requests of the server to itself are not
/// authenticated.
///
/// At most 100 calls run concurrently, 25 of one client or of one user of the front proxy, and at most 40 for clients
/// whose credentials were rejected before. Further requests wait for at most ten seconds, and are rejected with 429 if
/// too many wait.
///
/// Watches and other long requests continue after their credentials have expired: an authenticator is called once for a
/// request. The server checks the permissions again every few minutes.
///
/// The module [`auth`](super) has an example.
pub trait Authenticator: Send + Sync + 'static {
    /// The name of the authenticator in log lines; the name of its type by default.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// The headers with credentials that the authenticator reads, in addition to `Authorization`. The server removes
    /// them from requests before it passes the requests to handlers of subresources and of paths. The function is called
    /// once.
    fn credential_headers(&self) -> Vec<HeaderName> {
        Vec::new()
    }

    /// Returns the user of a request. `None` means no opinion: the next authenticator of the chain is called. If no
    /// authenticator has returned a user, a request with a bearer token or a client certificate is rejected, and other
    /// requests are anonymous. The server adds the group `system:authenticated` to the user. Members of the group
    /// `system:masters` are allowed everything.
    ///
    /// An authenticator must check that the credentials are meant for this server, for example by the audience of a
    /// token. Otherwise, a service that receives a token can use the token here. Return the
    /// [audiences](Authenticated::with_audiences), or compare them in the authenticator. Behind kube-apiserver, the
    /// server compares audiences only after [`with_audience`](super::Authenticators::with_audience).
    ///
    /// # Errors
    /// If the credentials are invalid ([`AuthError::new`]) or cannot be checked ([`AuthError::unavailable`]). The request is rejected with 401, and no other
    /// authenticator is called. The error is logged, and clients do not receive it.
    fn authenticate<'a>(
        &'a self,
        request: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>>;
}

/// An authenticator of bearer tokens. [`Authenticators::with_tokens`](super::Authenticators::with_tokens) adds it to a
/// chain. It is called only for requests with a token, and for TokenReviews of a standalone server.
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
///     .with_authenticators(
///         Authenticators::new()
///             .front_proxy()
///             .client_certificate()
///             .with_tokens(tokens)
///             .token_review(),
///     );
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

/// The result of an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authenticated {
    /// The user.
    pub user: User,
    /// The audiences that the credentials are valid for; empty if the authenticator knows none. The server compares them
    /// with [its own](super::Authenticators::with_audience). A TokenReview of a standalone server returns the audiences
    /// that it requests, or else those of the server.
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
#[derive(Clone, Copy)]
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

/// Without headers and without the query, which may contain credentials.
impl fmt::Debug for AuthenticationRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path) = (self.method(), self.uri().path());
        let mut shown = f.debug_struct("AuthenticationRequest");
        shown.field("method", method).field("path", &path).finish_non_exhaustive()
    }
}

/// A client certificate that the CA for clients has signed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The user and its groups: common name and organizations. The name is empty if the certificate has no common name,
    /// for example if its identity is a URI (SPIFFE). The built-in authenticator ignores such a certificate.
    pub user: User,
    /// The certificate, in DER.
    pub der: Arc<[u8]>,
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn credentials_are_not_in_the_debug_format() {
        let request = Request::get("/apis?token=s3cret").header("authorization", "Bearer s3cret");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let token = Some("s3cret");
        let request =
            AuthenticationRequest { head: &head, address: None, certificate: None, token };
        let shown = format!("{request:?}");
        assert_eq!(shown, r#"AuthenticationRequest { method: GET, path: "/apis", .. }"#);
    }
}
