//! The users of a server, their requests and their watches.

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use aggregated_apiserver::{InProcess, User};
use anyhow::{Result, bail};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;
use test_cluster::Process;

/// The timeout for the next event of a watch. Tests with a paused clock skip it.
const PATIENCE: Duration = Duration::from_secs(600);
/// The timeout for a process to serve.
const START: Duration = Duration::from_secs(60);

/// A user with all permissions.
pub fn admin() -> User {
    let groups = vec!["system:masters".to_owned()];
    User { name: "admin".to_owned(), groups, ..User::default() }
}

/// A user without groups.
pub fn user(name: &str) -> User {
    User { name: name.to_owned(), ..User::default() }
}

/// A request with a body of this media type; `Value::Null` is an empty body.
pub fn request(
    method: impl AsRef<str>,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Request<Body> {
    let request = Request::builder().method(method.as_ref()).uri(path);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    request.header("content-type", content_type).body(body).unwrap()
}

/// Sends a request of a user. Returns the response with its JSON.
pub async fn send(server: &InProcess, user: User, request: Request<Body>) -> Response<Value> {
    let (head, body) = server.respond(user, request).await.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Response::from_parts(head, serde_json::from_slice(&bytes).unwrap())
}

/// Sends a request of an administrator. Patches are merge patches. Returns the status and the JSON of the response.
pub async fn ask(
    server: &InProcess,
    method: impl AsRef<str>,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    ask_as(server, admin(), method, path, body).await
}

/// Same as [`ask`], for a request of this user.
pub async fn ask_as(
    server: &InProcess,
    user: User,
    method: impl AsRef<str>,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let content_type = match method.as_ref() {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = request(method, path, content_type, body);
    let (head, body) = send(server, user, request).await.into_parts();
    (head.status, body)
}

/// The events of a watch, from its response body.
pub struct Events {
    body: Body,
    /// The bytes that were received and not returned.
    received: Vec<u8>,
}

impl Events {
    /// Reads the events of a body.
    pub fn of(body: Body) -> Self {
        Self { body, received: Vec::new() }
    }

    /// Returns the next event, or `None` at the end of the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame());
            let frame = frame.await.unwrap()?.unwrap();
            self.received.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}

/// A client of kube with the credentials of a kubeconfig.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// A client of kube that reports every failure instead of retrying the request.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub async fn client_without_retries(kubeconfig: &Path) -> Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Waits until a process serves a kind, or has ended.
///
/// # Errors
/// When the process has ended, or does not serve the kind within a minute.
pub async fn wait_until_served<K>(process: &mut Process, api: &Api<K>) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let deadline = Instant::now() + START;
    loop {
        process.ensure_running()?;
        match api.get_opt("unknown").await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => bail!("never ready: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The configuration of a client with the credentials of a kubeconfig.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub async fn config(kubeconfig: &Path) -> Result<Config> {
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?)
}
