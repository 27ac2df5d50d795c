//! The files of a server that runs outside of a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::json;
use tempfile::TempDir;

use crate::{Authority, Certificate, kubeconfig};

/// A temporary directory with the certificates of a server and the kubeconfig of its cluster.
pub struct ServerFiles {
    /// The CA of the server and of its clients.
    pub authority: Authority,
    /// The certificate of the server, for `localhost`.
    pub serving: Certificate,
    /// The CA of front proxies.
    pub front_proxies: Authority,
    /// The certificate of the front proxy `front-proxy`.
    pub front_proxy: Certificate,
    folder: TempDir,
}

impl ServerFiles {
    /// The URL of a cluster that no server can reach.
    pub const NO_CLUSTER: &str = "https://127.0.0.1:1";

    /// Creates the files of a server. The kubeconfig contains this URL of a cluster, and no credentials.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn new(cluster: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let authority = Authority::new("ca", &path.join("ca.crt"))?;
        let serving = authority.server(path, "serving", &["localhost"])?;
        let front_proxies = Authority::new("proxies", &path.join("proxies.crt"))?;
        let front_proxy = front_proxies.client(path, "proxy", "front-proxy", None)?;
        let kubeconfig = kubeconfig(&json!({"server": cluster}), &json!({}));
        fs::write(path.join("kubeconfig"), kubeconfig.to_string())?;
        Ok(Self { authority, serving, front_proxies, front_proxy, folder })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the kubeconfig of the cluster.
    pub fn cluster(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// Adds the flags of a server with these files on a port.
    pub fn configure(&self, command: &mut Command, port: u16) {
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
        for (flag, file) in [
            ("--kubeconfig", &self.cluster()),
            ("--tls-cert-file", &self.serving.certificate),
            ("--tls-private-key-file", &self.serving.key),
            ("--client-ca-file", &self.authority.file),
            ("--requestheader-client-ca-file", &self.front_proxies.file),
        ] {
            command.arg(flag).arg(file);
        }
    }

    /// Creates a client certificate of a user in at most one group.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Certificate> {
        self.authority.client(self.path(), user, user, group)
    }

    /// Writes a kubeconfig for the server on a port with a client certificate. Returns its path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig(&self, port: u16, client: &Certificate) -> Result<PathBuf> {
        let cluster = json!({
            "server": format!("https://localhost:{port}"),
            "certificate-authority": self.authority.file,
        });
        let user = json!({"client-certificate": client.certificate, "client-key": client.key});
        let file = self.path().join(format!("{port}.kubeconfig"));
        fs::write(&file, kubeconfig(&cluster, &user).to_string())?;
        Ok(file)
    }
}
