//! TestServer: a Kubernetes API server in this process, for one test.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregated_apiserver::auth::{Authenticators, Authorizers};
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::serving::{AuditArgs, ClusterClient, PendingReadiness};
use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::{
    ApiServer, Clock, InProcess, Kinds, Running, ServeArgs, StartError, User,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, ResourceExt};
use rcgen::KeyPair;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::authentication_config::AuthenticationConfig;
use crate::authorizer::{Authorizer, NoEscalation, Rbac, bootstrap_policy};
use crate::built_in::{BuiltInKindError, CertificatePermissions, PodSecurityConfiguration};
use crate::certificates::Certificates;
use crate::controllers::definitions::{Definitions, Now};
use crate::controllers::{Controllers, aggregated_roles, resource_quotas};
use crate::faults::Faults;
use crate::files::LoadedObject;
use crate::objects::{self, ObjectError};
use crate::pods::{
    self, Body, Error, ExecRequest, LogRequest, Outcome, PodHandlers, PortForwardRequest, Session,
};
use crate::reviews::Reviewers;
use crate::service_account_tokens::{ISSUER, ServiceAccountTokens};
use crate::standalone::{KUBERNETES, ServerChanges, on_this_machine, with_documents};
use crate::{built_in, cluster_objects, kubeconfig, reviews};

/// The user of [`TestServer::client`].
const ADMIN: &str = "kubernetes-admin";
const MASTERS: &str = "system:masters";

/// The reason for which a [`TestServer`] cannot start.
#[derive(Debug, ThisError)]
pub enum TestServerError {
    /// A kind cannot be served.
    #[error(transparent)]
    Kind(#[from] StartError),
    /// An object cannot be stored.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The key for tokens of ServiceAccounts cannot be created.
    #[error("cannot sign tokens of ServiceAccounts: {0}")]
    Tokens(String),
    /// The AuthenticationConfiguration is invalid.
    #[error("{0}")]
    Authentication(String),
    /// The server cannot listen.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// The definition of a built-in kind is invalid.
    #[error("the definition of a built-in kind is invalid: {0}")]
    BuiltIn(#[from] serde_json::Error),
    /// A built-in kind cannot be served.
    #[error(transparent)]
    BuiltInKind(#[from] BuiltInKindError),
}

/// Configures and starts a [`TestServer`].
#[derive(Default)]
pub struct TestServerBuilder {
    kinds: Kinds,
    definitions: Vec<CustomResourceDefinition>,
    objects: Vec<Result<Value, serde_json::Error>>,
    time: Option<Timestamp>,
    listens: bool,
    audit: Option<AuditArgs>,
    authenticators: Authenticators,
    authorizers: Authorizers,
    authentication: Option<String>,
    pods: PodHandlers,
    changes: ServerChanges,
    has_no_quota_controller: bool,
}

impl TestServerBuilder {
    /// Also listens on a free port of this machine, for kubectl and for programs in other languages; see
    /// [`TestServer::kubeconfig`].
    #[must_use]
    pub fn listen(mut self) -> Self {
        self.listens = true;
        self
    }

    /// Writes audit events, according to these flags.
    #[must_use]
    pub fn audit(mut self, args: AuditArgs) -> Self {
        self.audit = Some(args);
        self
    }

    /// Authenticates requests with this chain. [`TestServer::client`] needs no authentication.
    #[must_use]
    pub fn authenticators(mut self, authenticators: Authenticators) -> Self {
        self.authenticators = authenticators;
        self
    }

    /// Also authenticates requests with this AuthenticationConfiguration, a YAML document of `apiserver.config.k8s.io`:
    /// tokens of OpenID Connect issuers, and anonymous requests. The server requests the keys of the issuers over HTTPS.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let configuration = "
    /// apiVersion: apiserver.config.k8s.io/v1
    /// kind: AuthenticationConfiguration
    /// jwt:
    /// - issuer: {url: https://issuer.example.com, audiences: [my-cluster]}
    ///   claimMappings:
    ///     username: {claim: email, prefix: 'oidc:'}
    /// ";
    /// let builder = standalone_apiserver::TestServer::builder();
    /// let server = builder.authentication_config(configuration).listen().start().await?;
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn authentication_config(mut self, document: impl Into<String>) -> Self {
        self.authentication = Some(document.into());
        self
    }

    /// Authorizes requests with this chain. Its built-in authorizer is RBAC.
    #[must_use]
    pub fn authorizers(mut self, authorizers: Authorizers) -> Self {
        self.authorizers = authorizers;
        self
    }

    /// Changes the [`ApiServer`] within this server, for example to add post-start hooks, checks, metrics, or layers, same
    /// as [`Standalone::with_server`](crate::Standalone::with_server). Hooks run when the objects of the start exist, and
    /// [`TestServerBuilder::start`] does not wait for them. The settings of the test server take precedence: its clock, its
    /// version of Kubernetes, its limits of namespaces, and its chains of authenticators and authorizers.
    #[must_use]
    pub fn server(
        mut self,
        change: impl FnOnce(ApiServer) -> ApiServer + Send + Sync + 'static,
    ) -> Self {
        self.changes.add(change);
        self
    }

    /// Serves these kinds in addition to the built-in ones.
    #[must_use]
    pub fn kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = self.kinds.merge(kinds);
        self
    }

    /// Serves the kind of a definition: `Foo::crd()`.
    #[must_use]
    pub fn crd(mut self, definition: CustomResourceDefinition) -> Self {
        self.definitions.push(definition);
        self
    }

    /// Creates these objects at the start, in this order, each with its status. Missing namespaces are created.
    #[must_use]
    pub fn objects<K: Serialize>(mut self, objects: impl IntoIterator<Item = K>) -> Self {
        self.objects.extend(objects.into_iter().map(serde_json::to_value));
        self
    }

    /// Stops the clock of the server at this time. [`TestServer::advance`] advances it.
    #[must_use]
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// Serves the log of Pods (`pods/log`) with this function, in place of a kubelet. Without it, requests for logs
    /// receive 404. The function returns the text or the stream of the log, and applies the options of the request. The
    /// server validates the options and the name of the container, same as kube-apiserver. A Pod without
    /// `spec.nodeName` has no log (204), also same as in kube-apiserver, so create the Pods of a test with the name of a
    /// node.
    #[must_use]
    pub fn pod_log<F, B>(
        mut self,
        log: impl Fn(LogRequest) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<B, Error>> + Send + 'static,
        B: Into<Body> + Send + 'static,
    {
        self.pods.log = Some(pods::log(log));
        self
    }

    /// Runs commands in Pods (`pods/exec`) with this function, in place of a kubelet. Without it, requests receive 404.
    /// The function gets the streams of the client and returns the outcome, such as the exit code. The Pod needs
    /// `spec.nodeName`, same as in kube-apiserver.
    #[must_use]
    pub fn pod_exec<F: Future<Output = Outcome> + Send + 'static>(
        mut self,
        run: impl Fn(ExecRequest, Session) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        self.pods.exec = Some(pods::commands("exec", run));
        self
    }

    /// Attaches clients to the processes of containers (`pods/attach`) with this function; see
    /// [`pod_exec`](Self::pod_exec).
    #[must_use]
    pub fn pod_attach<F: Future<Output = Outcome> + Send + 'static>(
        mut self,
        attach: impl Fn(ExecRequest, Session) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        self.pods.attach = Some(pods::commands("attach", attach));
        self
    }

    /// Forwards connections to ports of Pods (`pods/portforward`) with this function, in place of a kubelet. Without it,
    /// requests receive 404. The function returns the other side of a connection, or the error for the client. The Pod
    /// needs `spec.nodeName`, same as in kube-apiserver.
    #[must_use]
    pub fn pod_port_forward<F, T>(
        mut self,
        open: impl Fn(PortForwardRequest) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.pods.port_forward = Some(pods::ports(open));
        self
    }

    /// Does not compute the status of ResourceQuotas, for a test that writes the status itself. Admission still enforces
    /// the quotas, and adds the usage of new objects to their status.
    #[must_use]
    pub fn without_quota_controller(mut self) -> Self {
        self.has_no_quota_controller = true;
        self
    }

    /// Starts the server in this process.
    ///
    /// # Errors
    /// The reason, if a kind cannot be served or an object cannot be stored.
    pub async fn start(mut self) -> Result<TestServer, TestServerError> {
        let objects = self.objects.into_iter().collect::<Result<Vec<Value>, _>>()?;
        let clock = TestClock::new(self.time);
        let now: Now = Arc::new({
            let clock = clock.clone();
            move || clock.now()
        });
        let mut anonymous = None;
        if let Some(document) = &self.authentication {
            let config = AuthenticationConfig::parse(document);
            let config = config.map_err(TestServerError::Authentication)?;
            anonymous = config.allows_anonymous();
            self.authenticators = config.add_to(self.authenticators, &now).0;
        }
        let key = KeyPair::generate().map_err(|error| error.to_string());
        let accounts = key.and_then(|key| ServiceAccountTokens::new(&key));
        let accounts = accounts.map_err(TestServerError::Tokens)?;
        let authorizer = Authorizer::new();
        let authorizers = self.authorizers.with_built_in(Rbac(Arc::clone(&authorizer)));
        let authenticators = self.authenticators.with_audience(ISSUER);
        let reviews = reviews::kinds(Reviewers {
            tokens: Vec::new(),
            accounts: Arc::clone(&accounts),
            authenticators: authenticators.clone(),
            authorizers: authorizers.clone(),
            now: Arc::clone(&now),
        })?;
        let kinds = built_in::kinds(&accounts, PodSecurityConfiguration::default(), self.pods)?;
        let kinds = kinds.merge(reviews).merge(built_in::views()?).merge(self.kinds);
        let kinds = kinds.with_admission_plugin(NoEscalation {
            roles: Arc::clone(&authorizer),
            authorizers: authorizers.clone(),
        });
        let kinds = kinds
            .with_admission_plugin(CertificatePermissions::approval(authorizers.clone()))
            .with_admission_plugin(CertificatePermissions::signing(authorizers.clone()));
        let server_clock = Clock::system().with_now({
            let now = Arc::clone(&now);
            move || now()
        });
        let server = self.changes.apply(ApiServer::new("test-server", kinds));
        let server = server
            .with_kubernetes_version(KUBERNETES)
            .with_store_namespace_limit(NamespaceLimit::WHOLE)
            .with_clock(server_clock)
            .with_authenticators(authenticators)
            .with_authorizers(authorizers);
        let mut server = with_documents(server, &accounts);
        if let Some(audit) = &self.audit {
            server = server.with_audit(audit)?;
        }
        // Boxed, so that the future that starts a server does not contain the large future of a start.
        let (server, unready) = if self.listens {
            Box::pin(Server::listening(server, anonymous)).await?
        } else {
            let started = server.in_process_unready(ClusterClient::Loopback);
            let (running, unready) = Box::pin(started).await?;
            (Server::InProcess(running), unready)
        };
        let client = server.client(admin());
        let kinds = server.runtime_kinds();
        accounts.set_objects(kinds.clone());
        authorizer.set_objects(kinds.clone());
        let definitions = Definitions::new(client.clone(), kinds.clone(), Arc::clone(&now));
        for definition in &self.definitions {
            let what = format!("CustomResourceDefinition {:?}", definition.name_any());
            definitions.create(&what, definition).await?;
        }
        let mut own = server
            .cluster_objects(now())
            .map_err(|error| TestServerError::Listen(error.to_string()))?;
        own.extend(cluster_objects::api_services(&kinds));
        let objects = objects.into_iter().enumerate();
        let objects =
            objects.map(|(at, object)| LoadedObject { place: format!("object {at}"), object });
        objects::load(&kinds, objects.collect(), own).await?;
        bootstrap_policy::ensure(&client, &kinds, now()).await?;
        let mut controllers = Controllers::start(&client, &kinds, definitions, &now)
            .with(aggregated_roles::run(client, authorizer));
        if !self.has_no_quota_controller {
            controllers = controllers.with(resource_quotas::run(kinds.quota_statuses()));
        }
        unready.mark_ready();
        let server =
            TestServer { server, clock, faults: Faults::default(), _controllers: controllers };
        Ok(server)
    }
}

/// A Kubernetes API server in this process, with its own objects, caches and limits. The servers of one process share
/// two things: the lookups of webhooks' host names, because each lookup occupies a thread of the process, and the
/// throttling of log lines. A server without `listen()` uses no port and no file. Dropping the server stops all its
/// tasks.
pub struct TestServer {
    // Dropped before the server.
    _controllers: Controllers,
    server: Server,
    clock: TestClock,
    faults: Faults,
}

impl TestServer {
    /// Returns the builder of a server with the built-in kinds.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }

    /// A client that is allowed everything.
    pub fn client(&self) -> Client {
        self.faults.before(self.server.client(admin()))
    }

    /// A client that sends requests as this user, with the permissions of the roles that RoleBindings and
    /// ClusterRoleBindings of the server bind to the user or to its groups. The user has exactly these groups:
    /// discovery requires `system:authenticated`, and a ServiceAccount has `system:serviceaccounts` and
    /// `system:serviceaccounts:NAMESPACE`. Members of `system:masters` are allowed everything.
    pub fn client_as<G: Into<String>>(
        &self,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Client {
        let groups = groups.into_iter().map(Into::into).collect();
        let user = User { name: user.into(), groups, ..User::default() };
        self.faults.before(self.server.client(user))
    }

    /// The kubeconfig of a server that listens. It is removed with the server.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match &self.server {
            Server::InProcess(_) => None,
            Server::Listening { folder, .. } => Some(folder.path().join(KUBECONFIG)),
        }
    }

    /// The fault injection of this server.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The time of the server.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Advances the clock of the server.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

const KUBECONFIG: &str = "kubeconfig";

/// A server that listens on a port, or not.
enum Server {
    InProcess(InProcess),
    Listening { running: Box<Running>, folder: TempDir, certificates: Certificates },
}

impl Server {
    async fn listening(
        server: ApiServer,
        anonymous: Option<bool>,
    ) -> Result<(Self, PendingReadiness), TestServerError> {
        let failed = |why: String| TestServerError::Listen(why);
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let data = folder.path().join("data");
        let certificates = Certificates::open(&data).map_err(failed)?;
        let mut args = on_this_machine(&ServeArgs::default(), &certificates);
        args.secure_port = 0;
        args.anonymous_auth = anonymous.unwrap_or(args.anonymous_auth);
        let bound = server.bind_without_cluster(&args)?;
        let file = folder.path().join(KUBECONFIG);
        kubeconfig::write(&file, bound.address(), &certificates).map_err(failed)?;
        let (running, unready) = bound.start_unready().await?;
        Ok((Self::Listening { running: Box::new(running), folder, certificates }, unready))
    }

    /// The objects that the server creates for itself.
    fn cluster_objects(&self, now: Timestamp) -> std::io::Result<Vec<LoadedObject>> {
        let reached = match self {
            Self::InProcess(_) => None,
            Self::Listening { running, certificates, .. } => {
                Some((running.address(), certificates))
            }
        };
        cluster_objects::objects(reached, now)
    }

    fn client(&self, user: User) -> Client {
        match self {
            Self::InProcess(server) => server.client(user),
            Self::Listening { running, .. } => running.client(user),
        }
    }

    fn runtime_kinds(&self) -> RuntimeKinds {
        match self {
            Self::InProcess(server) => server.runtime_kinds(),
            Self::Listening { running, .. } => running.runtime_kinds(),
        }
    }
}

/// The user that is allowed everything.
pub(crate) fn admin() -> User {
    User { name: ADMIN.to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() }
}

/// The clock of a server: the system clock with an offset, or a stopped clock.
#[derive(Clone)]
struct TestClock {
    standing: Option<Timestamp>,
    moved: Arc<Mutex<SignedDuration>>,
}

impl TestClock {
    fn new(standing: Option<Timestamp>) -> Self {
        Self { standing, moved: Arc::default() }
    }

    fn now(&self) -> Timestamp {
        let moved = *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let time = self.standing.unwrap_or_else(Timestamp::now);
        time.saturating_add(moved).unwrap_or(Timestamp::MAX)
    }

    fn advance(&self, by: Duration) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        *moved = moved.saturating_add(by);
    }
}
