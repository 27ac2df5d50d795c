//! Flags of etcd, with kube-apiserver's names.

use std::path::PathBuf;
use std::time::Duration;

use super::duration;
use crate::storage::EtcdOptions;

/// The flags of the store in etcd.
#[derive(Clone, Debug, clap::Args)]
#[non_exhaustive]
pub struct EtcdArgs {
    /// URLs of the members of an etcd cluster, separated by commas
    ///
    /// Objects are stored in etcd then, and several replicas can serve them. etcd must be 3.5.13 or later.
    #[arg(help_heading = super::OBJECTS, long,
        value_name = "URLS",
        value_delimiter = ',',
        env = "ETCD_SERVERS",
        conflicts_with = "data_dir"
    )]
    pub etcd_servers: Vec<String>,

    /// Prefix of all keys in etcd
    ///
    /// By default it is /registry/ and the name of the server.
    #[arg(help_heading = super::OBJECTS, long, value_name = "PREFIX", requires = "etcd_servers")]
    pub etcd_prefix: Option<String>,

    /// CAs of etcd's certificates, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_CAFILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,

    /// Client certificate for etcd, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_CERTFILE", requires_all = ["etcd_servers", "etcd_cafile", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,

    /// Private key of the client certificate for etcd, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_KEYFILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    pub etcd_keyfile: Option<PathBuf>,

    /// Interval of the compaction of etcd
    ///
    /// Interrupted watches can continue from revisions that are not compacted. 0 turns compaction off; use it if another server at the same
    /// etcd compacts, such as kube-apiserver.
    #[arg(help_heading = super::OBJECTS, long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
}

impl EtcdArgs {
    /// The options of the store in etcd, if the flags enable it.
    pub(crate) fn options(&self, name: &str) -> Option<EtcdOptions> {
        if self.etcd_servers.is_empty() {
            return None;
        }
        let interval = self.etcd_compaction_interval;
        Some(EtcdOptions {
            servers: self.etcd_servers.clone(),
            prefix: self.etcd_prefix.clone().unwrap_or_else(|| format!("/registry/{name}")),
            ca: self.etcd_cafile.clone(),
            certificate: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
            compaction_interval: (!interval.is_zero()).then_some(interval),
        })
    }
}
