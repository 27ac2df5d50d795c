//! The program with its own directory and an unreachable cluster. Administrators do not need the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farm_operator::v1alpha::Llama;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_cluster::{Authority, Certificate, Process, free_port};

use crate::disk::Disk;
use crate::recorder::{Recorder, Recording};

/// The timeout for the start, until objects are served.
const START: Duration = Duration::from_secs(60);

/// Certificates, and a directory for objects.
pub struct Place {
    folder: TempDir,
    authority: Authority,
    serving: Certificate,
    admin: Certificate,
    port: u16,
    disk: Option<Disk>,
}

/// The program, which is serving.
pub struct Program {
    pub process: Process,
    client: Client,
    pub llamas: Api<Llama>,
}

impl Program {
    /// The llamas of another namespace.
    pub fn in_namespace(&self, name: &str) -> Api<Llama> {
        Api::namespaced(self.client.clone(), name)
    }
}

impl Place {
    pub fn new() -> Result<Self> {
        Self::with(None)
    }

    /// Same as `new`, with the directory for objects on this disk.
    pub fn on(disk: Disk) -> Result<Self> {
        Self::with(Some(disk))
    }

    fn with(disk: Option<Disk>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let authority = Authority::new("ca", &path.join("ca.crt"))?;
        let serving = authority.server(path, "serving", &["localhost"])?;
        let admin = authority.client(path, "admin", "admin", Some("system:masters"))?;
        let port = free_port()?;
        Ok(Self { folder, authority, serving, admin, port, disk })
    }

    /// The disk, if there is one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// The directory with all files.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The command that starts the program.
    pub fn command(&self) -> Result<Command> {
        self.command_in(&self.data())
    }

    /// The directory with the objects.
    fn data(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.path(), Disk::path).join("data")
    }

    fn command_in(&self, data: &Path) -> Result<Command> {
        let nowhere = config("https://127.0.0.1:1", &json!({}), &json!({}));
        std::fs::write(self.path().join("kubeconfig"), nowhere.to_string())?;
        let program = env!("CARGO_BIN_EXE_farm-operator");
        let mut command =
            self.disk.as_ref().map_or_else(|| Command::new(program), |disk| disk.command(program));
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &self.port.to_string()]);
        // The error message must not contain a backtrace.
        command.env("RUST_BACKTRACE", "0");
        command.args(["--shutdown-delay-duration", "0s"]);
        command.args(["--disable-admission-plugins", "NamespaceLifecycle,ResourceQuota"]);
        command.args(["--store-namespace-limit", "100%"]);
        for (flag, file) in [
            ("--data-dir", data),
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

    /// Flips a bit of a stored string.
    pub fn damage(&self, text: &str) -> Result<()> {
        let file = self.path().join("data/objects.db");
        let mut content = std::fs::read(&file)?;
        let is_it = |window: &[u8]| window == text.as_bytes();
        let place = content.windows(text.len()).position(is_it).context("it is not there")?;
        content[place] ^= 1;
        Ok(std::fs::write(&file, content)?)
    }

    /// Starts the program, and waits until it serves llamas.
    pub async fn start(&self) -> Result<Program> {
        self.start_in(&self.data()).await
    }

    /// Starts the program with a flag that names a file.
    pub async fn start_with(&self, flag: &str, file: &Path) -> Result<Program> {
        let mut command = self.command()?;
        command.arg(flag).arg(file);
        self.start_by(&command, &self.data()).await
    }

    /// Starts the program with its objects in another directory.
    pub async fn start_in(&self, data: &Path) -> Result<Program> {
        self.start_by(&self.command_in(data)?, data).await
    }

    /// Starts the program with a recorder of its file operations.
    pub async fn start_recorded(
        &self,
        recorder: &Recorder,
        recording: &Recording<'_>,
    ) -> Result<Program> {
        let mut command = self.command_in(recording.folder)?;
        recorder.watch(&mut command, recording);
        self.start_by(&command, recording.folder).await
    }

    async fn start_by(&self, command: &Command, data: &Path) -> Result<Program> {
        let name = data.file_name().context("a name")?;
        let log = self.path().join(name).with_extension("log");
        let process = Process::spawn(command, &log)?;
        let client = self.client().await?;
        let llamas = Api::namespaced(client.clone(), "default");
        let mut program = Program { process, client, llamas };
        let deadline = Instant::now() + START;
        loop {
            program.process.ensure_running()?;
            match program.llamas.get("dolly").await {
                Ok(_) => return Ok(program),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(program),
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
