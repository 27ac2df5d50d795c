//! `pods/exec`, `pods/attach` and `pods/portforward`.

use aggregated_apiserver::subresource::{
    Error, Outcome, Parameters, Parent, PortForward, RemoteCommand, Session, Subresource,
};
use axum::extract::{FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use k8s_openapi::api::core::v1::Pod;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{container, ensure_node, go};

/// A request to run a command in a container, or to attach to its process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecRequest {
    /// The Pod.
    pub pod: Pod,
    /// The name of the container; the only one of the Pod if the client names none.
    pub container: String,
    /// The command with its arguments; empty for `attach`.
    pub command: Vec<String>,
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client receives output.
    pub stdout: bool,
    /// Whether the client receives error output. Never together with `tty`, because a terminal has one output.
    pub stderr: bool,
    /// Whether the client has a terminal.
    pub tty: bool,
}

/// A connection that a client opens to a port of a Pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortForwardRequest {
    /// The Pod.
    pub pod: Pod,
    /// The port.
    pub port: u16,
}

/// The parameters of `exec` and `attach` (`PodExecOptions`, `PodAttachOptions`).
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct Streams {
    /// The command with its arguments.
    command: Vec<String>,
    /// The container in which to execute the command.
    container: Option<String>,
    /// Redirect the standard error stream of the container.
    stderr: bool,
    /// Redirect the standard input stream of the container.
    stdin: bool,
    /// Redirect the standard output stream of the container.
    stdout: bool,
    /// Allocate a terminal.
    tty: bool,
}

/// The parameters of `portforward` (`PodPortForwardOptions`).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Ports {
    /// Lists of ports, separated by commas.
    ports: Vec<String>,
}

/// The subresource `exec` or `attach` with this handler.
pub(crate) fn commands<H, F>(name: &'static str, handler: H) -> Subresource
where
    H: Fn(ExecRequest, Session) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let connect = async move |Parent(pod): Parent<Pod>,
                              Parameters(streams): Parameters<Streams>,
                              request: Request| {
        let container = container(&pod, streams.container.as_deref())?;
        ensure_node(&pod)?;
        let Streams { command, stdin, stdout, stderr, tty, .. } = streams;
        // kubelet's own names of these parameters have no effect, same as in kube-apiserver.
        let query = format!("stdin={stdin}&stdout={stdout}&stderr={stderr}&tty={tty}");
        let mut head = with_query(request, &query)?;
        let connection = match RemoteCommand::from_request_parts(&mut head, &()).await {
            Ok(connection) => connection,
            Err(refused) => return Ok(refused.into_response()),
        };
        let stderr = connection.options().stderr;
        let request = ExecRequest { pod, container, command, stdin, stdout, stderr, tty };
        Ok::<Response, Error>(connection.run(move |session| handler(request, session)))
    };
    Subresource::new(name).connect(connect).parameters::<Streams>()
}

/// The subresource `portforward` with this handler.
pub(crate) fn ports<H, F, T>(handler: H) -> Subresource
where
    H: Fn(PortForwardRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connect = async move |Parent(pod): Parent<Pod>,
                              Parameters(Ports { ports }): Parameters<Ports>,
                              request: Request| {
        let ports: Result<Vec<_>, Error> = ports.iter().map(|list| go::ports(list)).collect();
        let ports = ports?.into_iter().flatten().map(|port| format!("port={port}"));
        let query = ports.collect::<Vec<_>>().join("&");
        ensure_node(&pod)?;
        let mut head = with_query(request, &query)?;
        let open = move |port| handler(PortForwardRequest { pod: pod.clone(), port });
        let connection = PortForward::from_request_parts(&mut head, &()).await;
        let response = connection.map(|connection| connection.run(open));
        Ok::<Response, Error>(response.unwrap_or_else(IntoResponse::into_response))
    };
    Subresource::new("portforward").connect(connect)
}

/// The head of a request, with another query.
fn with_query(request: Request, query: &str) -> Result<Parts, Error> {
    let mut head = request.into_parts().0;
    head.uri = format!("{}?{query}", head.uri.path()).parse().map_err(Error::internal)?;
    Ok(head)
}
