//! The standalone server as a program, on a port of this machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aggregated_apiserver::auth::{Authenticators, Authorizers};
use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, StartError};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use tempfile::TempDir;
use thiserror::Error;

use crate::authentication_config::AuthenticationConfig;
use crate::authorizer::{Authorizer, NoEscalation, Rbac, bootstrap_policy};
use crate::built_in::{BuiltInKindError, CertificatePermissions, PodSecurityConfiguration};
use crate::certificates::Certificates;
use crate::controllers::definitions::{Definitions, Now};
use crate::controllers::{Controllers, aggregated_roles, namespace_objects, resource_quotas};
use crate::files::{self, LoadedObject};
use crate::objects::{self, ObjectError};
use crate::pods::PodHandlers;
use crate::reviews::Reviewers;
use crate::service_account_tokens::{ISSUER, ServiceAccountTokens};
use crate::test_server::admin;
use crate::{
    admission_configuration, authentication_config, built_in, cluster_objects, kubeconfig, reviews,
    token_auth_file, welcome,
};

/// The release of Kubernetes whose behaviour is compared with that of this server.
pub(crate) const KUBERNETES: &str = "v1.36.3";

/// The group of these flags, as `--help` shows them.
const GROUP: &str = "Without a cluster";

/// Flags of a server without a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
#[non_exhaustive]
pub struct StandaloneArgs {
    /// Serve on 127.0.0.1 without a cluster, with the built-in kinds of Kubernetes
    #[arg(help_heading = GROUP, long)]
    pub standalone: bool,

    /// Load the objects of a YAML file, or of all files in a directory
    ///
    /// The flag may be repeated. CustomResourceDefinitions among the objects are served. Objects that are stored in --data-dir or in etcd
    /// stay unchanged.
    #[arg(help_heading = GROUP, long, value_name = "PATH", requires = "standalone")]
    pub load: Vec<PathBuf>,

    /// Directory of certificates, keys and the kubeconfig
    ///
    /// By default it is --data-dir, or a temporary directory. Servers with the same etcd share the directory, so that each accepts the
    /// certificates and tokens of the others.
    #[arg(help_heading = GROUP, long, value_name = "DIR", requires = "standalone")]
    pub cert_dir: Option<PathBuf>,

    /// File to write the kubeconfig to
    ///
    /// By default it is in the directory of the certificates. Servers that share this directory need a file each, because the last one to start
    /// overwrites the file.
    #[arg(help_heading = GROUP, long, value_name = "FILE", requires = "standalone")]
    pub write_kubeconfig: Option<PathBuf>,

    /// File with tokens of users, with lines of token,user,uid,"group,group"
    #[arg(help_heading = GROUP, long, value_name = "FILE", requires = "standalone")]
    pub token_auth_file: Option<PathBuf>,

    /// AdmissionConfiguration of apiserver.config.k8s.io
    ///
    /// PodSecurity is the only plugin with a configuration.
    #[arg(help_heading = GROUP, long, value_name = "FILE", requires = "standalone")]
    pub admission_control_config_file: Option<PathBuf>,

    /// AuthenticationConfiguration of apiserver.config.k8s.io: tokens of OpenID Connect issuers, and anonymous requests
    ///
    /// The file is read again when it changes. An invalid new file is logged and not used. Signatures with ES512,
    /// egressSelectorType and distributed claims are rejected.
    #[arg(help_heading = GROUP, long, value_name = "FILE", requires = "standalone")]
    pub authentication_config: Option<PathBuf>,
}

/// The reason for which a standalone server does not start or continue. It contains the flag, file or kind to change.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StandaloneError {
    /// An error of the server itself.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An invalid flag.
    #[error("--{flag} {message}")]
    Flag {
        /// The flag, without the dashes.
        flag: &'static str,
        /// The problem.
        message: String,
    },
    /// An object that cannot be loaded.
    #[error("--load {0}")]
    Object(#[from] ObjectError),
    /// The definition of a built-in kind is invalid.
    #[error("the definition of a built-in kind is invalid: {0}")]
    BuiltIn(#[from] serde_json::Error),
    /// A built-in kind cannot be served.
    #[error(transparent)]
    BuiltInKind(#[from] BuiltInKindError),
}

impl StandaloneError {
    fn flag(flag: &'static str, message: impl Into<String>) -> Self {
        Self::Flag { flag, message: message.into() }
    }

    fn file(flag: &'static str, file: &Path, why: &str) -> Self {
        Self::flag(flag, format!("{}: {why}", file.display()))
    }
}

/// The changes that a program makes to the [`ApiServer`] of a server without a cluster.
#[derive(Default)]
pub(crate) struct ServerChanges(Vec<Box<dyn FnOnce(ApiServer) -> ApiServer + Send + Sync>>);

impl ServerChanges {
    pub(crate) fn add(
        &mut self,
        change: impl FnOnce(ApiServer) -> ApiServer + Send + Sync + 'static,
    ) {
        self.0.push(Box::new(change));
    }

    /// Changes a server, in the order in which the changes were added.
    pub(crate) fn apply(self, server: ApiServer) -> ApiServer {
        self.0.into_iter().fold(server, |server, change| change(server))
    }
}

/// A server without a cluster, with its own kinds beside the built-in ones.
pub struct Standalone {
    name: String,
    kinds: Kinds,
    authenticators: Authenticators,
    authorizers: Authorizers,
    changes: ServerChanges,
}

impl Standalone {
    /// Creates a server of this name with these kinds.
    pub fn new(name: &str, kinds: Kinds) -> Self {
        Self {
            name: name.to_owned(),
            kinds,
            authenticators: Authenticators::default(),
            authorizers: Authorizers::default(),
            changes: ServerChanges::default(),
        }
    }

    /// Authenticates requests with this chain. Its authenticators of tokens also answer TokenReviews. The server has the
    /// audience `https://kubernetes.default.svc`.
    #[must_use]
    pub fn with_authenticators(mut self, authenticators: Authenticators) -> Self {
        self.authenticators = authenticators;
        self
    }

    /// Authorizes requests with this chain. Its built-in authorizer is RBAC. The chain also answers reviews of access
    /// and of rules.
    #[must_use]
    pub fn with_authorizers(mut self, authorizers: Authorizers) -> Self {
        self.authorizers = authorizers;
        self
    }

    /// Changes the [`ApiServer`] within this server, for example to add post-start hooks, checks, metrics, or layers. Hooks
    /// run when the objects of the start exist. The settings of the standalone server take precedence: the version of
    /// Kubernetes, and the chains of [`with_authenticators`](Self::with_authenticators) and
    /// [`with_authorizers`](Self::with_authorizers).
    ///
    /// ```
    /// use aggregated_apiserver::{ApiServer, Kinds};
    /// use standalone_apiserver::Standalone;
    ///
    /// fn with_check(server: ApiServer) -> ApiServer {
    ///     server.with_readiness_check("database", || Ok(()))
    /// }
    ///
    /// // The same function serves both servers.
    /// let in_a_cluster = with_check(ApiServer::new("foo-server", Kinds::new()));
    /// let without_a_cluster = Standalone::new("foo-server", Kinds::new()).with_server(with_check);
    /// ```
    #[must_use]
    pub fn with_server(
        mut self,
        change: impl FnOnce(ApiServer) -> ApiServer + Send + Sync + 'static,
    ) -> Self {
        self.changes.add(change);
        self
    }

    /// Serves on the loopback address until SIGTERM or SIGINT. When the server is ready, it prints the line that
    /// configures kubectl for it.
    ///
    /// # Errors
    /// The reason, if the server cannot start, with the flag, file or kind to change.
    pub async fn run(
        mut self,
        args: &ServeArgs,
        own: &StandaloneArgs,
    ) -> Result<(), StandaloneError> {
        let tokens = match &own.token_auth_file {
            Some(file) => token_auth_file::read(file)
                .map_err(|why| StandaloneError::file("token-auth-file", file, &why))?,
            None => Vec::new(),
        };
        let pod_security = match &own.admission_control_config_file {
            Some(file) => admission_configuration::read(file)
                .map_err(|why| StandaloneError::flag("admission-control-config-file", why))?,
            None => PodSecurityConfiguration::default(),
        };
        let now: Now = Arc::new(Timestamp::now);
        let authentication = AuthenticationFile::open(own, args)?;
        let (mut definitions, mut objects) = (Vec::new(), Vec::new());
        for path in &own.load {
            let read = files::read(path).map_err(|why| StandaloneError::flag("load", why))?;
            for loaded in read {
                match definition(&loaded) {
                    Some(Ok(definition)) => definitions.push((loaded.place, definition)),
                    Some(Err(why)) => {
                        let why = format!("{}: {why}", loaded.place);
                        return Err(StandaloneError::flag("load", why));
                    }
                    None => objects.push(loaded),
                }
            }
        }
        if let Some(file) = &own.write_kubeconfig {
            kubeconfig::check(file)
                .map_err(|why| StandaloneError::file("write-kubeconfig", file, &why))?;
        }
        let (folder_flag, folder) = match (&own.cert_dir, &args.data_dir) {
            (Some(folder), _) => ("cert-dir", Some(folder)),
            (None, folder) => ("data-dir", folder.as_ref()),
        };
        let folder = Folder::open(folder.map(PathBuf::as_path))?;
        let certificates = Certificates::open(folder.path())
            .map_err(|why| StandaloneError::file(folder_flag, folder.path(), &why))?;
        let accounts = certificates.service_account_key().and_then(|key| {
            let file = certificates.account_key.display();
            ServiceAccountTokens::new(&key).map_err(|why| format!("{file}: {why}"))
        });
        let accounts =
            accounts.map_err(|why| StandaloneError::file(folder_flag, folder.path(), &why))?;
        let jwt = authentication.map(|file| file.add_to(&mut self.authenticators, &now));
        let authorizer = Authorizer::new();
        let authorizers = self.authorizers.with_built_in(Rbac(Arc::clone(&authorizer)));
        let authenticators = self.authenticators.with_audience(ISSUER);
        let reviews = reviews::kinds(Reviewers {
            tokens,
            accounts: Arc::clone(&accounts),
            authenticators: authenticators.clone(),
            authorizers: authorizers.clone(),
            now: Arc::clone(&now),
        })?;
        let kinds =
            built_in::kinds(&accounts, pod_security, PodHandlers::default())?.merge(reviews);
        let own_kinds: Vec<String> = self.kinds.plural_names().map(str::to_owned).collect();
        let kinds = kinds.merge(built_in::views()?).merge(self.kinds);
        let kinds = kinds.with_admission_plugin(NoEscalation {
            roles: Arc::clone(&authorizer),
            authorizers: authorizers.clone(),
        });
        let kinds = kinds
            .with_admission_plugin(CertificatePermissions::approval(authorizers.clone()))
            .with_admission_plugin(CertificatePermissions::signing(authorizers.clone()));
        let mut args = on_this_machine(args, &certificates);
        if let Some(allows) = jwt.as_ref().and_then(|jwt| jwt.allows_anonymous) {
            args.anonymous_auth = allows;
        }
        let server = self.changes.apply(ApiServer::new(&self.name, kinds));
        let server = server.with_kubernetes_version(KUBERNETES);
        let server = server.with_authenticators(authenticators).with_authorizers(authorizers);
        let bound = with_documents(server, &accounts).bind_without_cluster(&args)?;
        let config = folder.path().join("kubeconfig");
        let (flag, config) = match &own.write_kubeconfig {
            Some(file) => ("write-kubeconfig", file.clone()),
            None => (folder_flag, config),
        };
        let address = bound.address();
        let (running, unready) = bound.start_unready().await?;
        let client = running.client(admin());
        let kinds = running.runtime_kinds();
        accounts.set_objects(kinds.clone());
        authorizer.set_objects(kinds.clone());
        kinds.known().await?;
        let serving = Definitions::new(client.clone(), kinds.clone(), Arc::clone(&now));
        if kinds.were_kept() {
            serving.serve_kept().await?;
        }
        for (place, definition) in &definitions {
            let what = format!("{place} (CustomResourceDefinition {:?})", definition.name_any());
            serving.create(&what, definition).await?;
        }
        let unreadable = |error: std::io::Error| {
            StandaloneError::file(folder_flag, folder.path(), &error.to_string())
        };
        let mut own =
            cluster_objects::objects(Some((address, &certificates)), now()).map_err(unreadable)?;
        let kept = if kinds.were_kept() { own.clone() } else { Vec::new() };
        own.extend(cluster_objects::api_services(&kinds));
        objects::load(&kinds, objects, own).await?;
        bootstrap_policy::ensure(&client, &kinds, now()).await?;
        cluster_objects::renew(&client, &kinds, kept).await?;
        let ca = std::fs::read_to_string(&certificates.ca).map_err(unreadable)?;
        let controllers = Controllers::start(&client, &kinds, serving, &now);
        let roles = aggregated_roles::run(client.clone(), authorizer);
        let mut controllers = controllers
            .with(roles)
            .with(namespace_objects::run(client, ca))
            .with(resource_quotas::run(kinds.quota_statuses()));
        if let Some(jwt) = jwt {
            controllers = controllers.with(jwt.followed);
        }
        // The kubeconfig is written last, so that it does not refer to a server that fails to start.
        kubeconfig::write(&config, address, &certificates)
            .map_err(|why| StandaloneError::file(flag, &config, &why))?;
        unready.mark_ready();
        welcome::print(&self.name, address, &config, &own_kinds);
        let ended = running.run(args.shutdown_delay_duration).await;
        drop(controllers);
        Ok(ended?)
    }
}

/// The file of an AuthenticationConfiguration.
struct AuthenticationFile {
    path: PathBuf,
    text: String,
    config: AuthenticationConfig,
}

/// The authentication that a file configures.
struct FileAuthentication {
    allows_anonymous: Option<bool>,
    /// Reads the file again when it changes.
    followed: BoxFuture<'static, ()>,
}

impl AuthenticationFile {
    /// Reads the file of the flag.
    fn open(own: &StandaloneArgs, args: &ServeArgs) -> Result<Option<Self>, StandaloneError> {
        let Some(path) = &own.authentication_config else { return Ok(None) };
        let invalid = |why: String| StandaloneError::file("authentication-config", path, &why);
        let text = authentication_config::read(path).map_err(invalid)?;
        let config = AuthenticationConfig::parse(&text).map_err(invalid)?;
        if config.allows_anonymous().is_some() && !args.anonymous_auth {
            let why = "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
            return Err(invalid(why.to_owned()));
        }
        Ok(Some(Self { path: path.clone(), text, config }))
    }

    /// Adds the authenticators of the file to a chain.
    fn add_to(self, chain: &mut Authenticators, now: &Now) -> FileAuthentication {
        let allows_anonymous = self.config.allows_anonymous();
        let (added, jwt) = self.config.add_to(chain.clone(), now);
        *chain = added;
        FileAuthentication {
            allows_anonymous,
            followed: Box::pin(jwt.follow(self.path, self.text)),
        }
    }
}

/// Adds the documents with the keys of ServiceAccount tokens.
pub(crate) fn with_documents(server: ApiServer, accounts: &ServiceAccountTokens) -> ApiServer {
    let documents = accounts.documents().into_iter();
    documents.fold(server, |server, (path, content_type, content)| {
        server.with_document(path, content_type, &content)
    })
}

/// The flags of a server that listens only on this machine, with these certificates.
pub(crate) fn on_this_machine(args: &ServeArgs, certificates: &Certificates) -> ServeArgs {
    let mut args = args.clone();
    args.bind_address = Ipv4Addr::LOCALHOST.into();
    args.tls_cert_file = Some(certificates.serving.clone());
    args.tls_private_key_file = Some(certificates.serving_key.clone());
    args.client_ca_file = Some(certificates.ca.clone());
    args.requestheader_client_ca_file = Some(certificates.front_proxy_ca.clone());
    // The server has a single owner, so namespaces need no limits.
    args.store_namespace_limit = NamespaceLimit::WHOLE;
    args
}

/// Parses an object as a CustomResourceDefinition, if it is one.
fn definition(
    loaded: &LoadedObject,
) -> Option<Result<CustomResourceDefinition, serde_json::Error>> {
    let object = &loaded.object;
    let is_one = object["kind"] == "CustomResourceDefinition"
        && object["apiVersion"] == "apiextensions.k8s.io/v1";
    is_one.then(|| serde_json::from_value(object.clone()))
}

/// The directory of certificates and kubeconfig: a directory of the user, or a temporary one that is removed with the
/// server.
enum Folder {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn open(given: Option<&Path>) -> Result<Self, StandaloneError> {
        match given {
            Some(folder) => Ok(Self::Kept(folder.to_owned())),
            None => {
                let made = tempfile::Builder::new().prefix("standalone-").tempdir();
                let made = made.map(Self::Temporary);
                made.map_err(|error| StandaloneError::flag("data-dir", error.to_string()))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(folder) => folder,
            Self::Temporary(folder) => folder.path(),
        }
    }
}
