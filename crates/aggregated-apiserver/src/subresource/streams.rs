//! Remote commands and port forwarding, as kubectl speaks them.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use kubernetes_streams::port_forward;
use kubernetes_streams::remote_command::{self, Options, Outcome, Session};
use kubernetes_streams::{Limits, Refused, Upgrade};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Ended, Error};
use crate::log_throttle::LogThrottle;

/// The limits of a connection: at most 4 MiB wait for a handler that does not read. The streams suffice for 127 ports,
/// which is the limit of port forwarding over a WebSocket.
const LIMITS: Limits = Limits {
    streams: 256,
    stream_bytes: 16 << 10,
    message_bytes: 256 << 10,
    header_bytes: 1 << 10,
    ..Limits::DEFAULT
};

/// The message for the client of a handler that has panicked.
const PANICKED: &str = "the handler panicked";
/// Limits the log lines about handlers that panic.
static PANICS: LogThrottle = LogThrottle::at_most(30);

/// A response that is sent unchanged, because clients know its text.
#[derive(Clone, Copy)]
pub(crate) struct Unchanged;

/// A request to execute a command, or to attach to one, in the protocol of `pods/exec` and `pods/attach`. Programs with
/// client-go send such requests to any subresource; `kubectl exec` sends them to Pods alone, so it needs a
/// [proxy](super::forward) in front of this.
///
/// The protocols are those of Kubernetes: `v5.channel.k8s.io` and earlier ones over WebSocket, and SPDY/3.1 for older
/// clients. Use it with [`connect`](super::Subresource::connect).
///
/// ```
/// use aggregated_apiserver::subresource::{Outcome, RemoteCommand, Subresource};
/// use axum::response::Response;
///
/// /// Returns the input of the client, as the command `cat` does.
/// async fn exec(command: RemoteCommand) -> Response {
///     command.run(async |mut session| {
///         match tokio::io::copy(&mut session.stdin, &mut session.stdout).await {
///             Ok(_) => Outcome::Success,
///             Err(error) => Outcome::Failed(error.to_string()),
///         }
///     })
/// }
///
/// let exec = Subresource::new("exec").connect(exec);
/// ```
pub struct RemoteCommand {
    connection: Connection<remote_command::Protocol>,
    options: Options,
    command: Vec<String>,
}

/// A request to forward connections to ports, in the protocol of `pods/portforward`.
///
/// ```
/// use aggregated_apiserver::subresource::{PortForward, Subresource};
/// use axum::response::Response;
/// use tokio::net::TcpStream;
///
/// /// Forwards to ports of this machine.
/// async fn forward(forward: PortForward) -> Response {
///     forward.run(async |port| {
///         TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())
///     })
/// }
///
/// let forward = Subresource::new("portforward").connect(forward);
/// ```
pub struct PortForward(Connection<port_forward::Protocol>);

/// The response to a request that cannot be upgraded.
#[derive(Debug)]
pub struct NotUpgraded(Box<Response>);

impl NotUpgraded {
    /// The refusal of a protocol, in the form that clients expect.
    fn of(refused: Refused) -> Self {
        let mut response = refused.into_response().map(Body::from);
        response.extensions_mut().insert(Unchanged);
        Self(Box::new(response))
    }

    fn because(why: impl Into<String>) -> Self {
        Self(Box::new(Error::bad_request(why).into_response()))
    }
}

impl IntoResponse for NotUpgraded {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// A connection that is going to be upgraded.
struct Connection<P> {
    upgrade: OnUpgrade,
    negotiated: Upgrade<P>,
    ended: Ended,
}

impl<P> Connection<P> {
    fn new(head: &Parts, negotiated: Result<Upgrade<P>, Refused>) -> Result<Self, NotUpgraded> {
        let negotiated = negotiated.map_err(NotUpgraded::of)?;
        let Some(upgrade) = head.extensions.get::<OnUpgrade>().cloned() else {
            return Err(NotUpgraded::because("the connection cannot be upgraded"));
        };
        let ended = head.extensions.get::<Ended>().cloned().unwrap_or_default();
        Ok(Self { upgrade, negotiated, ended })
    }

    /// Returns the response. Once it is sent, a task serves the connection.
    fn run<W: Future<Output = ()> + Send>(
        self,
        serve: impl FnOnce(TokioIo<Upgraded>, P, Ended) -> W + Send + 'static,
    ) -> Response
    where
        P: Send + 'static,
    {
        let Self { upgrade, negotiated: Upgrade { response, protocol, .. }, ended } = self;
        tokio::spawn(async move {
            let connection = upgrade.await;
            // The connection is also upgraded later if the handler has returned another response.
            if let Ok(connection) = connection
                && !ended.has_ended()
            {
                serve(TokioIo::new(connection), protocol, ended).await;
            }
        });
        response.map(|()| Body::empty())
    }
}

impl RemoteCommand {
    /// The command with its arguments, from the parameters `command`; empty for `attach`.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The streams that the client asks for.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the response that opens the connection. Then the handler gets the streams of the client, and the client
    /// gets the outcome. After a panic of the handler, the outcome is [`Outcome::Failed`].
    ///
    /// After the client has disconnected, the handler has ten seconds to return, and is then dropped. The handler is
    /// dropped at once when the request [ends](Ended).
    pub fn run<W: Future<Output = Outcome> + Send + 'static>(
        self,
        handler: impl FnOnce(Session) -> W + Send + 'static,
    ) -> Response {
        let options = self.options;
        self.connection.run(async move |io, protocol, ended: Ended| {
            let end = async {
                let (code, reason, message) = ended.cause().await;
                Outcome::Error { code, reason: reason.to_owned(), message }
            };
            let handler = async |session| {
                let work = caught(async { handler(session).await }).await;
                work.unwrap_or_else(|| Outcome::Failed(PANICKED.to_owned()))
            };
            let served = remote_command::serve(io, protocol, options, &LIMITS, end, handler).await;
            if let Err(error) = served {
                tracing::debug!(%error, "a remote command has ended");
            }
        })
    }
}

impl PortForward {
    /// Returns the response that opens the connection. Then `open` is called for each connection of the client, with
    /// the port. It returns the other side, or a text for the client. A panic of `open` ends one connection of the
    /// client.
    pub fn run<T, W>(self, open: impl Fn(u16) -> W + Send + Sync + 'static) -> Response
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        W: Future<Output = Result<T, String>> + Send + 'static,
    {
        self.0.run(async move |io, protocol, ended: Ended| {
            let end = async { ended.cause().await.2 };
            let open = async |port| {
                let target = caught(async { open(port).await }).await;
                target.unwrap_or_else(|| Err(PANICKED.to_owned()))
            };
            let served = port_forward::serve(io, &protocol, &LIMITS, end, open).await;
            if let Err(error) = served {
                tracing::debug!(%error, "a port forwarding has ended");
            }
        })
    }
}

/// Runs code of a handler. Returns `None` if it panics.
async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await.ok();
    if result.is_none() {
        PANICS
            .log(|suppressed| tracing::error!(suppressed, "the handler of a connection panicked"));
    }
    result
}

impl<S: Sync> FromRequestParts<S> for RemoteCommand {
    type Rejection = NotUpgraded;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, NotUpgraded> {
        let query = head.uri.query().unwrap_or_default();
        let options =
            Options::from_query(query).map_err(|refused| NotUpgraded::because(refused.message))?;
        let command = form_urlencoded::parse(query.as_bytes());
        let command = command.filter(|(name, _)| name == "command");
        let command = command.map(|(_, value)| value.into_owned()).collect();
        let connection = Connection::new(head, remote_command::negotiate(&head.headers))?;
        Ok(Self { connection, options, command })
    }
}

impl<S: Sync> FromRequestParts<S> for PortForward {
    type Rejection = NotUpgraded;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, NotUpgraded> {
        let query = head.uri.query().unwrap_or_default();
        let negotiated = port_forward::negotiate(&head.headers, query);
        Connection::new(head, negotiated).map(Self)
    }
}
