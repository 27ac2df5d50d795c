//! The chain of authenticators.

use std::time::Duration;

use aggregated_apiserver::auth::{
    AuthError, Authenticated, AuthenticationRequest, Authenticator, Authenticators, Authorizers,
    Decision, TokenAuthenticator, authorizer_fn,
};
use aggregated_apiserver::{ApiServer, User};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use http::{HeaderName, Request};
use http_body_util::BodyExt;
use hyper::client::conn::http2::SendRequest;
use serde_json::Value;
use test_server::{ListeningServer, user};
use tokio::time::Instant;

use super::{Calls, FOOS, kinds};

const SECRET: &str = "s3cret";
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Authenticates the value of `X-Api-Key` as a user, and rejects the value `wrong`. It records what it receives.
struct ApiKeys(Calls);

impl Authenticator for ApiKeys {
    fn credential_headers(&self) -> Vec<HeaderName> {
        vec![API_KEY]
    }

    fn authenticate<'a>(
        &'a self,
        request: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        let certificate = request.certificate();
        self.0.add(format!(
            "{} {} {} {} {}",
            request.method(),
            request.uri().path(),
            request.address().is_some_and(|address| address.is_loopback()),
            certificate.map_or("-", |certificate| &certificate.user.name),
            request.bearer_token().unwrap_or("-"),
        ));
        assert!(certificate.is_none_or(|certificate| certificate.der.len() > 100));
        Box::pin(async move {
            let Some(key) = request.headers().get(API_KEY) else { return Ok(None) };
            match key.to_str().unwrap() {
                "wrong" => Err(AuthError::new(SECRET)),
                "panic" => panic!("{SECRET}"),
                name => Ok(Some(Authenticated::new(user(name)))),
            }
        })
    }
}

/// Authenticates the tokens `token-USER`.
struct Tokens;

impl TokenAuthenticator for Tokens {
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        Box::pin(async move {
            match token.strip_prefix("token-") {
                Some("hang") => std::future::pending().await,
                Some("panic") => panic!("{SECRET}"),
                Some("expired") => Err(AuthError::new(SECRET)),
                name => Ok(name.map(|name| Authenticated::new(user(name)))),
            }
        })
    }
}

/// A server whose authorizer denies all requests, with the user as the reason. Its cluster is unreachable.
async fn server(chain: Authenticators) -> ListeningServer {
    let show = authorizer_fn(|user: &User, _| {
        Decision::deny(format!("{} is in {}", user.name, user.groups.join(" ")))
    });
    let server = ApiServer::new("foo-server", kinds());
    let server = server.with_authenticators(chain).with_authorizers(Authorizers::new().with(show));
    ListeningServer::of(server, "https://127.0.0.1:1", |_| ()).await
}

/// Sends a request with these headers. Returns the user that the authorizer receives, or the status.
async fn who(client: &mut SendRequest<Body>, headers: &[(&str, &str)]) -> String {
    let mut request = Request::get(format!("https://localhost{FOOS}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.ready().await.unwrap();
    let answer = client.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(!message.contains(SECRET), "{message}");
    match status {
        403 => message.rsplit_once(": ").unwrap().1.to_owned(),
        status => status.to_string(),
    }
}

#[tokio::test]
async fn an_authenticator_finds_the_user_of_a_request() {
    let calls = Calls::default();
    let chain = Authenticators::new().with(ApiKeys(calls.clone())).built_in();
    let server = server(chain).await;
    let mut client = server.h2(None).await;
    let robot = who(&mut client, &[("x-api-key", "robot")]).await;
    assert_eq!(robot, "robot is in system:authenticated");
    assert_eq!(calls.take(), [format!("GET {FOOS} true - -")]);
    let anonymous = who(&mut client, &[]).await;
    assert_eq!(anonymous, "system:anonymous is in system:unauthenticated");
    for key in ["wrong", "panic"] {
        assert_eq!(who(&mut client, &[("x-api-key", key)]).await, "401");
    }
}

#[tokio::test]
async fn authenticators_are_called_in_the_order_of_the_chain() {
    let calls = Calls::default();
    let own = || ApiKeys(calls.clone());
    let key = [("x-api-key", "robot")];
    let proxied = [("x-api-key", "robot"), ("x-remote-user", "joe")];
    for (chain, of_jane, of_proxy) in [
        (Authenticators::new().with(own()).built_in(), "robot", "robot"),
        (Authenticators::new().built_in().with(own()), "jane", "joe"),
        (Authenticators::new().front_proxy().with(own()).client_certificate(), "robot", "joe"),
        (Authenticators::new().with(own()), "robot", "robot"),
    ] {
        let server = server(chain).await;
        let files = server.files.path();
        let jane = server.files.authority.client(files, "jane", "jane", None).unwrap();
        let found = who(&mut server.h2(Some(&jane)).await, &key).await;
        assert_eq!(found, format!("{of_jane} is in system:authenticated"));
        let found = who(&mut server.proxy().await, &proxied).await;
        assert_eq!(found, format!("{of_proxy} is in system:authenticated"));
    }
    // The own authenticator sees the certificate, and a certificate that authenticates no user is rejected.
    let server = server(Authenticators::new().with(own())).await;
    let files = server.files.path();
    let jane = server.files.authority.client(files, "jane", "jane", None).unwrap();
    calls.take();
    assert_eq!(who(&mut server.h2(Some(&jane)).await, &[]).await, "401");
    assert_eq!(calls.take(), [format!("GET {FOOS} true jane -")]);
}

#[tokio::test]
async fn certificates_without_a_common_name_are_visible_to_authenticators() {
    let calls = Calls::default();
    let chain = Authenticators::new().built_in().with(ApiKeys(calls.clone()));
    let server = server(chain).await;
    let files = server.files.path();
    let uri = "spiffe://example.com/jane";
    let jane = server.files.authority.client_of_uri(files, "spiffe", uri).unwrap();
    let mut client = server.h2(Some(&jane)).await;
    // The built-in authenticator finds no user in the certificate.
    assert_eq!(who(&mut client, &[]).await, "401");
    assert_eq!(calls.take(), [format!("GET {FOOS} true  -")]);
    let robot = who(&mut client, &[("x-api-key", "robot")]).await;
    assert_eq!(robot, "robot is in system:authenticated");
}

#[tokio::test]
async fn tokens_are_authenticated_from_the_header_and_from_websockets() {
    let calls = Calls::default();
    let chain = Authenticators::new().with(ApiKeys(calls.clone())).with_tokens(Tokens);
    let server = server(chain).await;
    let mut client = server.h2(None).await;
    let robot = "robot is in system:authenticated";
    assert_eq!(who(&mut client, &[("authorization", "Bearer token-robot")]).await, robot);
    assert_eq!(calls.take(), [format!("GET {FOOS} true - token-robot")]);
    for token in ["token-expired", "unknown"] {
        let header = format!("Bearer {token}");
        assert_eq!(who(&mut client, &[("authorization", &header)]).await, "401", "{token}");
    }
    calls.take();
    // The limit of a token is checked before code of the user is called.
    let long = format!("Bearer token-{}", "x".repeat(16 << 10));
    assert_eq!(who(&mut client, &[("authorization", &long)]).await, "401");
    assert!(calls.take().is_empty());
    let token = URL_SAFE_NO_PAD.encode("token-robot");
    let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, other");
    let stream = server.connect("http/1.1", None).await;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("{FOOS}?watch=true"))
        .header("host", "localhost")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", protocols);
    let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 403);
    assert_eq!(calls.take(), [format!("GET {FOOS} true - token-robot")]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_or_panics_is_an_error() {
    let chain = Authenticators::new().with_tokens(Tokens);
    for (token, expected) in [
        ("token-hang", "it took longer than 10s"),
        ("token-panic", "it panicked"),
        ("token-expired", SECRET),
    ] {
        let began = Instant::now();
        let error = chain.authenticate_token(token).await.unwrap_err().to_string();
        assert!(error.ends_with(expected) && error.contains("Tokens"), "{error}");
        assert!(began.elapsed() <= Duration::from_secs(11));
    }
    let long = format!("token-{}", "x".repeat(16 << 10));
    assert!(chain.authenticate_token(&long).await.is_err());
    assert!(chain.authenticate_token("unknown").await.unwrap().is_none());
    let found = chain.authenticate_token("token-robot").await.unwrap().unwrap();
    assert_eq!(found.user.groups, ["system:authenticated"]);
}
