//! [`ApiServer`]: builds a server from kinds.
//!
//! A configured, a bound, a running and a drained server have different types, so the compiler rejects operations that
//! a state does not support.

mod args;
mod assemble;
mod authentication;
mod bounded_stream;
mod ca_bundle;
mod certificate;
mod connection;
mod connection_slots;
mod draining;
mod frame_budget;
mod group_versions;
mod heads;
mod health;
mod hooks;
mod initial_objects;
mod kept_objects;
mod listener;
mod logging;
mod loopback;
mod memory;
mod object_copy;
mod occupant;
mod open_files;
mod parsed_kinds;
mod peer_identity;
mod plain;
mod router;
mod running;
mod runtime_kinds;
mod served_certificate;
mod serving_certificate;
mod slot;
mod stored_definition;
mod streams;
mod tls;
mod version;
mod webhooks;

pub(crate) use args::encryption;
pub use args::{
    AdmissionPluginName, Args, AuditArgs, EtcdArgs, LoggingFormat, TracingArgs,
    WebhookReadFailurePolicy,
};
pub use hooks::PostStart;
pub use kept_objects::{StoredObject, StoredObjects};
pub use logging::start_logging;
pub use running::{BoundServer, InProcess, PendingReadiness, Running, Stopped};
pub use runtime_kinds::{NamesInUse, RestoreError, RuntimeKinds, StoredKind};
pub(crate) use served_certificate::{is_bundle, presented, refusal};
pub(crate) use tls::Rejection;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::admission::UnreadConfigurations;
use crate::auth::{Authenticators, Authorizers};
use crate::clock::Clock;
use crate::cluster::{Cluster, Reviews};
use crate::definition::{self, Kinds};
use crate::document::Document;
use crate::error::StartError;
use crate::kind::{Kind, PatternCache};
use crate::manifests;
use crate::record::{Audit, Traces};
use crate::request::{Authentication, Documents, Impersonation, REQUEST_TIMEOUT};
use crate::storage::{self, NamespaceLimit, Store, StoreOptions};
use crate::write::ManagedFields;
use assemble::{Assembled, Limits};
use authentication::Trusted;
use hooks::Hooks;
use listener::Listening;
use loopback::Loopback;
use memory::{Bounds, Contents, Records, Said};
use object_copy::Copied;
use plain::PlainPorts;
use serving_certificate::Identity;
use webhooks::WebhookOptions;

/// A configured server, with its name and its kinds.
///
/// ```no_run
/// # use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, StartError};
/// # async fn main_(args: ServeArgs) -> Result<(), StartError> {
/// ApiServer::new("farm-operator", Kinds::new()).run(&args).await
/// # }
/// ```
pub struct ApiServer {
    name: String,
    kinds: Kinds,
    clock: Clock,
    disabled: Vec<AdmissionPluginName>,
    unread_webhooks: WebhookReadFailurePolicy,
    kubernetes: Option<String>,
    commit: String,
    documents: Vec<(String, Document)>,
    copied: Copied,
    namespace_limit: NamespaceLimit,
    memory_limit: Option<usize>,
    managed_fields: ManagedFields,
    store: Option<Arc<dyn Store>>,
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<Traces>>,
    authenticators: Authenticators,
    authorizers: Authorizers,
    request_timeout: Duration,
    patterns: PatternCache,
    hooks: Box<Hooks>,
}

/// The cluster of a server, which is the source of computed objects, of permissions and of namespaces.
pub enum ClusterClient {
    /// The cluster of this client.
    Client(Client),
    /// The server itself, within this process.
    Loopback,
}

impl From<Client> for ClusterClient {
    fn from(client: Client) -> Self {
        Self::Client(client)
    }
}

impl ApiServer {
    /// A server with this name. Its Service and its objects in the cluster have the same name.
    pub fn new(name: &str, kinds: Kinds) -> Self {
        Self {
            name: name.to_owned(),
            kinds,
            clock: Clock::system(),
            disabled: Vec::new(),
            unread_webhooks: WebhookReadFailurePolicy::default(),
            kubernetes: None,
            commit: String::new(),
            documents: Vec::new(),
            copied: Copied::new(),
            namespace_limit: NamespaceLimit::default(),
            memory_limit: None,
            managed_fields: ManagedFields::default(),
            store: None,
            audit: None,
            traces: None,
            authenticators: Authenticators::default(),
            authorizers: Authorizers::default(),
            request_timeout: REQUEST_TIMEOUT,
            patterns: PatternCache::default(),
            hooks: Box::default(),
        }
    }

    /// Sets the release of Kubernetes whose behavior `/version` reports, such as `v1.36.3`. Clients use it to decide
    /// which features they can request.
    #[must_use]
    pub fn with_kubernetes_version(mut self, release: &str) -> Self {
        self.kubernetes = Some(release.to_owned());
        self
    }

    /// Sets the commit that `/version` reports.
    #[must_use]
    pub fn with_commit(mut self, commit: &str) -> Self {
        commit.clone_into(&mut self.commit);
        self
    }

    /// Adds a path at which the server returns this JSON for GET, to clients that are allowed to get the path. A path
    /// of Kubernetes itself is not replaced.
    #[must_use]
    pub fn with_document(
        mut self,
        path: &str,
        content_type: &'static str,
        content: &serde_json::Value,
    ) -> Self {
        let document = Document { content_type, ..Document::json(content) };
        self.documents.push((path.to_owned(), document));
        self
    }

    /// The document at `/version`, and the added documents.
    fn documents(&self) -> Documents {
        Documents {
            version: version::document(&self.name, self.kubernetes.as_deref(), &self.commit),
            others: self.documents.iter().cloned().collect(),
        }
    }

    /// Replaces the clock, and with it the source of random numbers.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Disables an admission plugin. Without a cluster, NamespaceLifecycle would find no namespace, and ResourceQuota
    /// no quota. A server for a cluster that it cannot read refuses all writes unless both plugins of webhooks are
    /// disabled.
    ///
    /// ```
    /// use aggregated_apiserver::serving::AdmissionPluginName;
    /// use aggregated_apiserver::{ApiServer, Kinds};
    ///
    /// let server = ApiServer::new("foo-server", Kinds::new())
    ///     .without_admission_plugin(AdmissionPluginName::MutatingAdmissionWebhook)
    ///     .without_admission_plugin(AdmissionPluginName::ValidatingAdmissionWebhook);
    /// ```
    #[must_use]
    pub fn without_admission_plugin(mut self, plugin: AdmissionPluginName) -> Self {
        self.disabled.push(plugin);
        self
    }

    /// Sets the largest part of the store that the objects of one namespace may use.
    #[must_use]
    pub fn with_store_namespace_limit(mut self, share: NamespaceLimit) -> Self {
        self.namespace_limit = share;
        self
    }

    /// Stores objects without `metadata.managedFields`, which saves their bytes where no client uses server-side apply.
    /// [`Patch::Apply`](kube::api::Patch::Apply) and `kubectl apply --server-side` are rejected with 415.
    #[must_use]
    pub fn without_managed_fields(mut self) -> Self {
        self.managed_fields = ManagedFields::Dropped;
        self
    }

    /// Sets a memory limit in bytes, which the server observes as far as possible. A server with a cluster reads the
    /// limit of its container by default.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Stores objects in this store, which can be your own implementation, as the module `store` shows. Flags that name
    /// another store are then rejected.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use aggregated_apiserver::{ApiServer, Kinds};
    /// # use aggregated_apiserver::store::Store;
    /// # fn server(kinds: Kinds, store: Arc<dyn Store>) -> ApiServer {
    /// ApiServer::new("foo-server", kinds).with_store(store)
    /// # }
    /// ```
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Authenticates requests with this chain. The default are the built-in authenticators. The module
    /// [`auth`](crate::auth) has an example.
    #[must_use]
    pub fn with_authenticators(mut self, authenticators: Authenticators) -> Self {
        self.authenticators = authenticators;
        self
    }

    /// Authorizes requests with this chain. The default is the built-in authorizer, which asks the cluster. The module
    /// [`auth`](crate::auth) has an example.
    #[must_use]
    pub fn with_authorizers(mut self, authorizers: Authorizers) -> Self {
        self.authorizers = authorizers;
        self
    }

    /// Records requests in an audit log as these flags configure it. Flags of the command line take precedence.
    ///
    /// # Errors
    /// If the policy is invalid, or the file cannot be opened.
    pub fn with_audit(mut self, args: &AuditArgs) -> Result<Self, StartError> {
        self.audit = args.open(&self.clock)?;
        Ok(self)
    }

    /// Sends spans of requests as these flags configure it. Flags of the command line take precedence.
    ///
    /// # Errors
    /// If the file is invalid, or this program was built without tracing.
    pub fn with_traces(mut self, args: &TracingArgs) -> Result<Self, StartError> {
        self.traces = args.open(&self.name, &self.clock)?;
        Ok(self)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The kinds of the server, parsed and checked for conflicts with each other.
    pub(crate) fn parsed_kinds(&self) -> Result<Vec<Arc<Kind>>, StartError> {
        parsed_kinds::parse(&self.kinds)
    }

    /// A client of the cluster that a kubeconfig names, or of the default cluster. The client does not retry, because a
    /// command that inspects a cluster must report a 503 at once and not after minutes of retries.
    pub(crate) async fn cluster(kubeconfig: Option<&Path>) -> Result<Cluster, StartError> {
        tls::install_provider();
        let mut config = args::cluster_config(kubeconfig).await?;
        config.default_retry = false;
        let client =
            Client::try_from(config).map_err(|error| StartError::Cluster(error.to_string()))?;
        Ok(Cluster::new(client))
    }

    /// The kinds with stored objects, as a store that outlives the process has them. Kinds of Kubernetes itself are
    /// omitted, because their versions are converted in another way.
    pub(crate) fn stored_kinds(&self) -> Result<Vec<Kind>, StartError> {
        let kinds = parsed_kinds::parse(&self.kinds)?;
        let stored = kinds.into_iter().zip(self.kinds.iter());
        let stored = stored.filter(|(kind, registered)| {
            registered.stored_name().is_some() && kind.view.is_none() && !kind.is_typed()
        });
        Ok(stored.map(|(kind, _)| Arc::unwrap_or_clone(kind).with_shape()).collect())
    }

    /// The memory limits of the server.
    fn bounds(&self, said: Said) -> Bounds {
        let mut records = Records::default();
        if let Some(audit) = &self.audit {
            records.waiting += audit.memory();
            records.of_watch += Audit::MEMORY_OF_REQUEST;
        }
        if let Some(traces) = &self.traces {
            records.waiting += traces.memory();
            records.of_watch += Traces::MEMORY_OF_REQUEST;
        }
        let contents = Contents::of(&self.kinds, said).with_records(records);
        Bounds::within(self.memory_limit, contents)
    }

    /// The kinds of the server, with patterns that are compiled for this server alone.
    fn parse_own_kinds(&self) -> Result<Vec<Arc<Kind>>, StartError> {
        self.patterns.scope(|| parsed_kinds::parse(&self.kinds))
    }

    fn limits(&self, bounds: Bounds) -> Limits {
        let is_enabled = |plugin| !self.disabled.contains(&plugin);
        Limits {
            webhooks: WebhookOptions {
                mutating: is_enabled(AdmissionPluginName::MutatingAdmissionWebhook),
                validating: is_enabled(AdmissionPluginName::ValidatingAdmissionWebhook),
                policies: is_enabled(AdmissionPluginName::ValidatingAdmissionPolicy),
                unread: match self.unread_webhooks {
                    WebhookReadFailurePolicy::Fail => UnreadConfigurations::Refuse,
                    WebhookReadFailurePolicy::Ignore => UnreadConfigurations::Admit,
                },
            },
            looks_at_namespaces: is_enabled(AdmissionPluginName::NamespaceLifecycle),
            enforces_quotas: is_enabled(AdmissionPluginName::ResourceQuota),
            namespace_limit: self.namespace_limit,
            managed_fields: self.managed_fields,
            store: self.store.clone(),
            audit: self.audit.clone(),
            traces: self.traces.clone(),
            request_timeout: self.request_timeout,
            patterns: self.patterns.clone(),
            bounds,
        }
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    ///
    /// # Errors
    /// If the server cannot start: the error names the flag, file or kind to change. If the server cannot continue.
    pub async fn run(self, args: &Args) -> Result<(), StartError> {
        let delay = args.shutdown_delay_duration;
        self.bind(args).await?.start().await?.run(delay).await
    }

    /// Checks kinds and flags, and listens on the address.
    ///
    /// # Errors
    /// If a kind cannot be served, a flag or a file cannot be used, or the address is in use.
    pub async fn bind(mut self, args: &Args) -> Result<BoundServer, StartError> {
        tls::install_provider();
        // Errors in the kinds are reported first.
        let kinds = self.parse_own_kinds()?;
        let mut config = args.cluster_config().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        config.default_namespace.clone_from(&namespace);
        let client =
            Client::try_from(config).map_err(|error| StartError::Cluster(error.to_string()))?;
        self.memory_limit = self.memory_limit.or_else(memory::limit);
        self.open_records(args)?;
        let bounds = self.bounds(args.memory());
        let has_own_store = self.store.is_some();
        self.open_store(args, bounds)?;
        let place = match (&args.data_dir, args.etcd.options(&self.name)) {
            _ if has_own_store => "the program's own store".to_owned(),
            (Some(folder), _) => folder.display().to_string(),
            (None, Some(etcd)) => format!("etcd, under {}", etcd.prefix),
            (None, None) => "memory; they are lost at a restart, and their dependents are garbage collected; --data-dir or --etcd-servers stores them durably".to_owned(),
        };
        let stored: Vec<String> =
            self.kinds.iter().filter_map(definition::Kind::stored_name).collect();
        if !stored.is_empty() {
            tracing::info!(kinds = stored.join(","), "storing objects in {place}");
        }
        let cluster = Cluster::new(client)
            .with_source_memory(bounds.source_memory)
            .with_authorizers(self.authorizers.clone());
        if args.copy_stored_objects {
            // The copy must be complete before the first request can arrive.
            let stored = kinds.iter().zip(self.kinds.iter());
            let stored = stored.filter(|(_, registered)| registered.stored_name().is_some());
            let stored: Vec<Arc<Kind>> = stored.map(|(kind, _)| Arc::clone(kind)).collect();
            self.copied = object_copy::copy(&cluster, &stored).await;
        }
        let cluster = (cluster, Impersonation::Refused);
        self.listen((args, bounds), kinds, cluster, namespace, Loopback::default())
    }

    /// Checks kinds and flags, and listens on the address, without a cluster. The server sends its own requests to
    /// itself.
    ///
    /// # Errors
    /// Same as [`ApiServer::bind`].
    pub fn bind_without_cluster(mut self, args: &Args) -> Result<BoundServer, StartError> {
        tls::install_provider();
        let kinds = self.parse_own_kinds()?;
        self.open_records(args)?;
        let bounds = self.bounds(Said { source_memory: None, ..args.memory() });
        self.open_store(args, bounds)?;
        let namespace = args.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let loopback = Loopback::default();
        let cluster = loopback.cluster().with_authorizers(self.authorizers.clone());
        let cluster = (cluster, Impersonation::Authorized);
        self.listen((args, bounds), kinds, cluster, namespace, loopback)
    }

    /// Opens the audit log and the traces that flags configure. The memory limits include both, so they are computed
    /// afterwards.
    fn open_records(&mut self, args: &Args) -> Result<(), StartError> {
        if let Some(audit) = args.audit.open(&self.clock)? {
            self.audit = Some(audit);
        }
        if let Some(traces) = args.tracing.open(&self.name, &self.clock)? {
            self.traces = Some(traces);
        }
        Ok(())
    }

    /// Opens the store that the flags name, if any.
    fn open_store(&mut self, args: &Args, bounds: Bounds) -> Result<(), StartError> {
        if self.store.is_some() {
            return args.ensure_no_store();
        }
        let options = StoreOptions {
            limit: bounds.objects,
            history: bounds.history,
            queue: bounds.queue,
            share: args.store_namespace_limit,
            encryption: encryption(args.encryption_provider_config.as_deref())?,
        };
        if let Some(etcd) = args.etcd.options(&self.name) {
            self.store = Some(storage::open_etcd(&etcd, options).map_err(StartError::Etcd)?);
            return Ok(());
        }
        let Some(folder) = &args.data_dir else {
            return match &args.encryption_provider_config {
                None => Ok(()),
                Some(file) => {
                    let why =
                        "objects are kept in memory alone: it needs --data-dir or --etcd-servers";
                    Err(StartError::file("encryption-provider-config", file, why))
                }
            };
        };
        let store = blocking(|| storage::open(folder, options, self.clock.now()));
        self.store = Some(store.map_err(|why| StartError::file("data-dir", folder, why))?);
        Ok(())
    }

    fn listen(
        mut self,
        (args, bounds): (&Args, Bounds),
        kinds: Vec<Arc<Kind>>,
        (cluster, impersonation): (Cluster, Impersonation),
        namespace: String,
        loopback: Loopback,
    ) -> Result<BoundServer, StartError> {
        self.hooks.validate()?;
        self.disabled.extend(&args.disable_admission_plugins);
        self.unread_webhooks = args.webhook_configurations_failure_policy;
        self.namespace_limit = args.store_namespace_limit;
        self.request_timeout = args.request_timeout;
        if args.drop_managed_fields {
            self.managed_fields = ManagedFields::Dropped;
        }
        let trusted = Trusted::new(args, cluster.clone(), self.authenticators.clone())?;
        let identity = Identity {
            service: args.service_name.clone().unwrap_or_else(|| self.name.clone()),
            namespace,
            secret: manifests::secret(&self.name),
            api_services: match impersonation {
                Impersonation::Refused => manifests::api_service_names(&kinds, &self.kinds),
                // Without a cluster, no client uses the name of a Service.
                Impersonation::Authorized => Vec::new(),
            },
        };
        let certificate = serving_certificate::open(args, identity)?;
        let listening = Listening::bind(SocketAddr::new(args.bind_address, args.secure_port))?;
        let plain_ports = PlainPorts::bind(args)?;
        Ok(BoundServer {
            server: self,
            bounds,
            kinds,
            cluster,
            impersonation,
            trusted,
            certificate,
            listening,
            plain_ports,
            loopback,
        })
    }

    /// Starts the server within this process, without a socket.
    ///
    /// # Errors
    /// If a kind cannot be served.
    pub async fn in_process(
        self,
        cluster: impl Into<ClusterClient>,
    ) -> Result<InProcess, StartError> {
        let (running, unready) = self.in_process_unready(cluster).await?;
        unready.mark_ready();
        Ok(running)
    }

    /// Starts the server within this process, without a socket. Its post-start hooks run once
    /// [`PendingReadiness::mark_ready`] is called, so that the caller can create objects first.
    ///
    /// # Errors
    /// If a kind cannot be served.
    pub async fn in_process_unready(
        mut self,
        cluster: impl Into<ClusterClient>,
    ) -> Result<(InProcess, PendingReadiness), StartError> {
        let loopback = Loopback::default();
        let (cluster, impersonation) = match cluster.into() {
            ClusterClient::Client(client) => (Cluster::new(client), Impersonation::Refused),
            ClusterClient::Loopback => (loopback.cluster(), Impersonation::Authorized),
        };
        let cluster = cluster.with_authorizers(self.authorizers.clone());
        let authentication = Authentication {
            authenticators: self.authenticators.clone(),
            delegated: Arc::default(),
            cluster: Some(cluster.clone()),
            impersonation,
            allows_anonymous: true,
            slots: Arc::new(Reviews::new()),
        };
        let closing = CancellationToken::new();
        let guard = closing.clone().drop_guard();
        let kinds = self.parse_own_kinds()?;
        self.hooks.validate()?;
        let mut hooks = std::mem::take(&mut self.hooks);
        let bounds = self.bounds(Said::default());
        let cluster = cluster.with_source_memory(bounds.source_memory);
        let limits = self.limits(bounds);
        let documents = self.documents();
        let mut assembled = Assembled::new(
            kinds,
            (&self.kinds, &self.copied),
            self.clock,
            (cluster.clone(), documents),
            (limits, hooks.additions()),
            authentication,
            closing.clone(),
        )
        .await?;
        loopback.connect(&assembled.handler);
        let unready = PendingReadiness::new();
        assembled.run(*hooks, &loopback, &cluster, (&closing, &unready.0.subscribe()));
        Ok((InProcess { assembled, loopback, _closing: guard }, unready))
    }

    /// The manifests of the deployment, as YAML.
    ///
    /// # Errors
    /// If a kind cannot be served, or the servers of etcd are missing.
    pub fn manifests(&self, options: &manifests::Options) -> Result<String, StartError> {
        let kinds = parsed_kinds::parse(&self.kinds)?;
        if options.store == manifests::DeployedStore::Etcd && options.etcd_servers.is_empty() {
            return Err(StartError::Etcd("--etcd-servers contains no URL".to_owned()));
        }
        Ok(manifests::render(&self.name, &kinds, &self.kinds, options))
    }
}

/// Runs blocking work. In a multi-threaded runtime, other tasks continue on other threads.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
