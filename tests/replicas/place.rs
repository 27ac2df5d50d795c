//! Replicas of the program with one etcd and an unreachable cluster. Administrators do not need the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farm_operator::v1alpha::Llama;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_cluster::{Authority, Certificate, Process, free_port};

use crate::clock::Clock;

/// The timeout for the start, until objects are served.
const START: Duration = Duration::from_secs(60);

/// Certificates, and the URLs of etcd.
pub struct Place {
    folder: TempDir,
    authority: Authority,
    serving: Certificate,
    admin: Certificate,
    etcd: Vec<String>,
    /// The clock of the replica at a port, if it is wrong.
    clock: Option<(u16, Clock)>,
}

/// A replica, which is serving.
pub struct Replica {
    pub process: Process,
    pub port: u16,
    pub llamas: Api<Llama>,
    pub client: Client,
}

impl Place {
    pub fn new(etcd: Vec<String>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let authority = Authority::new("ca", &path.join("ca.crt"))?;
        let serving = authority.server(path, "serving", &["localhost"])?;
        let admin = authority.client(path, "admin", "admin", Some("system:masters"))?;
        Ok(Self { folder, authority, serving, admin, etcd, clock: None })
    }

    /// The directory with all files.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Sets the clock of the replica at a port.
    pub fn set_clock(&mut self, port: u16, clock: Clock) {
        self.clock = Some((port, clock));
    }

    /// The clock of the replica at a port, if it is wrong.
    pub fn clock_of(&self, port: u16) -> Option<&Clock> {
        self.clock.as_ref().filter(|(of, _)| *of == port).map(|(_, clock)| clock)
    }

    /// The command that starts a replica with these URLs of etcd.
    pub fn command(&self, port: u16, etcd: &[String]) -> Result<Command> {
        let nowhere = config("https://127.0.0.1:1", &json!({}), &json!({}));
        std::fs::write(self.path().join("kubeconfig"), nowhere.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
        // The error message must not contain a backtrace.
        command.env("RUST_BACKTRACE", "0");
        command.args(["--shutdown-delay-duration", "0s"]);
        command.args(["--disable-admission-plugins", "NamespaceLifecycle,ResourceQuota"]);
        command.args(["--store-namespace-limit", "100%", "--etcd-servers", &etcd.join(",")]);
        for (flag, file) in [
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

    /// Starts a replica, and waits until it serves llamas.
    pub async fn start(&self, flags: &[&str]) -> Result<Replica> {
        self.start_on(free_port()?, &self.etcd, flags).await
    }

    /// Starts a replica at a port with these URLs of etcd, and waits until it serves llamas.
    pub async fn start_on(&self, port: u16, etcd: &[String], flags: &[&str]) -> Result<Replica> {
        let mut replica = self.begin(port, etcd, flags).await?;
        let deadline = Instant::now() + START;
        loop {
            replica.process.ensure_running()?;
            match replica.llamas.get_opt("dolly").await {
                Ok(_) => return Ok(replica),
                Err(error) if Instant::now() > deadline => bail!("never ready: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Starts a replica without waiting.
    pub async fn begin(&self, port: u16, etcd: &[String], flags: &[&str]) -> Result<Replica> {
        let mut command = self.command(port, etcd)?;
        command.args(flags);
        if let Some(clock) = self.clock_of(port) {
            clock.give_to(&mut command);
        }
        let process = Process::spawn(&command, &self.log(port))?;
        let client = self.client(port).await?;
        let llamas = Api::namespaced(client.clone(), "default");
        Ok(Replica { process, port, llamas, client })
    }

    /// The log file of the replica at a port. All processes of the replica append to it.
    pub fn log(&self, port: u16) -> PathBuf {
        self.path().join(format!("{port}.log"))
    }

    /// The kubeconfig of an administrator for the server at a port.
    fn config(&self, port: u16) -> Value {
        let server = format!("https://localhost:{port}");
        let cluster = json!({"certificate-authority": self.authority.file});
        let user = json!({
            "client-certificate": self.admin.certificate, "client-key": self.admin.key,
        });
        config(&server, &cluster, &user)
    }

    /// Writes the kubeconfig to a file, for other programs.
    pub fn kubeconfig(&self, port: u16) -> Result<PathBuf> {
        let path = self.path().join(format!("{port}.kubeconfig"));
        std::fs::write(&path, self.config(port).to_string())?;
        Ok(path)
    }

    async fn client(&self, port: u16) -> Result<Client> {
        let config: Kubeconfig = serde_json::from_value(self.config(port))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(config, &options).await?;
        // The test examines every response, so the client must not retry.
        config.default_retry = false;
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
