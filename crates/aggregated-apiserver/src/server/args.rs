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
use crate::storage::{Encryption, NamespaceShare};

/// How many places there may be for requests: each level of users needs one, and more than memory has room
/// for would be no bound.
const PLACES: RangeInclusive<i64> = 20..=1_000_000;

/// Longer than a watch of the cluster is quiet.
const CLUSTER_SILENCE: Duration = Duration::from_secs(320);

/// The groups of flags, as `--help` shows them.
const SERVING: &str = "Where and how it serves";
const CLUSTER: &str = "The cluster";
const CALLERS: &str = "Who calls";
const OBJECTS: &str = "Objects, and where they are kept";
const LIMITS: &str = "Limits";
const LOG: &str = "The log";
/// Of `audit`.
const AUDIT: &str = "The audit log";
/// Of `tracing_file`.
const TRACES: &str = "Traces";

/// Flags of a server. Their defaults are those of the command line.
#[derive(Clone, Debug, clap::Args)]
#[non_exhaustive]
pub struct Args {
    /// The address to listen on
    #[arg(help_heading = SERVING, long, default_value = "0.0.0.0", value_name = "IP")]
    pub bind_address: IpAddr,

    /// The port to serve HTTPS on; 0 takes a free one
    #[arg(help_heading = SERVING, long, default_value_t = manifests::PORT, value_name = "PORT")]
    pub secure_port: u16,

    /// The serving certificate, PEM, leaf first; read again when it changes. Without it a
    /// certificate is made and kept in a Secret
    #[arg(help_heading = SERVING, long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// The key of the serving certificate, PEM
    #[arg(help_heading = SERVING, long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// How to reach the cluster. Without it: $KUBECONFIG, ~/.kube/config, then the service
    /// account of the pod
    #[arg(help_heading = CLUSTER, long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace of our Service and Secret; without it that of the kubeconfig or the pod
    #[arg(help_heading = CLUSTER, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// The name of our Service; without it the name of the server
    #[arg(help_heading = CLUSTER, long, value_name = "NAME")]
    pub service_name: Option<String>,

    /// CAs of client certificates, PEM; without it those of the cluster
    #[arg(help_heading = CALLERS, long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// CAs of the front proxy's client certificate, PEM; without it what the cluster says
    #[arg(help_heading = CALLERS, long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common names that the front proxy's certificate may have; none means any
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file"
    )]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers that hold the user's name
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-user"
    )]
    pub requestheader_username_headers: Vec<String>,

    /// Headers that hold the user's uid
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file"
    )]
    pub requestheader_uid_headers: Vec<String>,

    /// Headers that hold the user's groups
    #[arg(help_heading = CALLERS, long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-group"
    )]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of headers that hold further attributes of the user
    #[arg(help_heading = CALLERS, long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        default_value = "x-remote-extra-"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Where to answer /healthz, /livez and /readyz over plain HTTP too, to anybody; they are
    /// always answered over HTTPS
    #[arg(help_heading = SERVING, long, value_name = "IP:PORT")]
    pub health_probe_bind_address: Option<SocketAddr>,

    /// Where to show /metrics over plain HTTP too, to anybody; over HTTPS they are shown to
    /// whoever may get them
    #[arg(help_heading = SERVING, long, value_name = "IP:PORT")]
    pub metrics_bind_address: Option<SocketAddr>,

    /// Whether requests without credentials are somebody's, system:anonymous, who may do what
    /// RBAC says; if not they are refused. Health checks are answered anyway
    #[arg(help_heading = CALLERS, long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub anonymous_auth: bool,

    /// Admission plugins to disable
    #[arg(help_heading = OBJECTS, long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<AdmissionPluginName>,

    /// The part of the store that the objects of one namespace may take. Cluster-scoped objects count
    /// as one namespace more; 100% is for a server whose objects all live in one
    #[arg(help_heading = LIMITS, long, value_name = "PERCENT", default_value = "25%")]
    pub store_namespace_share: NamespaceShare,

    /// How much memory the objects that are stored may take: MiB. Without it 128, or less in a container
    /// that may take less than everything together
    #[arg(help_heading = LIMITS, long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..))]
    pub store_memory_mib: Option<u32>,

    /// Keep nothing of who owns which field of an object: metadata.managedFields, which may take
    /// as much as all the rest. Nobody can apply server-side then (415)
    #[arg(help_heading = OBJECTS, long)]
    pub drop_managed_fields: bool,

    /// Keep objects in this folder, so that they outlive the process: an embedded database, for one
    /// process at a time, on a disk of this machine. Without it they are kept in memory. A server
    /// without a cluster keeps its certificates and its kubeconfig there, too
    #[arg(help_heading = OBJECTS, long, value_name = "FOLDER", env = "DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// How objects are encrypted in the folder or in etcd: an EncryptionConfiguration, as kube-apiserver
    /// has it, with the providers aesgcm, secretbox, kms (v2) and identity
    #[arg(help_heading = OBJECTS, long, value_name = "FILE", env = "ENCRYPTION_PROVIDER_CONFIG")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Where etcd is, if objects are kept there.
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// Copy the objects of stored kinds from the deployed server, through kube-apiserver,
    /// before listening: for a process that takes its place for a while, as with mirrord.
    /// Never for the deployed one, which would ask itself
    #[arg(help_heading = CLUSTER, long, env = "COPY_STORED_OBJECTS", conflicts_with_all = ["data_dir", "etcd_servers"])]
    pub copy_stored_objects: bool,

    /// How much memory the objects of each type that kinds are computed from may take: MiB. Those of all types
    /// together may take four times as much. When there are more of them, what is computed from them is not served until there are less, and
    /// what only looks them up is served without them.
    /// Without it 64, or less in a container that may take less than everything together
    #[arg(help_heading = LIMITS, long, value_name = "MIB")]
    pub source_memory_mib: Option<u32>,

    /// How many reads may be in flight at a time, of all users; more wait, users in turns, and are refused (429) if
    /// too many do. Cluster administrators (system:masters) are not counted
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", default_value_t = 400, value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_requests_inflight: u32,

    /// The same of writes
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_mutating_requests_inflight: u32,

    /// How many watches may be open at a time, of all users: kube-apiserver needs one for each of its clients'
    /// watches. More are refused (429). Without it 20000, or fewer in a container that may take less than everything
    /// together
    #[arg(help_heading = LIMITS, long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(PLACES))]
    pub max_watches: Option<u32>,

    /// How long a request may take that is no watch; clients may ask for less: seconds, or 500ms, 1m.
    /// kube-apiserver gives no more than its own --request-timeout to what it sends on
    #[arg(help_heading = LIMITS, long, value_name = "DURATION", default_value = "1m", value_parser = positive_duration)]
    pub request_timeout: Duration,

    /// What is written down of requests.
    #[command(flatten)]
    pub audit: AuditArgs,

    /// Where the spans of requests go.
    #[command(flatten)]
    pub tracing: TracingArgs,

    /// How long to serve on, not ready, after a signal to stop: seconds, or 500ms, 1m
    #[arg(help_heading = SERVING, long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,

    /// Log verbosity: 0 for operators, 2 adds details such as the limits of memory and each synced source, 3 a line per
    /// request, 4 and above is for debugging, 6 and above logs everything. $RUST_LOG sets it in more detail
    #[arg(help_heading = LOG, short, long, value_name = "LEVEL", default_value_t = 0)]
    pub v: u8,

    /// The form of the log
    #[arg(help_heading = LOG, long, value_enum, default_value_t = LoggingFormat::Text)]
    pub logging_format: LoggingFormat,
}

/// An admission plugin that can be disabled, by its name in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum AdmissionPluginName {
    /// Nothing is made in a namespace that is missing or being deleted.
    NamespaceLifecycle,
    /// Nothing is made beyond what the ResourceQuotas of its namespace allow.
    ResourceQuota,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
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
    /// What was said of memory.
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

    /// Refuses flags that name a store, where a program has one of its own.
    pub(super) fn ensure_no_store(&self) -> Result<(), StartError> {
        let flag = match self {
            Self { data_dir: Some(_), .. } => "--data-dir",
            Self { encryption_provider_config: Some(_), .. } => "--encryption-provider-config",
            _ if !self.etcd.etcd_servers.is_empty() => "--etcd-servers",
            _ => return Ok(()),
        };
        let why = "cannot be used: this program keeps objects in a store of its own";
        Err(StartError::Flag { flag, why })
    }

    /// How to reach the cluster.
    pub(super) async fn cluster_config(&self) -> Result<Config, StartError> {
        cluster_config(self.kubeconfig.as_deref()).await
    }
}

/// How to reach the cluster that a kubeconfig names; without one, what `$KUBECONFIG`, `~/.kube/config` or the
/// service account of a Pod say.
///
/// # Errors
/// When there is none, or it cannot be used.
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
    // A cluster that takes a request and never answers is away.
    config.read_timeout = Some(CLUSTER_SILENCE);
    config.reset_reader_on_write = true;
    Ok(config)
}

/// How objects are encrypted where they are kept; not at all, if no file says so.
///
/// # Errors
/// When the file cannot be used.
pub(crate) fn encryption(file: Option<&Path>) -> Result<Arc<Encryption>, StartError> {
    let Some(file) = file else { return Ok(Arc::default()) };
    let read = Encryption::read(file);
    read.map(Arc::new).map_err(|why| StartError::file("encryption-provider-config", file, why))
}

fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| "is no duration".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "must not be negative".to_owned())
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    // An hour is longer than anybody waits, and no answer holds memory for longer.
    const LONGEST: Duration = Duration::from_secs(60 * 60);
    let duration = duration(text)?;
    if duration.is_zero() || duration > LONGEST {
        return Err("must be more than 0 and an hour at most".to_owned());
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
