//! The clusters that requests are forwarded to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::Reason;
use aggregated_apiserver::subresource::{Caller, Error};
use axum::http::{HeaderMap, HeaderValue, header};
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest time until a connection is open.
const CONNECT: Duration = Duration::from_secs(10);
/// The headers of the client that describe its way, which is of no interest to the cluster.
const OF_THE_WAY: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/// A directory with one kubeconfig for each cluster, `NAME.yaml`.
#[derive(Clone)]
pub struct Kubeconfigs(Arc<PathBuf>);

/// A cluster, with the client certificate of its kubeconfig.
pub struct Remote(Config);

impl Kubeconfigs {
    pub fn new(directory: &Path) -> Self {
        Self(Arc::new(directory.to_owned()))
    }

    /// The cluster of this name. Names of objects contain no slash.
    pub async fn read(&self, name: &str) -> Result<Remote, Error> {
        let file = self.0.join(format!("{name}.yaml"));
        let kubeconfig = Kubeconfig::read_from(file).map_err(Error::unavailable)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map(Remote).map_err(Error::unavailable)
    }
}

impl Remote {
    /// Opens a connection with TLS.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>, Error> {
        timeout(CONNECT, self.open()).await.map_err(Error::unavailable)?
    }

    async fn open(&self) -> Result<TlsStream<TcpStream>, Error> {
        let url = &self.0.cluster_url;
        let host = url.host().ok_or_else(|| Error::unavailable("the URL has no host"))?;
        let port = url.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await.map_err(Error::unavailable)?;
        stream.set_nodelay(true).map_err(Error::unavailable)?;
        let mut tls = self.0.rustls_client_config().map_err(Error::unavailable)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = self.0.tls_server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name).map_err(Error::unavailable)?;
        let connected = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        connected.map_err(Error::unavailable)
    }

    /// Lets a request act as the user. The certificate of the kubeconfig needs the permission to impersonate. A name that
    /// begins with `system:` belongs to this cluster alone: it could be another account there.
    pub fn authenticate(&self, headers: &mut HeaderMap, caller: &Caller) -> Result<(), Error> {
        if caller.user().name.starts_with("system:") {
            let why = "accounts of the system are not forwarded to other clusters";
            return Err(Error::new(Reason::Forbidden, why));
        }
        for name in OF_THE_WAY {
            headers.remove(name);
        }
        let host = self.0.cluster_url.authority().map_or("localhost", |one| one.as_str());
        headers.insert(header::HOST, HeaderValue::from_str(host).map_err(Error::internal)?);
        for (name, value) in &caller.impersonation()? {
            let is_group = name == "impersonate-group";
            if !is_group || !value.as_bytes().starts_with(b"system:") {
                headers.append(name, value.clone());
            }
        }
        Ok(())
    }
}
