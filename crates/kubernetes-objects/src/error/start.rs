//! `StartError`: an error that prevents the start of the server or stops it, for the operator.

use std::path::PathBuf;

use thiserror::Error;

/// An error that prevents the start of the server or stops it. The message names the flag, file or kind to change.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file cannot be read or has invalid content.
    #[error("--{flag} {}: {message}", path.display())]
    File {
        /// The flag that names the file, without its dashes.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The problem with the file.
        message: String,
    },
    /// A flag has an invalid value.
    #[error("{flag} {why}")]
    Flag {
        /// The name of the flag.
        flag: &'static str,
        /// The problem with its value.
        why: &'static str,
    },
    /// The store has failed and accepts no more writes.
    #[error("the store has failed: {0}")]
    Store(String),
    /// An object is stored in a version that its kind does not have.
    #[error(
        "{kind} {key} is stored in {version}, which this release does not have: run the command migrate of a release that has both versions"
    )]
    Version {
        /// The kind, such as `llamas.farm.example.com`.
        kind: String,
        /// The namespace and the name of the object.
        key: String,
        /// The version in which the object is stored.
        version: String,
    },
    /// The etcd flags are invalid, or etcd cannot be used.
    #[error("{0}")]
    Etcd(String),
    /// Objects cannot be transferred from one store to another.
    #[error("{0}")]
    Transfer(String),
    /// The store cannot be backed up.
    #[error("cannot back up the store: {0}")]
    Backup(String),
    /// The definition of a kind cannot be served.
    #[error("kind {kind}: {}", faults.join("; "))]
    Kind {
        /// The kind, such as `llamas.farm.example.com`.
        kind: String,
        /// The errors: each names the path of a field in the CustomResourceDefinition and the problem with it, such as
        /// `spec.scope: must be Namespaced or Cluster`.
        faults: Vec<String>,
    },
    /// A group version whose paths code of the user handles cannot be served.
    #[error("group version {group_version}: {}", faults.join("; "))]
    GroupVersion {
        /// The group version, such as `custom.metrics.k8s.io/v1beta2`.
        group_version: String,
        /// The errors, such as `path "/a/{b}": no method has a handler`.
        faults: Vec<String>,
    },
    /// The server cannot listen on the address.
    #[error("--bind-address and --secure-port: cannot listen on {address}: {source}")]
    Listen {
        /// The address and the port.
        address: std::net::SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// No cluster was found.
    #[error(
        "no cluster is configured; set --kubeconfig or $KUBECONFIG, or run in a Pod with a ServiceAccount: {0}"
    )]
    Cluster(String),
    /// The server has started and cannot continue.
    #[error("serving ended: {0}")]
    Serving(String),
    /// A check of the health, or a hook after the start, has a name that cannot be used.
    #[error("check {name:?}: {why}")]
    Check {
        /// The name.
        name: String,
        /// The problem with the name.
        why: &'static str,
    },
    /// TLS cannot be configured.
    #[error("TLS: {0}")]
    Tls(String),
}

impl StartError {
    /// A file that a flag names and that cannot be used.
    pub fn file(flag: &'static str, path: impl Into<PathBuf>, message: impl ToString) -> Self {
        Self::File { flag, path: path.into(), message: message.to_string() }
    }
}
