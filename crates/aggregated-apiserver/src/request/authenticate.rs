//! Authenticates the user of a request.
//!
//! The default order is the same as in kube-apiserver's delegating servers: the front proxy's headers, a client
//! certificate, a bearer token; anonymous without credentials. Invalid credentials are rejected, not ignored.

mod bearer_token;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use bearer_token::token_once;

use super::connection_priority::ConnectionPriority;
use super::impersonate::Impersonation;
use super::websocket;
use crate::auth::{
    AuthError, Authenticated, AuthenticatorEntry, Authenticators, ClientCertificate,
};
use crate::cluster::{Asker, Cluster, DelegatedAuthentication, RequestHeader, Reviews};
use crate::error::ApiError;
use crate::log_throttle::LogThrottle;
use crate::user::User;

/// The origin of a request.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A connection.
    Connection {
        /// The client certificate.
        presented: Presented,
        /// The state of the connection.
        standing: ConnectionPriority,
    },
    /// A caller in this process. No connection can produce it.
    InProcess(User),
}

impl Peer {
    /// The address of the client.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Connection { standing, .. } => standing.address(),
            Self::InProcess(_) => None,
        }
    }

    /// Whether the connection belongs to kube-apiserver, which forwards requests of other clients.
    pub(super) fn is_front_proxy(&self) -> bool {
        matches!(self, Self::Connection { presented, .. } if presented.is_front_proxy)
    }

    /// The client's network, if the caller can be identified only by a review of its token.
    pub(super) fn unknown_from(&self) -> Option<&str> {
        match self {
            Self::Connection { presented, standing }
                if !presented.is_front_proxy && presented.user().is_none() =>
            {
                Some(standing.from())
            }
            _ => None,
        }
    }
}

/// The client certificate of a connection, verified against the CAs.
#[derive(Clone, Debug, Default)]
pub struct Presented {
    /// Whether it belongs to the front proxy: signed by its CA, with an allowed name.
    pub is_front_proxy: bool,
    /// The client, if the CA for clients signed the certificate.
    pub client: Option<ClientCertificate>,
    /// Whether the client presented any certificate.
    pub any: bool,
}

impl Presented {
    /// The user of the client certificate, if the certificate has a common name.
    pub fn user(&self) -> Option<&User> {
        let user = self.client.as_ref().map(|client| &client.user);
        user.filter(|user| !user.name.is_empty())
    }
}

/// The configuration of authentication.
#[derive(Clone)]
pub struct Authentication {
    /// The chain of authenticators.
    pub authenticators: Authenticators,
    /// The headers and allowed names of the front proxy; they can change while the server runs.
    pub delegated: Arc<ArcSwap<DelegatedAuthentication>>,
    /// Reviews bearer tokens (TokenReview).
    pub cluster: Option<Cluster>,
    /// Whether requests may impersonate another user.
    pub impersonation: Impersonation,
    /// Whether requests without credentials are accepted, as user `system:anonymous`.
    pub allows_anonymous: bool,
    /// The limits of concurrent calls of own authenticators.
    pub slots: Arc<Reviews>,
}

impl Authentication {
    /// Removes the credentials of a request, before code of the user gets it: tokens, the headers of the front proxy, and
    /// impersonation.
    pub(super) fn remove_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        for name in self.authenticators.credential_headers() {
            headers.remove(name);
        }
        let delegated = self.delegated.load();
        let header = delegated.request_header.iter();
        let of_proxy = header.flat_map(|header| {
            let names = [&header.username_headers, &header.uid_headers, &header.group_headers];
            names.into_iter().chain([&header.extra_header_prefixes]).flatten()
        });
        let prefixes: Vec<String> = of_proxy.map(|name| name.to_ascii_lowercase()).collect();
        let is_secret = |name: &&HeaderName| {
            let name = name.as_str();
            name.starts_with("impersonate-")
                || name.starts_with("x-remote-")
                || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        let secret: Vec<HeaderName> = headers.keys().filter(is_secret).cloned().collect();
        for name in secret {
            headers.remove(name);
        }
        websocket::remove_token(headers);
    }
}

/// Authenticates a request.
pub(super) async fn authenticate(
    authentication: &Authentication,
    peer: &Peer,
    head: &Parts,
) -> Result<User, ApiError> {
    let user = identify(authentication, peer, head).await?;
    if let Peer::Connection { standing, .. } = peer
        && !user.is_anonymous()
    {
        standing.mark_authenticated();
    }
    Ok(user)
}

/// Whether a request has credentials, valid or invalid.
pub(super) fn has_credentials(authentication: &Authentication, peer: &Peer, head: &Parts) -> bool {
    let has_certificate = match peer {
        Peer::InProcess(_) => true,
        Peer::Connection { presented, .. } => presented.any,
    };
    let mut own = authentication.authenticators.credential_headers().iter();
    has_certificate
        || head.headers.contains_key(AUTHORIZATION)
        || own.any(|name| head.headers.contains_key(name))
}

async fn identify(
    authentication: &Authentication,
    peer: &Peer,
    head: &Parts,
) -> Result<User, ApiError> {
    let (presented, standing) = match peer {
        Peer::InProcess(user) => return Ok(user.clone()),
        Peer::Connection { presented, standing } => (presented, standing),
    };
    let client = presented.client.as_ref();
    let connection = (presented, standing, head);
    let mut token = None;
    for entry in authentication.authenticators.iter() {
        let found = match entry {
            AuthenticatorEntry::FrontProxy => user_of_proxy(authentication, presented, head),
            AuthenticatorEntry::ClientCertificate => presented.user().cloned(),
            AuthenticatorEntry::TokenReview => match token_once(&mut token, head)? {
                Some(token) => Box::pin(user_of_token(authentication, standing, token)).await?,
                None => None,
            },
            AuthenticatorEntry::Own(own) => {
                let credentials = (client, token_once(&mut token, head)?);
                let called = own.call(head, peer.address(), credentials);
                Box::pin(user_of_program(authentication, connection, called)).await?
            }
            AuthenticatorEntry::Tokens(own) => match token_once(&mut token, head)? {
                Some(token) => {
                    let called = own.call(token);
                    Box::pin(user_of_program(authentication, connection, called)).await?
                }
                None => None,
            },
        };
        if let Some(user) = found {
            return Ok(user.authenticated());
        }
    }
    // A token that no authenticator was called for is invalid, too.
    let has_token = token_once(&mut token, head)?.is_some();
    if has_token {
        standing.mark_failed();
    }
    if has_token || presented.any || !authentication.allows_anonymous {
        return Err(ApiError::unauthorized());
    }
    Ok(User::anonymous())
}

/// Limits the log lines about credentials that own authenticators reject.
static REJECTED: LogThrottle = LogThrottle::at_most(5);

/// The user that an authenticator of the program returns.
async fn user_of_program(
    authentication: &Authentication,
    (presented, standing, head): (&Presented, &ConnectionPriority, &Parts),
    call: impl Future<Output = Result<Option<Authenticated>, AuthError>>,
) -> Result<Option<User>, ApiError> {
    // A connection of the front proxy has requests of many users.
    let proxied = user_of_proxy(authentication, presented, head);
    let asker = match proxied.as_ref().or_else(|| presented.user()) {
        Some(user) => Asker::User(&user.name),
        None if standing.is_suspect() => Asker::Stranger,
        None => Asker::Newcomer(standing.from()),
    };
    let Some(_slot) = authentication.slots.place(asker).await else {
        return Err(ApiError::too_many_requests().bounded_by("reviews"));
    };
    let error = match call.await {
        Ok(Some(found)) if !authentication.authenticators.accept(&found) => {
            AuthError::new("the credentials are valid for other audiences")
        }
        Ok(found) => return Ok(found.map(|found| found.user)),
        Err(error) => error,
    };
    if !error.is_unavailable() {
        standing.mark_failed();
    }
    REJECTED.log(|suppressed| {
        tracing::warn!(suppressed, %error, "rejected a request with 401");
    });
    Err(ApiError::unauthorized())
}

/// The user in the headers of the front proxy.
fn user_of_proxy(
    authentication: &Authentication,
    presented: &Presented,
    head: &Parts,
) -> Option<User> {
    let delegated = authentication.delegated.load();
    let header = delegated.request_header.as_ref().filter(|_| presented.is_front_proxy);
    user_of_headers(header?, &head.headers)
}

/// The user of a token, from a review of the cluster.
async fn user_of_token(
    authentication: &Authentication,
    standing: &ConnectionPriority,
    token: &str,
) -> Result<Option<User>, ApiError> {
    let Some(cluster) = &authentication.cluster else { return Ok(None) };
    let asker = match standing.is_suspect() {
        true => Asker::Stranger,
        false => Asker::Newcomer(standing.from()),
    };
    match cluster.user_of_token(token, asker).await {
        Ok(user) => Ok(user),
        Err(error) if error.is_busy() => Err(ApiError::too_many_requests().bounded_by("reviews")),
        Err(error) => {
            tracing::warn!(
                error = %error.why(),
                "cannot review a token; it is rejected: {error}"
            );
            Err(ApiError::unauthorized())
        }
    }
}

fn user_of_headers(header: &RequestHeader, headers: &HeaderMap) -> Option<User> {
    let name = header.username_headers.iter().find_map(|name| first(headers, name))?;
    let uid = header.uid_headers.iter().find_map(|name| first(headers, name));
    let groups = header.group_headers.iter().flat_map(|name| all(headers, name)).collect();
    let mut user = User { name, uid, groups, ..User::default() };
    for prefix in &header.extra_header_prefixes {
        let prefix = prefix.to_ascii_lowercase();
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(&prefix).filter(|key| !key.is_empty())
            else {
                continue;
            };
            let decoded = percent_decode_str(key).decode_utf8();
            let key = decoded.map_or_else(|_| key.to_owned(), |key| key.to_lowercase());
            user.extra.entry(key).or_default().extend(all(headers, name.as_str()));
        }
    }
    Some(user)
}

fn first(headers: &HeaderMap, name: &str) -> Option<String> {
    all(headers, name).find(|value| !value.is_empty())
}

/// The values of a header that are valid UTF-8.
fn all<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let values = headers.get_all(name.to_ascii_lowercase()).into_iter();
    values.filter_map(|value| String::from_utf8(value.as_bytes().to_vec()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use http::Request;

    fn delegated() -> DelegatedAuthentication {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        DelegatedAuthentication {
            client_ca: None,
            request_header: Some(RequestHeader {
                ca: String::new(),
                allowed_names: texts(&["front-proxy-client"]),
                username_headers: texts(&["X-Remote-User"]),
                uid_headers: texts(&["X-Remote-Uid"]),
                group_headers: texts(&["X-Remote-Group"]),
                extra_header_prefixes: texts(&["X-Remote-Extra-"]),
            }),
        }
    }

    fn authentication() -> Authentication {
        Authentication {
            authenticators: Authenticators::default(),
            delegated: Arc::new(ArcSwap::from_pointee(delegated())),
            cluster: None,
            impersonation: Impersonation::Refused,
            allows_anonymous: true,
            slots: Arc::new(Reviews::new()),
        }
    }

    async fn ask(presented: Presented, headers: &[(&str, &str)]) -> Result<User, ApiError> {
        let authentication = authentication();
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let peer = Peer::Connection { presented, standing: ConnectionPriority::default() };
        authenticate(&authentication, &peer, &head).await
    }

    fn proxy() -> Presented {
        Presented { is_front_proxy: true, any: true, ..Presented::default() }
    }

    #[tokio::test]
    async fn only_invalid_credentials_make_a_client_suspect() {
        let mut authentication = authentication();
        authentication.authenticators = Authenticators::new().with_audience("ours");
        for (result, expected) in [
            (Err(AuthError::new("invalid")), true),
            (Err(AuthError::unavailable("down")), false),
            (Ok(Authenticated::new(User::default()).with_audiences(vec!["x".to_owned()])), true),
        ] {
            let (standing, presented) = (ConnectionPriority::default(), Presented::default());
            let (head, ()) = Request::new(()).into_parts();
            let call = async { result.map(Some) };
            let answer =
                user_of_program(&authentication, (&presented, &standing, &head), call).await;
            assert_eq!(answer.unwrap_err().reason(), Reason::Unauthorized);
            assert_eq!(standing.is_suspect(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_cannot_use_all_slots_of_authenticators() {
        let authentication = authentication();
        let mut held = Vec::new();
        for _ in 0..25 {
            held.extend(authentication.slots.place(Asker::Newcomer("")).await);
        }
        let call = async |presented: Presented, name: &str| {
            let request = Request::get("/").header("x-remote-user", name);
            let (head, ()) = request.body(()).unwrap().into_parts();
            let standing = ConnectionPriority::default();
            let found = async { Ok(Some(Authenticated::new(User::default()))) };
            user_of_program(&authentication, (&presented, &standing, &head), found).await
        };
        let refused = call(Presented::default(), "jane").await.unwrap_err();
        assert_eq!(refused.reason(), Reason::TooManyRequests);
        assert!(call(proxy(), "jane").await.unwrap().is_some());
        held.clear();
        assert!(call(Presented::default(), "jane").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn the_front_proxy_is_believed() {
        let headers = [
            ("x-remote-user", "jane"),
            ("x-remote-uid", "77"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", "JTI=1"),
        ];
        let user = ask(proxy(), &headers).await.unwrap();
        assert_eq!(user.name, "jane");
        assert_eq!(user.uid.as_deref(), Some("77"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=1"]);
    }

    #[tokio::test]
    async fn identity_headers_are_accepted_only_from_the_front_proxy() {
        let forged = [("x-remote-user", "jane"), ("x-remote-group", "system:masters")];
        let user = ask(Presented::default(), &forged).await.unwrap();
        assert_eq!(user, User::anonymous());
        let unknown = Presented { any: true, ..Presented::default() };
        let error = ask(unknown, &forged).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unauthorized);
        let no_name = ask(proxy(), &[("x-remote-group", "dev")]).await;
        assert_eq!(no_name.unwrap_err().reason(), Reason::Unauthorized);
    }

    #[tokio::test]
    async fn bearer_tokens_are_rejected_without_a_cluster_for_token_reviews() {
        let error = ask(Presented::default(), &[("authorization", "Bearer x")]).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unauthorized);
        let basic = ask(Presented::default(), &[("authorization", "Basic eDp5")]).await;
        assert_eq!(basic.unwrap(), User::anonymous());
    }
}
