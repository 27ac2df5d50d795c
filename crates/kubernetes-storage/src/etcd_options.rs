//! Where etcd is, and how it is spoken to.

use std::path::PathBuf;
use std::time::Duration;

/// Where etcd is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Its members, as `https://10.0.0.1:2379`.
    pub servers: Vec<String>,
    /// What all keys begin with, as `/registry/farm-operator`.
    pub prefix: String,
    /// Who signs the certificates of its members, PEM.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to them, and its key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long it keeps what was replaced; `None` leaves that to somebody else.
    pub compaction_interval: Option<Duration>,
}
