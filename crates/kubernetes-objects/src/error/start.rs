//! Why the server does not start, or not go on: for the operator.

use std::path::PathBuf;

use thiserror::Error;

/// Why the server does not start, or not go on; names the flag, file or kind to change.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file cannot be read or does not hold what it should.
    #[error("--{flag} {}: {message}", path.display())]
    File {
        /// The flag that names the file, without the dashes.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A flag cannot be used.
    #[error("{flag} {why}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// The store can keep nothing any more.
    #[error("the store has failed: {0}")]
    Store(String),
    /// An object is kept in a version that its kind does not have.
    #[error(
        "{kind} {key} is kept in {version}, which is not known here: a release that knows it must write it in another one (farm-operator migrate)"
    )]
    Version {
        /// The kind, as `llamas.farm.example.com`.
        kind: String,
        /// Namespace and name.
        key: String,
        /// The version.
        version: String,
    },
    /// What is said of etcd cannot be used.
    #[error("{0}")]
    Etcd(String),
    /// Objects do not go from one store to another.
    #[error("{0}")]
    Transfer(String),
    /// No copy of the store can be made.
    #[error("no backup was made: {0}")]
    Backup(String),
    /// The description of a kind cannot be served.
    #[error("kind {kind}: {}", faults.join("; "))]
    Kind {
        /// The kind, as `llamas.farm.example.com`.
        kind: String,
        /// Each fault: the path of a field in its CustomResourceDefinition and
        /// what is wrong with it, as `spec.scope: must be Namespaced or Cluster`.
        faults: Vec<String>,
    },
    /// The address cannot be listened on.
    #[error("--bind-address and --secure-port: cannot listen on {address}: {source}")]
    Listen {
        /// The address and port.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// No cluster was found to work with.
    #[error(
        "no cluster to work with (--kubeconfig, $KUBECONFIG, or a service account in a pod): {0}"
    )]
    Cluster(String),
    /// The server began and cannot go on.
    #[error("serving ended: {0}")]
    Serving(String),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
}

impl StartError {
    /// A file, named by a flag, that cannot be used.
    pub fn file(flag: &'static str, path: impl Into<PathBuf>, message: impl ToString) -> Self {
        Self::File { flag, path: path.into(), message: message.to_string() }
    }
}
