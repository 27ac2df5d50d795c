//! The options of the store in etcd.

use std::path::PathBuf;
use std::time::Duration;

/// The options of the store in etcd.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The URLs of the members of etcd, such as `https://10.0.0.1:2379`.
    pub servers: Vec<String>,
    /// The prefix of all keys, such as `/registry/farm-operator`.
    pub prefix: String,
    /// The file with the CA certificates that sign the certificates of the members, in PEM.
    pub ca: Option<PathBuf>,
    /// The files with the client certificate for etcd and its private key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The interval between compactions of etcd, which delete replaced values. `None` leaves compaction to another
    /// server.
    pub compaction_interval: Option<Duration>,
}
