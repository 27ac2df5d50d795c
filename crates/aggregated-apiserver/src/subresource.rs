//! Subresources: paths below each object of a kind, such as `machines/NAME/log`, whose requests code of the user
//! handles.
//!
//! A handler is a handler of [axum](https://docs.rs/axum): an async function with extractors. The extractors of axum
//! for heads and bodies work, and so do its responses: bodies of any type, streams, uploads and WebSockets. `Path` and
//! `State` do not: use the extractors below, and closures that capture their state. The library has authenticated and
//! authorized the request, and has found the object. These extractors belong to the library:
//!
//! - [`Parent`]: the object, as a Rust type or as JSON.
//! - [`ParentKey`]: the namespace and the name of the object.
//! - [`Parameters`]: the query, as a Rust type.
//! - [`Caller`]: the user of the request, its permissions, and a client of the cluster that acts as the user.
//! - [`SubPath`]: the path behind the subresource, for a proxy.
//! - [`Ended`]: the time at which a long request must end.
//! - [`RemoteCommand`] and [`PortForward`]: the protocols of `pods/exec`, `pods/attach` and `pods/portforward`.
//!
//! ```
//! use aggregated_apiserver::subresource::{Error, Parameters, Parent, Subresource};
//! use aggregated_apiserver::{Kind, Kinds, Stored};
//! use axum::body::Body;
//! use futures::{StreamExt, stream};
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Machine", namespaced)]
//! pub struct MachineSpec {
//!     pub image: String,
//! }
//!
//! impl Stored for Machine {}
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(rename_all = "camelCase")]
//! struct LogOptions {
//!     /// The number of lines.
//!     tail_lines: Option<usize>,
//! }
//!
//! /// `GET …/machines/NAME/log?tailLines=3`: a response of any length, sent while it is made.
//! async fn log(
//!     Parent(machine): Parent<Machine>,
//!     Parameters(options): Parameters<LogOptions>,
//! ) -> Result<Body, Error> {
//!     let lines = stream::repeat(format!("boot of {}\n", machine.spec.image));
//!     let lines = lines.take(options.tail_lines.unwrap_or(10));
//!     Ok(Body::from_stream(lines.map(Ok::<_, std::io::Error>)))
//! }
//!
//! let log = Subresource::new("log").get(log).parameters::<LogOptions>().produces("text/plain");
//! let kinds = Kinds::new().kind(Kind::stored::<Machine>().subresource(log));
//! ```
//!
//! # Rules
//!
//! - A request needs the permission for its verb on `machines/log`: GET is `get`, POST `create`, PUT `update`, PATCH
//!   `patch` and DELETE `delete`. A request that upgrades its connection, such as a WebSocket, also needs `create`,
//!   because a role with `get` on all resources must not be able to execute commands.
//! - A handler does not receive the credentials of the request.
//! - Admission plugins are called for all requests but GET, and for all upgrades and all requests of
//!   [connections](Subresource::connect) and [proxies](Subresource::proxy). The operation is `CONNECT`. Plugins and
//!   webhooks get the object of the path as the old object.
//! - A body of at most 3 MiB is received before the handler is called. A longer one, and that of a long-running
//!   subresource, is read by the handler while it arrives; an extractor that needs the whole body gets at most 512 KiB.
//! - A handler is dropped when its client disconnects or its time is over. Spawn a task for work that must be
//!   completed.
//! - A response with an error status and a text becomes a `Status` with this text, unless the subresource is a proxy.
//! - A handler that panics fails one request with 500, and the server continues.
//!
//! # Long requests
//!
//! A request of a [long-running](Subresource::long_running) subresource has no deadline of the server. It ends when its
//! client disconnects, when the object is deleted or hidden from the user, when the user loses the permission, when the
//! server drains, when no byte is sent in either direction for the [idle timeout](Subresource::idle_timeout), and after
//! its longest duration. A client that does not read what is sent to it is disconnected after a minute. For objects of
//! a direct kind, deletions are not noticed.
//!
//! Behind kube-apiserver, name such a subresource `attach`, `exec`, `log`, `portforward` or `proxy`: kube-apiserver
//! cuts the responses of subresources with other names after its own `--request-timeout`, 60 seconds by default.
//!
//! A long request counts against the limit of watches (`--max-watches`). An upgraded connection and a forwarded request
//! also count against a limit of connections; one user may have a part of each. The memory of a WebSocket is the
//! business of its handler: set `max_message_size`, `read_buffer_size` and `max_write_buffer_size` of axum's
//! `WebSocketUpgrade`.

mod caller;
mod description;
mod ended;
mod error;
mod forward;
mod handlers;
mod parameters;
mod parent;
mod streams;
mod success;

pub use caller::Caller;
pub(crate) use description::Operation;
pub use ended::Ended;
pub use error::Error;
pub(crate) use error::Refusal;
pub use forward::forward;
pub use kubernetes_streams::remote_command::{Outcome, Session, TerminalSize};
pub use parameters::Parameters;
pub(crate) use parameters::schema_of;
pub(crate) use parent::ParentObject;
pub use parent::{Parent, ParentKey, SubPath};
pub(crate) use streams::Unchanged;
pub use streams::{NotUpgraded, PortForward, RemoteCommand};
pub use success::Success;

use std::fmt;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use http::Method;
use k8s_openapi::api::rbac::v1::PolicyRule;
use schemars::JsonSchema;

use description::Description;
use handlers::Handlers;

/// The default of the longest body of a request, in bytes; same as for objects.
const BODY_LIMIT: usize = 3 << 20;
/// The default of the longest duration of a connection.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The default of the longest time without a byte; same as kubelet's for streams.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// A subresource, with the handlers of its methods. See the [module](self).
#[must_use]
pub struct Subresource {
    name: &'static str,
    handlers: Handlers,
    description: Description,
    shape: Shape,
    body_limit: Option<usize>,
    longest: Option<Duration>,
    idle: Duration,
    upgrades_need_create: bool,
    is_open_ended: bool,
    has_dry_run: bool,
    server_rules: Vec<PolicyRule>,
}

/// The role of a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Requests and responses.
    Plain,
    /// Connections, which GET or POST opens.
    Connection,
    /// Requests of any method on any path below, which are forwarded.
    Proxy,
}

impl Subresource {
    /// A subresource without handlers. The name is the last part of the path: `log`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            handlers: Handlers::default(),
            description: Description::default(),
            shape: Shape::Plain,
            body_limit: None,
            longest: None,
            idle: IDLE,
            upgrades_need_create: true,
            is_open_ended: false,
            has_dry_run: false,
            server_rules: Vec::new(),
        }
    }

    /// Handles GET. The generated role `view` grants it for kinds with a namespace, so a subresource with secrets needs
    /// another method, or [`connect`](Self::connect).
    pub fn get<H: Handler<T, ()>, T: 'static>(self, handler: H) -> Self {
        self.on(&[Method::GET], handler)
    }

    /// Handles POST.
    pub fn post<H: Handler<T, ()>, T: 'static>(self, handler: H) -> Self {
        self.on(&[Method::POST], handler)
    }

    /// Handles PUT.
    pub fn put<H: Handler<T, ()>, T: 'static>(self, handler: H) -> Self {
        self.on(&[Method::PUT], handler)
    }

    /// Handles PATCH.
    pub fn patch<H: Handler<T, ()>, T: 'static>(self, handler: H) -> Self {
        self.on(&[Method::PATCH], handler)
    }

    /// Handles DELETE.
    pub fn delete<H: Handler<T, ()>, T: 'static>(self, handler: H) -> Self {
        self.on(&[Method::DELETE], handler)
    }

    /// Handles GET and POST requests that open a connection, such as a WebSocket. The subresource is
    /// [long-running](Self::long_running).
    pub fn connect<H: Handler<T, ()>, T: 'static>(mut self, handler: H) -> Self {
        self.shape = Shape::Connection;
        self.longest.get_or_insert(LONGEST);
        self.on(&[Method::GET, Method::POST], handler)
    }

    /// Handles GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS requests on the subresource and on all paths below it;
    /// [`SubPath`] is the rest of the path. The subresource is [long-running](Self::long_running). Bodies are not
    /// limited, because they are forwarded while they arrive. OPTIONS needs permission for all verbs (`*`).
    pub fn proxy<H: Handler<T, ()>, T: 'static>(mut self, handler: H) -> Self {
        use Method as M;
        self.shape = Shape::Proxy;
        self.longest.get_or_insert(LONGEST);
        self.on(&[M::GET, M::POST, M::PUT, M::PATCH, M::DELETE, M::OPTIONS], handler)
    }

    fn on<H: Handler<T, ()>, T: 'static>(mut self, methods: &[Method], handler: H) -> Self {
        self.handlers.add(methods, handler);
        self
    }

    /// Allows requests to last longer than other requests, up to this duration: responses that follow a log, uploads.
    pub fn long_running(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Marks responses without an end of their own, such as a log that is followed. If the server ends such a response,
    /// it is complete. Any other response that the server ends is cut, so that the client gets an error.
    pub fn open_ended(mut self) -> Self {
        self.is_open_ended = true;
        self
    }

    /// Allows requests with `?dryRun=All`, which the handlers then must not execute. Without this setting, such
    /// requests are rejected, except reads and those of a [proxy](Self::proxy).
    pub fn supports_dry_run(mut self) -> Self {
        self.has_dry_run = true;
        self
    }

    /// Sets the longest time in which a long request may send and receive no byte; 4 hours by default.
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Sets the longest body of a request, in bytes; 3 MiB by default. A handler reads a longer body while it arrives,
    /// as a stream (`axum::body::Body`).
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Lets requests upgrade their connections without the permission `create`. Use this if a connection only reads.
    pub fn upgrades_without_create(mut self) -> Self {
        self.upgrades_need_create = false;
        self
    }

    /// Adds a permission that the handlers need for [`Caller::server_client`]. The generated manifests grant it to the
    /// server.
    pub fn server_rule(mut self, rule: PolicyRule) -> Self {
        self.server_rules.push(rule);
        self
    }

    /// Describes the parameters of the query, for OpenAPI.
    pub fn parameters<T: JsonSchema>(mut self) -> Self {
        self.description.set_parameters::<T>();
        self
    }

    /// Describes the body of requests in JSON, for OpenAPI.
    pub fn accepts<T: JsonSchema>(mut self) -> Self {
        self.description.set_body::<T>();
        self
    }

    /// Describes the body of responses in JSON, for OpenAPI.
    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.description.set_response::<T>();
        self
    }

    /// Sets the media type of responses, for OpenAPI: `text/plain`.
    pub fn produces(mut self, media_type: &'static str) -> Self {
        self.description.set_media_type(media_type);
        self
    }

    /// The permissions that the handlers need.
    pub(crate) fn server_rules(&self) -> &[PolicyRule] {
        &self.server_rules
    }

    /// Whether a role that may read the objects may use this method: a GET that opens no connection.
    pub(crate) fn is_read(&self, method: &Method) -> bool {
        self.shape == Shape::Plain && [Method::GET, Method::HEAD].contains(method)
    }

    /// The name in the path.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The methods that have handlers.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &Method> {
        self.handlers.methods()
    }

    /// Whether a method has a handler.
    pub(crate) fn handles(&self, method: &Method) -> bool {
        self.handlers.find(method).is_some()
    }

    /// Whether paths below the subresource belong to it.
    pub(crate) fn has_paths(&self) -> bool {
        self.shape == Shape::Proxy
    }

    /// Whether error responses of handlers are forwarded unchanged.
    pub(crate) fn is_proxy(&self) -> bool {
        self.shape == Shape::Proxy
    }

    /// Whether the requests are connections in OpenAPI.
    pub(crate) fn is_connected(&self) -> bool {
        self.shape != Shape::Plain
    }

    /// Whether admission plugins are called for a request.
    pub(crate) fn is_admitted(&self, method: &Method, is_upgrade: bool) -> bool {
        self.is_connected() || is_upgrade || ![Method::GET, Method::HEAD].contains(method)
    }

    /// Whether all requests upgrade their connections.
    pub(crate) fn is_connection(&self) -> bool {
        self.shape == Shape::Connection
    }

    /// The longest duration of a request; `None` for the limit of the server.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.longest
    }

    /// The longest time in which a long request may send and receive no byte.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// The longest body, in bytes.
    pub(crate) fn longest_body(&self) -> usize {
        let default = if self.shape == Shape::Proxy { usize::MAX } else { BODY_LIMIT };
        self.body_limit.unwrap_or(default)
    }

    /// Whether handlers read the body while it arrives.
    pub(crate) fn reads_while_sent(&self) -> bool {
        self.longest.is_some() || self.longest_body() > BODY_LIMIT
    }

    /// Whether a response that the server ends is incomplete.
    pub(crate) fn cuts(&self) -> bool {
        !self.is_open_ended
    }

    /// Whether handlers support dry runs.
    pub(crate) fn has_dry_run(&self) -> bool {
        self.has_dry_run
    }

    /// Whether an upgrade also needs the permission `create`.
    pub(crate) fn upgrades_need_create(&self) -> bool {
        self.upgrades_need_create
    }

    /// The description of the operation of a method, for OpenAPI.
    pub(crate) fn operation(&self, method: &Method) -> Operation<'_> {
        self.description.operation(method)
    }

    /// Calls the handler of the request's method, and returns `None` without one.
    pub(crate) async fn call(&self, request: Request) -> Option<Response> {
        Some(self.handlers.find(request.method())?(request).await)
    }
}

impl fmt::Debug for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subresource").field(&self.name).finish()
    }
}
