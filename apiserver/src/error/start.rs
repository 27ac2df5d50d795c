//! Why the server does not start: for the operator.

use std::path::PathBuf;

use thiserror::Error;

/// Why the server does not start; names the flag, file or kind to change.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A flag has a value that cannot be used.
    #[error("--{flag}: {message}")]
    Flag {
        /// The flag, without the dashes.
        flag: &'static str,
        /// What is wrong with its value.
        message: String,
    },
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
    /// The description of a kind cannot be served.
    #[error("kind {kind}: {field}: {message}")]
    Kind {
        /// The kind, as `llamas.farm.example.com`.
        kind: String,
        /// The path of the field in its CustomResourceDefinition.
        field: String,
        /// What is wrong with it.
        message: String,
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
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
}

impl StartError {
    /// A flag with a value that cannot be used.
    pub fn flag(flag: &'static str, message: impl ToString) -> Self {
        Self::Flag { flag, message: message.to_string() }
    }

    /// A file, named by a flag, that cannot be used.
    pub fn file(flag: &'static str, path: impl Into<PathBuf>, message: impl ToString) -> Self {
        Self::File { flag, path: path.into(), message: message.to_string() }
    }
}
