//! The program with a folder of its own, before a cluster that is away: an administrator needs none.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farm_operator::Llama;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_cluster::{Authority, Certificate, Process};

use crate::disk::Disk;

/// How long it may take until objects are served.
const START: Duration = Duration::from_secs(60);

/// Certificates, and a folder for objects.
pub struct Place {
    folder: TempDir,
    authority: Authority,
    serving: Certificate,
    admin: Certificate,
    port: u16,
    disk: Option<Disk>,
}

/// The program, which serves.
pub struct Program {
    pub process: Process,
    pub llamas: Api<Llama>,
}

impl Place {
    pub fn new() -> Result<Self> {
        Self::with(None)
    }

    /// The same, with the folder for objects on a disk of its own.
    pub fn on(disk: Disk) -> Result<Self> {
        Self::with(Some(disk))
    }

    fn with(disk: Option<Disk>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let authority = Authority::new("ca", &path.join("ca.crt"))?;
        let serving = authority.server(path, "serving", &["localhost"])?;
        let admin = authority.client(path, "admin", "admin", Some("system:masters"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self { folder, authority, serving, admin, port, disk })
    }

    /// The disk that was given.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The command that starts the program.
    pub fn command(&self) -> Result<Command> {
        let nowhere = config("https://127.0.0.1:1", &json!({}), &json!({}));
        std::fs::write(self.path().join("kubeconfig"), nowhere.to_string())?;
        let program = env!("CARGO_BIN_EXE_farm-operator");
        let mut command =
            self.disk.as_ref().map_or_else(|| Command::new(program), |disk| disk.command(program));
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &self.port.to_string()]);
        command.args(["--shutdown-delay-duration", "0s"]);
        command.args(["--disable-admission-plugins", "NamespaceLifecycle,ResourceQuota"]);
        command.args(["--store-namespace-share", "100%"]);
        let data = self.disk.as_ref().map_or(self.path(), Disk::path).join("data");
        for (flag, file) in [
            ("--data-dir", &data),
            ("--kubeconfig", &self.path().join("kubeconfig")),
            ("--tls-cert-file", &self.serving.certificate),
            ("--tls-private-key-file", &self.serving.key),
            ("--client-ca-file", &self.authority.file),
            ("--requestheader-client-ca-file", &self.authority.file),
        ] {
            command.arg(flag).arg(file);
        }
        Ok(command)
    }

    /// Starts the program, and waits until it serves llamas.
    pub async fn start(&self) -> Result<Program> {
        let process = Process::spawn(&self.command()?, &self.path().join("log"))?;
        let llamas = Api::namespaced(self.client().await?, "default");
        let mut program = Program { process, llamas };
        let deadline = Instant::now() + START;
        loop {
            program.process.ensure_running()?;
            match program.llamas.list(&ListParams::default().limit(1)).await {
                Ok(_) => return Ok(program),
                Err(error) if Instant::now() > deadline => bail!("never ready: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn client(&self) -> Result<Client> {
        let server = format!("https://localhost:{}", self.port);
        let cluster = json!({"certificate-authority": self.authority.file});
        let user = json!({
            "client-certificate": self.admin.certificate, "client-key": self.admin.key,
        });
        let config: Kubeconfig = serde_json::from_value(config(&server, &cluster, &user))?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

fn config(server: &str, cluster: &Value, user: &Value) -> Value {
    let mut cluster = cluster.clone();
    cluster["server"] = server.into();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    })
}
