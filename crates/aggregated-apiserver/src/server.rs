//! ApiServer: from kinds to a server.
//!
//! Configured, bound, running and drained are different types: what cannot be
//! done in a state cannot be written.

mod args;
mod assemble;
mod authentication;
mod bounded_stream;
mod ca_bundle;
mod certificate;
mod connection;
mod copied;
mod draining;
mod frame_budget;
mod heads;
mod health;
mod kept_objects;
mod listener;
mod logging;
mod loopback;
mod memory;
mod occupant;
mod open_files;
mod peer_identity;
mod places;
mod plain;
mod presented;
mod router;
mod running;
mod runtime_kinds;
mod serving_certificate;
mod slot;
mod stored_definition;
mod streams;
mod tls;
mod version;

pub(crate) use args::encryption;
pub use args::{AdmissionPluginName, Args, AuditArgs, EtcdArgs, LoggingFormat, TracingArgs};
pub use kept_objects::{KeptObject, KeptObjects};
pub use logging::start_logging;
pub(crate) use presented::{is_bundle, presented, refusal};
pub use running::{Bound, Drained, InProcess, Running, Unready};
pub use runtime_kinds::{RestoreError, RuntimeKinds, StoredKind, TakenNames};

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReviewSpec, SubjectAccessReviewStatus};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::cluster::{Authorizer, Cluster};
use crate::definition::{Kinds, Registered};
use crate::document::Document;
use crate::error::StartError;
use crate::kind::{Kind, PatternCache};
use crate::manifests;
use crate::record::{Audit, Traces};
use crate::request::{Authentication, Documents, Impersonation, REQUEST_TIMEOUT};
use crate::storage::{self, NamespaceShare, Store, StoreOptions};
use crate::write::ManagedFields;
use assemble::{Assembled, Limits};
use authentication::Trusted;
use copied::Copied;
use listener::Listening;
use loopback::Loopback;
use memory::{Bounds, Contents, Records, Said};
use plain::PlainPorts;
use serving_certificate::Identity;

/// A server that is configured: its name and its kinds are known.
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
    kubernetes: Option<String>,
    commit: String,
    documents: Vec<(String, Document)>,
    copied: Copied,
    namespace_share: NamespaceShare,
    memory_limit: Option<usize>,
    managed_fields: ManagedFields,
    store: Option<Arc<dyn Store>>,
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<Traces>>,
    authorizer: Option<Authorizer>,
    request_timeout: Duration,
    patterns: PatternCache,
}

/// What a server takes for the cluster: what it computes from, asks for
/// rights, and looks for namespaces in.
pub enum ClusterClient {
    /// What this client speaks to.
    Client(Client),
    /// The server itself, in this process.
    Loopback,
}

impl From<Client> for ClusterClient {
    fn from(client: Client) -> Self {
        Self::Client(client)
    }
}

impl ApiServer {
    /// A server of this name, which its Service and its objects in the
    /// cluster have too.
    pub fn new(name: &str, kinds: Kinds) -> Self {
        Self {
            name: name.to_owned(),
            kinds,
            clock: Clock::system(),
            disabled: Vec::new(),
            kubernetes: None,
            commit: String::new(),
            documents: Vec::new(),
            copied: Copied::new(),
            namespace_share: NamespaceShare::default(),
            memory_limit: None,
            managed_fields: ManagedFields::default(),
            store: None,
            audit: None,
            traces: None,
            authorizer: None,
            request_timeout: REQUEST_TIMEOUT,
            patterns: PatternCache::default(),
        }
    }

    /// The same server, which says in `/version` that it behaves as this release
    /// of Kubernetes: `v1.36.3`. Clients judge by that what they may ask for.
    #[must_use]
    pub fn with_kubernetes_version(mut self, release: &str) -> Self {
        self.kubernetes = Some(release.to_owned());
        self
    }

    /// The same server, which says in `/version` that it is built of this commit.
    #[must_use]
    pub fn with_commit(mut self, commit: &str) -> Self {
        commit.clone_into(&mut self.commit);
        self
    }

    /// The same server, which answers a GET of this path with this JSON, for whoever may get the
    /// path. A path of Kubernetes' own stays what it is.
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

    /// `/version`, and what else was given.
    fn documents(&self) -> Documents {
        Documents {
            version: version::document(&self.name, self.kubernetes.as_deref(), &self.commit),
            others: self.documents.iter().cloned().collect(),
        }
    }

    /// The same server with another clock, and other random numbers.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The same server without this admission plugin. Without a cluster, NamespaceLifecycle would
    /// find no namespace, and ResourceQuota no quota.
    #[must_use]
    pub fn without_admission_plugin(mut self, plugin: AdmissionPluginName) -> Self {
        self.disabled.push(plugin);
        self
    }

    /// The same server, of whose store the objects of one namespace take no more than this share.
    #[must_use]
    pub fn with_store_namespace_share(mut self, share: NamespaceShare) -> Self {
        self.namespace_share = share;
        self
    }

    /// The same server, whose objects do not say who owns which of their fields. That saves its bytes
    /// where nobody applies: [`Patch::Apply`](kube::api::Patch::Apply) and
    /// `kubectl apply --server-side` are refused with 415.
    #[must_use]
    pub fn without_managed_fields(mut self) -> Self {
        self.managed_fields = ManagedFields::Dropped;
        self
    }

    /// The same server, which takes no more memory than so many bytes, as far as that can be. One
    /// that serves behind a cluster finds out by itself what its container may take.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The same server, which keeps its objects in this store: one of your own, as the module
    /// `store` shows. Flags that name another one are refused then.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use aggregated_apiserver::{ApiServer, Kinds, store::Store};
    /// # fn server(kinds: Kinds, store: Arc<dyn Store>) -> ApiServer {
    /// ApiServer::new("foo-server", kinds).with_store(store)
    /// # }
    /// ```
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The same server, which asks this code who may do what, and not the cluster: for each right that a request of a user needs who
    /// is no member of `system:masters`, and again every few minutes while a watch lasts. Nothing of what it answers is remembered,
    /// and requests wait for it, so it must be quick. Of its answers `allowed`, `denied` and `reason` count.
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;
    ///
    /// let server = ApiServer::new("foo-server", Kinds::new()).with_authorizer(|asked| {
    ///     let reads = |verb: &str| ["get", "list", "watch"].contains(&verb);
    ///     let resource = asked.resource_attributes.as_ref();
    ///     let allowed = resource.and_then(|asked| asked.verb.as_deref()).is_some_and(reads);
    ///     SubjectAccessReviewStatus { allowed, ..Default::default() }
    /// });
    /// ```
    #[must_use]
    pub fn with_authorizer(
        mut self,
        authorizer: impl Fn(&SubjectAccessReviewSpec) -> SubjectAccessReviewStatus
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// The same server, whose requests are written down as these flags say; those of the command
    /// line come first.
    ///
    /// # Errors
    /// When the policy says something wrong, or the file cannot be opened.
    pub fn with_audit(mut self, args: &AuditArgs) -> Result<Self, StartError> {
        self.audit = args.open(&self.clock)?;
        Ok(self)
    }

    /// The same server, whose requests leave spans where these flags say; those of the command line come
    /// first.
    ///
    /// # Errors
    /// When the file says something wrong, or this program was built without traces.
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

    /// Its kinds, parsed and held against each other.
    pub(crate) fn parsed_kinds(&self) -> Result<Vec<Arc<Kind>>, StartError> {
        assemble::parse(&self.kinds)
    }

    /// A client of the cluster that a kubeconfig names, or that is found without one, which asks once: who
    /// looks at a cluster wants to see a 503, and not to have it tried again for minutes.
    pub(crate) async fn cluster(kubeconfig: Option<&Path>) -> Result<Cluster, StartError> {
        tls::install_provider();
        let mut config = args::cluster_config(kubeconfig).await?;
        config.default_retry = false;
        let client =
            Client::try_from(config).map_err(|error| StartError::Cluster(error.to_string()))?;
        Ok(Cluster::new(client))
    }

    /// Its kinds whose objects are stored, as a store that outlives the process has them; those of
    /// Kubernetes itself, whose versions are converted in another way, are left out.
    pub(crate) fn stored_kinds(&self) -> Result<Vec<Kind>, StartError> {
        let kinds = assemble::parse(&self.kinds)?;
        let stored = kinds.into_iter().zip(self.kinds.iter());
        let stored = stored.filter(|(kind, registered)| {
            registered.stored().is_some() && kind.view.is_none() && !kind.is_typed()
        });
        Ok(stored.map(|(kind, _)| Arc::unwrap_or_clone(kind).with_shape()).collect())
    }

    /// What it may take.
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

    /// Its kinds, whose patterns are compiled for it alone.
    fn parse_own_kinds(&self) -> Result<Vec<Arc<Kind>>, StartError> {
        self.patterns.scope(|| assemble::parse(&self.kinds))
    }

    fn limits(&self, bounds: Bounds) -> Limits {
        let is_enabled = |plugin| !self.disabled.contains(&plugin);
        Limits {
            looks_at_namespaces: is_enabled(AdmissionPluginName::NamespaceLifecycle),
            enforces_quotas: is_enabled(AdmissionPluginName::ResourceQuota),
            namespace_share: self.namespace_share,
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
    /// When it cannot start; names the flag, file or kind to change. When it
    /// cannot go on.
    pub async fn run(self, args: &Args) -> Result<(), StartError> {
        let delay = args.shutdown_delay_duration;
        self.bind(args).await?.start().await?.run(delay).await
    }

    /// Checks kinds and flags, and listens.
    ///
    /// # Errors
    /// When a kind cannot be served, a flag or file cannot be used, or the
    /// address is taken.
    pub async fn bind(mut self, args: &Args) -> Result<Bound, StartError> {
        tls::install_provider();
        // What is wrong with the kinds is said before anything else is tried.
        let kinds = self.parse_own_kinds()?;
        let config = args.cluster_config().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| StartError::Cluster(error.to_string()))?;
        self.memory_limit = self.memory_limit.or_else(memory::limit);
        self.open_records(args)?;
        let bounds = self.bounds(args.memory());
        let has_own_store = self.store.is_some();
        self.open_store(args, bounds)?;
        let place = match (&args.data_dir, args.etcd.options(&self.name)) {
            _ if has_own_store => "a store of the program's own".to_owned(),
            (Some(folder), _) => folder.display().to_string(),
            (None, Some(etcd)) => format!("etcd, under {}", etcd.prefix),
            (None, None) => "memory: a restart forgets them, and the cluster then collects what they own as garbage; --data-dir or --etcd-servers keeps them".to_owned(),
        };
        let stored: Vec<String> = self.kinds.iter().filter_map(Registered::stored).collect();
        if !stored.is_empty() {
            tracing::info!(kinds = stored.join(","), "storing objects in {place}");
        }
        let cluster = Cluster::new(client)
            .with_source_memory(bounds.source_memory)
            .with_authorizer(self.authorizer.clone());
        if args.copy_stored_objects {
            // Before the first request can arrive here.
            let stored = kinds.iter().zip(self.kinds.iter());
            let stored = stored.filter(|(_, registered)| registered.stored().is_some());
            let stored: Vec<Arc<Kind>> = stored.map(|(kind, _)| Arc::clone(kind)).collect();
            self.copied = copied::copy(&cluster, &stored).await;
        }
        let cluster = (cluster, Impersonation::Refused);
        self.listen((args, bounds), kinds, cluster, namespace, Loopback::default())
    }

    /// The same without a cluster: the server asks itself instead.
    ///
    /// # Errors
    /// As [`ApiServer::bind`].
    pub fn bind_without_cluster(mut self, args: &Args) -> Result<Bound, StartError> {
        tls::install_provider();
        let kinds = self.parse_own_kinds()?;
        self.open_records(args)?;
        let bounds = self.bounds(Said { source_memory: None, ..args.memory() });
        self.open_store(args, bounds)?;
        let namespace = args.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let loopback = Loopback::default();
        let cluster = Cluster::new(loopback.client_of_itself());
        let cluster = cluster.with_authorizer(self.authorizer.clone());
        let cluster = (cluster, Impersonation::Authorized);
        self.listen((args, bounds), kinds, cluster, namespace, loopback)
    }

    /// Opens what flags say of the audit log and of traces, before bounds are computed, because they are a part of them.
    fn open_records(&mut self, args: &Args) -> Result<(), StartError> {
        if let Some(audit) = args.audit.open(&self.clock)? {
            self.audit = Some(audit);
        }
        if let Some(traces) = args.tracing.open(&self.name, &self.clock)? {
            self.traces = Some(traces);
        }
        Ok(())
    }

    /// Opens the store that is named, if one is.
    fn open_store(&mut self, args: &Args, bounds: Bounds) -> Result<(), StartError> {
        if self.store.is_some() {
            return args.ensure_no_store();
        }
        let options = StoreOptions {
            limit: bounds.objects,
            history: bounds.history,
            queue: bounds.queue,
            share: args.store_namespace_share,
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
    ) -> Result<Bound, StartError> {
        self.disabled.extend(&args.disable_admission_plugins);
        self.namespace_share = args.store_namespace_share;
        self.request_timeout = args.request_timeout;
        if args.drop_managed_fields {
            self.managed_fields = ManagedFields::Dropped;
        }
        let trusted = Trusted::new(args, cluster.clone())?;
        let identity = Identity {
            service: args.service_name.clone().unwrap_or_else(|| self.name.clone()),
            namespace,
            secret: manifests::secret(&self.name),
            api_services: match impersonation {
                Impersonation::Refused => manifests::api_service_names(&kinds),
                // Without a cluster nobody calls it by the name of a Service.
                Impersonation::Authorized => Vec::new(),
            },
        };
        let certificate = serving_certificate::open(args, identity)?;
        let listening = Listening::bind(SocketAddr::new(args.bind_address, args.secure_port))?;
        let plain_ports = PlainPorts::bind(args)?;
        Ok(Bound {
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

    /// The same server in this process, without a socket.
    ///
    /// # Errors
    /// When a kind cannot be served.
    pub async fn in_process(
        self,
        cluster: impl Into<ClusterClient>,
    ) -> Result<InProcess, StartError> {
        let loopback = Loopback::default();
        let (cluster, impersonation) = match cluster.into() {
            ClusterClient::Client(client) => (Cluster::new(client), Impersonation::Refused),
            ClusterClient::Loopback => {
                (Cluster::new(loopback.client_of_itself()), Impersonation::Authorized)
            }
        };
        let cluster = cluster.with_authorizer(self.authorizer.clone());
        let authentication = Authentication {
            delegated: Arc::default(),
            cluster: Some(cluster.clone()),
            impersonation,
            allows_anonymous: true,
        };
        let closing = CancellationToken::new();
        let guard = closing.clone().drop_guard();
        let kinds = self.parse_own_kinds()?;
        let bounds = self.bounds(Said::default());
        let cluster = cluster.with_source_memory(bounds.source_memory);
        let limits = self.limits(bounds);
        let documents = self.documents();
        let assembled = Assembled::new(
            kinds,
            (&self.kinds, &self.copied),
            self.clock,
            (cluster, documents),
            limits,
            authentication,
            closing,
        )
        .await?;
        loopback.connect(&assembled.handler);
        Ok(InProcess { assembled, loopback, _closing: guard })
    }

    /// Everything to deploy, as YAML.
    ///
    /// # Errors
    /// When a kind cannot be served, or it is not said where etcd is.
    pub fn manifests(&self, options: &manifests::Options) -> Result<String, StartError> {
        let kinds = assemble::parse(&self.kinds)?;
        if options.store == manifests::DeployedStore::Etcd && options.etcd_servers.is_empty() {
            return Err(StartError::Etcd("--etcd-servers names none".to_owned()));
        }
        Ok(manifests::render(&self.name, &kinds, &self.kinds, options))
    }
}

/// Does work that blocks. Where other tasks can run elsewhere meanwhile, they do.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
