//! The clusters that requests are forwarded to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aggregated_apiserver::User;
use aggregated_apiserver::subresource::Error;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

    /// Lets a request act as the user. The certificate of the kubeconfig needs the permission to impersonate.
    pub fn authenticate(&self, headers: &mut HeaderMap, user: &User) -> Result<(), Error> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(Error::internal);
        let host = self.0.cluster_url.authority().map_or("localhost", |one| one.as_str());
        headers.insert(header::HOST, value(host)?);
        headers.insert(HeaderName::from_static("impersonate-user"), value(&user.name)?);
        for group in &user.groups {
            headers.append(HeaderName::from_static("impersonate-group"), value(group)?);
        }
        Ok(())
    }
}
