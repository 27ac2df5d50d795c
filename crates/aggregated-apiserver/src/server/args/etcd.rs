//! Flags that say where etcd is, under the names that kube-apiserver has for them.

use std::path::PathBuf;
use std::time::Duration;

use super::duration;
use crate::storage::EtcdOptions;

/// Where objects are kept that several replicas write.
#[derive(Clone, Debug, clap::Args)]
#[non_exhaustive]
pub struct EtcdArgs {
    /// Keep objects in this etcd, 3.5.13 or later, so that several replicas can serve them: the URLs of
    /// its members
    #[arg(help_heading = super::OBJECTS, long,
        value_name = "URLS",
        value_delimiter = ',',
        env = "ETCD_SERVERS",
        conflicts_with = "data_dir"
    )]
    pub etcd_servers: Vec<String>,

    /// What all keys in etcd begin with. Without it /registry/ and the name of the server
    #[arg(help_heading = super::OBJECTS, long, value_name = "PREFIX", requires = "etcd_servers")]
    pub etcd_prefix: Option<String>,

    /// CAs of etcd's certificates, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_CAFILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,

    /// The certificate that is shown to etcd, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_CERTFILE", requires_all = ["etcd_servers", "etcd_cafile", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,

    /// The key of the certificate that is shown to etcd, PEM
    #[arg(help_heading = super::OBJECTS, long, value_name = "FILE", env = "ETCD_KEYFILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    pub etcd_keyfile: Option<PathBuf>,

    /// How long etcd keeps old revisions, from which interrupted watches go on; 0 turns compaction off, where
    /// another server at the same etcd does it, as kube-apiserver
    #[arg(help_heading = super::OBJECTS, long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
}

impl EtcdArgs {
    /// Where etcd is, if anything is said of it.
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
