//! Flags, under the names that Kubernetes uses.

mod audit;
mod etcd;
mod tracing_file;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, ValueEnum};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

pub use audit::AuditArgs;
pub use etcd::EtcdArgs;
pub use tracing_file::TracingArgs;

use super::memory::Said;
use crate::error::StartError;
use crate::manifests;
use crate::request::Inflights;
use crate::storage::{Encryption, NamespaceLimit};

/// The range of the limits of concurrent requests. Each priority level needs at least one, and a limit that memory does
/// not allow would be no limit.
const PLACES: RangeInclusive<i64> = 20..=1_000_000;

/// The read timeout for the cluster. It is longer than the longest silence of a watch.
const CLUSTER_SILENCE: Duration = Duration::from_secs(320);

/// The headings of the flags in `--help`.
const SERVING: &str = "Serving";
const CLUSTER: &str = "Cluster";
const CALLERS: &str = "Authentication";
const OBJECTS: &str = "Storage and admission";
const LIMITS: &str = "Limits";
const LOG: &str = "Logging";
/// The heading of the flags in `audit`.
const AUDIT: &str = "Audit log";
/// The heading of the flags in `tracing_file`.
const TRACES: &str = "Tracing";

/// Flags of a server. Their defaults are those of the command line.
#[derive(Clone, Debug, clap::Args)]
#[non_exhaustive]
pub struct Args {
    /// Address to listen on
    #[arg(help_heading = SERVING, long, default_value = "0.0.0.0", value_name = "IP")]
    pub bind_address: IpAddr,

    /// Port for HTTPS; 0 selects a free port
    #[arg(help_heading = SERVING, long, default_value_t = manifests::PORT, value_name = "PORT")]
    pub secure_port: u16,

    /// Serving certificate, PEM, leaf first
    ///
    /// The file is read again when it changes. By default the server creates a certificate and stores it in a Secret.
    #[arg(help_heading = SERVING, long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of the serving certificate, PEM
    #[arg(help_heading = SERVING, long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Kubeconfig of the cluster
    ///
    /// By default the server uses $KUBECONFIG, then ~/.kube/config, then the ServiceAccount of the Pod.
    #[arg(help_heading = CLUSTER, long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the Service and the Secret of this server
    ///
    /// By default it is the namespace of the kubeconfig or of the Pod.
    #[arg(help_heading = CLUSTER, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Name of the Service of this server
    ///
    /// By default it is the name of the server.
    #[arg(help_heading = CLUSTER, long, value_name = "NAME")]
    pub service_name: Option<String>,

    /// CAs of client certificates, PEM
    ///
    /// By default the server uses those of the cluster.
    #[arg(help_heading = CALLERS, long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CAs of the client certificate of the front proxy, PEM
    ///
    /// By default the server uses those of the cluster.
    #[arg(help_heading = CALLERS, long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Allowed common names of the front proxy's certificate; an empty list allows all
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file"
    )]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers with the name of the user
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-user"
    )]
    pub requestheader_username_headers: Vec<String>,

    /// Headers with the uid of the user
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file"
    )]
    pub requestheader_uid_headers: Vec<String>,

    /// Headers with the groups of the user
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-group"
    )]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of headers with extra attributes of the user
    #[arg(help_heading = CALLERS, long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-extra-"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Address for /healthz, /livez and /readyz over plain HTTP, without authentication
    ///
    /// The HTTPS port has these paths too.
    #[arg(help_heading = SERVING, long, value_name = "IP:PORT")]
    pub health_probe_bind_address: Option<SocketAddr>,

    /// Address for /metrics over plain HTTP, without authentication
    ///
    /// The HTTPS port has this path too. It needs the permission to get /metrics there.
    #[arg(help_heading = SERVING, long, value_name = "IP:PORT")]
    pub metrics_bind_address: Option<SocketAddr>,

    /// Authenticate requests without credentials as system:anonymous
    ///
    /// RBAC decides about the permissions of system:anonymous. With false, requests without credentials are refused, except
    /// health checks.
    #[arg(help_heading = CALLERS, long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub anonymous_auth: bool,

    /// Disabled admission plugins, separated by commas
    #[arg(help_heading = OBJECTS, long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<AdmissionPluginName>,

    /// Writes while the webhook configurations and admission policies of the cluster cannot be read
    ///
    /// Fail refuses them (503). Ignore admits them without webhooks or policies. Once the configurations have been read, the last known ones stay in
    /// force.
    #[arg(help_heading = OBJECTS, long, value_enum, value_name = "POLICY", default_value_t = WebhookReadFailurePolicy::Fail)]
    pub webhook_configurations_failure_policy: WebhookReadFailurePolicy,

    /// Largest part of the store for the objects of one namespace
    ///
    /// Cluster-scoped objects count as one more namespace. 100% is for servers with a single namespace.
    #[arg(help_heading = LIMITS, long, alias = "store-namespace-share", value_name = "PERCENT", default_value = "25%")]
    pub store_namespace_limit: NamespaceLimit,

    /// Memory limit of stored objects, in MiB
    ///
    /// By default it is 128, or less in a container with less memory than all limits together.
    #[arg(help_heading = LIMITS, long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..))]
    pub store_memory_mib: Option<u32>,

    /// Store objects without metadata.managedFields
    ///
    /// managedFields may be as large as the rest of an object. Server-side apply is refused then (415).
    #[arg(help_heading = OBJECTS, long)]
    pub drop_managed_fields: bool,

    /// Directory of the embedded database (SQLite)
    ///
    /// The directory must be on a local disk, and one process at a time may use it. By default objects are in memory and a restart
    /// loses them. A server without a cluster stores its certificates and its kubeconfig in the directory too.
    #[arg(help_heading = OBJECTS, long, value_name = "DIR", env = "DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// EncryptionConfiguration for stored objects
    ///
    /// The format is that of kube-apiserver, with the providers aesgcm, secretbox, kms (v2) and identity.
    #[arg(help_heading = OBJECTS, long, value_name = "FILE", env = "ENCRYPTION_PROVIDER_CONFIG")]
    pub encryption_provider_config: Option<PathBuf>,

    /// The flags of the store in etcd.
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// Copy the stored objects of the deployed server before listening
    ///
    /// This is for a process that replaces the deployed server for a while, as with mirrord. It reads the objects through
    /// kube-apiserver. Do not set it for the deployed server, which would read from itself.
    #[arg(help_heading = CLUSTER, long, env = "COPY_STORED_OBJECTS", conflicts_with_all = ["data_dir", "etcd_servers"])]
    pub copy_stored_objects: bool,

    /// Memory limit of the source objects of each type, in MiB
    ///
    /// All types together may use four times as much. Beyond the limit, kinds that are computed from the type are not served, and kinds
    /// that look it up are served without it. By default it is 64, or less in a container with less memory than all limits together.
    #[arg(help_heading = LIMITS, long, value_name = "MIB")]
    pub source_memory_mib: Option<u32>,

    /// Largest number of reads in flight
    ///
    /// More reads wait, with turns for users, and are refused (429) if too many wait. Requests of system:masters do not count.
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", default_value_t = 400, value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_requests_inflight: u32,

    /// Largest number of writes in flight
    ///
    /// More writes wait, with turns for users, and are refused (429) if too many wait. Requests of system:masters do not count.
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_mutating_requests_inflight: u32,

    /// Largest number of open watches
    ///
    /// kube-apiserver opens one for each watch of its clients. More are refused (429). By default it is 20000, or fewer in a container with
    /// less memory than all limits together.
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_watches: Option<u32>,

    /// Timeout of a request that is not a watch: seconds, or 500ms, 1m
    ///
    /// Clients may ask for less. kube-apiserver's own --request-timeout limits requests through it.
    #[arg(help_heading = LIMITS, long, value_name = "DURATION", default_value = "1m", value_parser = positive_duration)]
    pub request_timeout: Duration,

    /// The flags of the audit log.
    #[command(flatten)]
    pub audit: AuditArgs,

    /// The flags of tracing.
    #[command(flatten)]
    pub tracing: TracingArgs,

    /// Time to continue serving after a signal to stop: seconds, or 500ms, 1m
    ///
    /// The server is not ready in this time.
    #[arg(help_heading = SERVING, long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,

    /// Log verbosity
    ///
    /// 0 is for operators. 2 adds details such as memory limits and each synced source, 3 a line for each request, 4 and above is for
    /// debugging, and 6 and above logs everything. $RUST_LOG sets it in more detail.
    #[arg(help_heading = LOG, short, long, value_name = "LEVEL", default_value_t = 0)]
    pub v: u8,

    /// Log format
    #[arg(help_heading = LOG, long, value_enum, default_value_t = LoggingFormat::Text)]
    pub logging_format: LoggingFormat,
}

/// An admission plugin that can be disabled, by its name in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum AdmissionPluginName {
    /// Refuses creates in a namespace that does not exist or is being deleted.
    NamespaceLifecycle,
    /// Calls the mutating webhooks of the cluster.
    MutatingAdmissionWebhook,
    /// Evaluates the ValidatingAdmissionPolicies of the cluster.
    ValidatingAdmissionPolicy,
    /// Calls the validating webhooks of the cluster.
    ValidatingAdmissionWebhook,
    /// Refuses creates beyond the ResourceQuotas of the namespace.
    ResourceQuota,
}

/// The consequence of webhook configurations that cannot be read from the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum WebhookReadFailurePolicy {
    /// Writes are refused.
    #[default]
    Fail,
    /// Writes are admitted without webhooks.
    Ignore,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// Text for people.
    Text,
    /// A JSON object in each line.
    Json,
}

impl Default for Args {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: Args,
        }
        <Flags as clap::Parser>::parse_from(["server"]).args
    }
}

impl Args {
    /// The memory limits in the flags.
    pub(super) fn memory(&self) -> Said {
        let bytes = |mebibytes: Option<u32>| mebibytes.map(|count| (count as usize) << 20);
        Said {
            source_memory: bytes(self.source_memory_mib),
            store_memory: bytes(self.store_memory_mib),
            inflights: Inflights {
                reads: self.max_requests_inflight as usize,
                writes: self.max_mutating_requests_inflight as usize,
                watches: self.max_watches.map(|count| count as usize),
            },
        }
    }

    /// Rejects flags that name a store if the program has its own store.
    pub(super) fn ensure_no_store(&self) -> Result<(), StartError> {
        let flag = match self {
            Self { data_dir: Some(_), .. } => "--data-dir",
            Self { encryption_provider_config: Some(_), .. } => "--encryption-provider-config",
            _ if !self.etcd.etcd_servers.is_empty() => "--etcd-servers",
            _ => return Ok(()),
        };
        let why = "cannot be used, because this program has its own store; remove the flag";
        Err(StartError::Flag { flag, why })
    }

    /// The client configuration for the cluster.
    pub(super) async fn cluster_config(&self) -> Result<Config, StartError> {
        cluster_config(self.kubeconfig.as_deref()).await
    }
}

/// The client configuration for the cluster that a kubeconfig names. Without one, it is that of `$KUBECONFIG`,
/// `~/.kube/config` or the service account of a Pod.
///
/// # Errors
/// If there is no configuration, or it cannot be used.
pub(super) async fn cluster_config(kubeconfig: Option<&Path>) -> Result<Config, StartError> {
    let mut config = match kubeconfig {
        None => Config::infer().await.map_err(|error| StartError::Cluster(error.to_string()))?,
        Some(path) => {
            let unusable = |error: String| StartError::file("kubeconfig", path, error);
            let kubeconfig =
                Kubeconfig::read_from(path).map_err(|error| unusable(error.to_string()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|error| unusable(error.to_string()))?
        }
    };
    // A cluster that accepts a request and never responds counts as unavailable.
    config.read_timeout = Some(CLUSTER_SILENCE);
    config.reset_reader_on_write = true;
    Ok(config)
}

/// The encryption of stored objects; none without a file.
///
/// # Errors
/// If the file cannot be used.
pub(crate) fn encryption(file: Option<&Path>) -> Result<Arc<Encryption>, StartError> {
    let Some(file) = file else { return Ok(Arc::default()) };
    let read = Encryption::read(file);
    read.map(Arc::new).map_err(|why| StartError::file("encryption-provider-config", file, why))
}

fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "must be a duration, such as 30s or 1m".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "must not be negative".to_owned())
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    // No client waits for more than an hour, so no response holds memory for longer.
    const LONGEST: Duration = Duration::from_secs(60 * 60);
    let duration = duration(text)?;
    if duration.is_zero() || duration > LONGEST {
        return Err("must be more than 0s and at most 1h".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("-5s").is_err());
        assert!(duration("soon").is_err());
        assert_eq!(positive_duration("90s"), Ok(Duration::from_secs(90)));
        assert!(positive_duration("0").is_err() && positive_duration("2h").is_err());
    }
}
