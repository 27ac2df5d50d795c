//! The additions of a program around its kinds: hooks after the start, checks of its health, metrics, changes of the
//! OpenAPI documents, and layers of tower.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::Route;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use super::ApiServer;
use super::health::{OWN_CHECKS, SOURCE_CHECK};
use super::runtime_kinds::RuntimeKinds;
use crate::error::StartError;
use crate::record::Registry;
use crate::request::{ChangeDocument, panic_text};
use crate::storage::Failure;

/// A check of the health, as its user has written it: it returns why the server is not healthy.
type CheckFunction = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type HookFunction =
    Box<dyn FnOnce(PostStart) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
pub(super) type AddLayer = Box<dyn FnOnce(Router) -> Router + Send + Sync>;

/// The additions of a program to its server.
#[derive(Default)]
pub(super) struct Hooks {
    post_start: Vec<PostStartHook>,
    pub checks: Vec<UserCheck>,
    metrics: Registry,
    openapi: Option<ChangeDocument>,
    pub layers: Vec<AddLayer>,
}

/// The additions of a program to the documents of its server.
pub(super) struct Additions {
    pub openapi: Option<ChangeDocument>,
    pub metrics: Registry,
}

/// A check that a program has added.
#[derive(Clone)]
pub(super) struct UserCheck {
    pub name: Arc<str>,
    /// Whether the check is a part of `/livez` and `/healthz`, too.
    pub is_liveness: bool,
    check: CheckFunction,
}

impl UserCheck {
    /// The result of the check now. A check that panics fails.
    pub(super) fn outcome(&self) -> Result<(), String> {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| (self.check)()));
        outcome.unwrap_or_else(|what| Err(format!("the check panicked: {}", panic_text(&*what))))
    }
}

/// A hook, with the place of its result.
struct PostStartHook {
    name: String,
    run: HookFunction,
    result: Arc<OnceLock<Result<(), String>>>,
}

/// The server that a post-start hook belongs to.
#[derive(Clone)]
pub struct PostStart {
    pub(super) client: Client,
    pub(super) cluster: Client,
    pub(super) runtime_kinds: RuntimeKinds,
    pub(super) closing: CancellationToken,
}

impl PostStart {
    /// A client of the server itself with all permissions, within the process.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of the cluster with the permissions of the server. Its default namespace is the namespace of the server
    /// (`--namespace`). Without a cluster, the client calls the server itself.
    pub fn cluster_client(&self) -> Client {
        self.cluster.clone()
    }

    /// The interface that adds and removes kinds.
    pub fn runtime_kinds(&self) -> RuntimeKinds {
        self.runtime_kinds.clone()
    }

    /// Returns when the server ends requests in flight. A hook that runs longer than the other requests has five
    /// seconds to finish, and is dropped then.
    pub async fn ended(&self) {
        self.closing.cancelled().await;
    }
}

impl fmt::Debug for PostStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostStart").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Runs this code once the server responds to requests, for example to create objects that must exist or to
    /// start a controller. After [`BoundServer::start_unready`](super::BoundServer::start_unready), it runs once the server
    /// has been marked ready. Hooks run concurrently. The check `poststarthook/NAME` of `/readyz` fails until the hook has
    /// finished. A hook that returns an error or panics ends [`ApiServer::run`] with an error.
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use aggregated_apiserver::serving::PostStart;
    ///
    /// async fn discover(server: PostStart) -> Result<(), kube::Error> {
    ///     let groups = server.client().list_api_groups().await?;
    ///     println!("serving {} API groups", groups.groups.len());
    ///     Ok(())
    /// }
    ///
    /// let server = ApiServer::new("foo-server", Kinds::new())
    ///     .with_post_start_hook("discover", discover);
    /// ```
    #[must_use]
    pub fn with_post_start_hook<F, E>(
        mut self,
        name: &str,
        hook: impl FnOnce(PostStart) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let run =
            |server| hook(server).map(|result| result.map_err(|error| error.to_string())).boxed();
        let name = format!("poststarthook/{name}");
        let result: Arc<OnceLock<Result<(), String>>> = Arc::default();
        let of_check = Arc::clone(&result);
        let check = move || match of_check.get() {
            None => Err("not finished".to_owned()),
            Some(result) => result.clone(),
        };
        self.hooks.post_start.push(PostStartHook {
            name: name.clone(),
            run: Box::new(run),
            result,
        });
        self.with_check(&name, false, Arc::new(check))
    }

    /// Adds a check to `/readyz`. kube-apiserver sends requests to ready servers only, and Kubernetes deletes no
    /// namespace while no replica is ready. Therefore the check must not depend on what concerns few requests.
    ///
    /// The check is called for each probe and must return at once: report a state that another task keeps up to date.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use aggregated_apiserver::{ApiServer, Kinds};
    ///
    /// let connected = Arc::new(AtomicBool::new(false));
    /// let of_check = Arc::clone(&connected);
    /// let server = ApiServer::new("foo-server", Kinds::new()).with_readiness_check(
    ///     "database",
    ///     move || match of_check.load(Ordering::Relaxed) {
    ///         true => Ok(()),
    ///         false => Err("the database is not connected".to_owned()),
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn with_readiness_check(
        self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.with_check(name, false, Arc::new(check))
    }

    /// Adds a check to `/livez`, `/healthz` and `/readyz`. Kubernetes restarts a server whose liveness check fails, so
    /// the check should fail only if a restart helps. See [`ApiServer::with_readiness_check`].
    #[must_use]
    pub fn with_liveness_check(
        self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.with_check(name, true, Arc::new(check))
    }

    fn with_check(mut self, name: &str, is_liveness: bool, check: CheckFunction) -> Self {
        self.hooks.checks.push(UserCheck { name: name.into(), is_liveness, check });
        self
    }

    /// Adds metrics to `/metrics`. Register a `Collector` for values that are read for each request. A metric with the
    /// name of one of the server's own metrics is left out, and logged.
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use aggregated_apiserver::serving::prometheus_client::metrics::counter::Counter;
    ///
    /// let books: Counter = Counter::default();
    /// let counted = books.clone();
    /// let server = ApiServer::new("foo-server", Kinds::new())
    ///     .with_metrics(|registry| registry.register("library_books", "Books that were lent", counted));
    /// books.inc();
    /// ```
    #[must_use]
    pub fn with_metrics(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.hooks.metrics);
        self
    }

    /// Changes the OpenAPI documents: `/openapi/v2`, and the document of each group version below `/openapi/v3`. The
    /// function receives each document once, after it was generated, and may run on several threads. If the function
    /// panics, the document is served without the change.
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use serde_json::json;
    ///
    /// let server = ApiServer::new("foo-server", Kinds::new()).with_openapi(|document| {
    ///     document["info"]["title"] = json!("Foos");
    /// });
    /// ```
    #[must_use]
    pub fn with_openapi(
        mut self,
        change: impl Fn(&mut Map<String, Value>) + Send + Sync + 'static,
    ) -> Self {
        let former = self.hooks.openapi.take();
        self.hooks.openapi = Some(Arc::new(move |document| {
            if let Some(former) = &former {
                former(document);
            }
            change(document);
        }));
        self
    }

    /// Wraps the server in a layer of tower, such as the layers of `tower-http`. The layer receives every request of a
    /// connection with its credentials, before the server authenticates the request, and every response. Requests of
    /// clients within the process do not pass the layer. The layer that was added last is the outermost one.
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use axum::extract::Request;
    /// use axum::middleware::{Next, from_fn};
    ///
    /// let server = ApiServer::new("foo-server", Kinds::new()).with_layer(from_fn(
    ///     async |request: Request, next: Next| {
    ///         let mut response = next.run(request).await;
    ///         response.headers_mut().insert("x-served-by", "foo-server".parse().unwrap());
    ///         response
    ///     },
    /// ));
    /// ```
    #[must_use]
    pub fn with_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Route> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.hooks.layers.push(Box::new(|router| router.layer(layer)));
        self
    }
}

impl Hooks {
    /// Checks the names of the added checks and hooks.
    ///
    /// # Errors
    /// If a name is used twice, or cannot be a part of a path.
    pub(super) fn validate(&self) -> Result<(), StartError> {
        let mut names = OWN_CHECKS.to_vec();
        for UserCheck { name, .. } in &self.checks {
            let refused = |why| StartError::Check { name: name.to_string(), why };
            let is_part = |part: &str| {
                let is_valid = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
                !part.is_empty() && part.bytes().all(is_valid)
            };
            if !name.split('/').all(is_part) {
                return Err(refused("the name must consist of letters, digits, '-', '_' and '.'"));
            }
            if names.contains(&&**name) || name.starts_with(SOURCE_CHECK) {
                return Err(refused("another check has this name"));
            }
            names.push(name);
        }
        Ok(())
    }

    /// Takes what the handler of requests needs.
    pub(super) fn additions(&mut self) -> Box<Additions> {
        Box::new(Additions {
            openapi: self.openapi.take(),
            metrics: std::mem::take(&mut self.metrics),
        })
    }

    /// Starts the hooks, which run once `ready` is true. A failure is set in `failed`.
    pub(super) fn start(
        self,
        server: &PostStart,
        ready: &watch::Receiver<bool>,
        failed: &Arc<Failure>,
    ) -> JoinSet<()> {
        let hooks = self.post_start.into_iter();
        let run = |hook| {
            let (server, mut ready, failed) = (server.clone(), ready.clone(), Arc::clone(failed));
            async move {
                if ready.wait_for(|is_ready| *is_ready).await.is_ok() {
                    run(hook, server, failed).await;
                }
            }
        };
        hooks.map(run).collect()
    }
}

async fn run(hook: PostStartHook, server: PostStart, failed: Arc<Failure>) {
    let PostStartHook { name, run, result } = hook;
    let ended = AssertUnwindSafe(async { run(server).await }).catch_unwind().await;
    let ended = ended.unwrap_or_else(|what| Err(format!("it panicked: {}", panic_text(&*what))));
    if let Err(why) = &ended {
        tracing::error!(hook = name, error = why, "a hook of the start has failed");
        failed.set(format!("{name} has failed: {why}"));
    }
    let _ = result.set(ended);
}
