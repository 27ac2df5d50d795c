//! The program with its own directory and an unreachable cluster. Administrators do not need the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use farm_operator::v1alpha::Llama;
use kube::{Api, Client};
use test_cluster::{Certificate, Process, ServerFiles, free_port};
use test_server::{client, wait_until_served};

use crate::disk::Disk;
use crate::recorder::{Recorder, Recording};

/// The admission plugins, which would need a cluster.
const ADMISSION_PLUGINS: &str = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,ResourceQuota";

/// Certificates, and a directory for objects.
pub struct Installation {
    files: ServerFiles,
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

impl Installation {
    pub fn new() -> Result<Self> {
        Self::with(None)
    }

    /// Same as `new`, with the directory for objects on this disk.
    pub fn on(disk: Disk) -> Result<Self> {
        Self::with(Some(disk))
    }

    fn with(disk: Option<Disk>) -> Result<Self> {
        let files = ServerFiles::new(ServerFiles::NO_CLUSTER)?;
        let admin = files.client("admin", Some("system:masters"))?;
        Ok(Self { files, admin, port: free_port()?, disk })
    }

    /// The disk, if there is one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// The directory with all files.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The command that starts the program.
    pub fn command(&self) -> Command {
        self.command_in(&self.data())
    }

    /// The directory with the objects.
    fn data(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.path(), Disk::path).join("data")
    }

    fn command_in(&self, data: &Path) -> Command {
        let program = env!("CARGO_BIN_EXE_farm-operator");
        let mut command =
            self.disk.as_ref().map_or_else(|| Command::new(program), |disk| disk.command(program));
        self.files.configure(&mut command, self.port);
        // The error message must not contain a backtrace.
        command.env("RUST_BACKTRACE", "0");
        command.args(["--shutdown-delay-duration", "0s"]);
        command.args(["--disable-admission-plugins", ADMISSION_PLUGINS]);
        command.args(["--store-namespace-limit", "100%", "--data-dir"]).arg(data);
        command
    }

    /// Flips a bit of a stored string.
    pub fn damage(&self, text: &str) -> Result<()> {
        let file = self.path().join("data/objects.db");
        let mut content = std::fs::read(&file)?;
        let is_it = |window: &[u8]| window == text.as_bytes();
        let position = content.windows(text.len()).position(is_it).context("it is not there")?;
        content[position] ^= 1;
        Ok(std::fs::write(&file, content)?)
    }

    /// Starts the program, and waits until it serves llamas.
    pub async fn start(&self) -> Result<Program> {
        self.start_in(&self.data()).await
    }

    /// Starts the program with a flag that names a file.
    pub async fn start_with(&self, flag: &str, file: &Path) -> Result<Program> {
        let mut command = self.command();
        command.arg(flag).arg(file);
        self.start_by(&command, &self.data()).await
    }

    /// Starts the program with its objects in another directory.
    pub async fn start_in(&self, data: &Path) -> Result<Program> {
        self.start_by(&self.command_in(data), data).await
    }

    /// Starts the program with a recorder of its file operations.
    pub async fn start_recorded(
        &self,
        recorder: &Recorder,
        recording: &Recording<'_>,
    ) -> Result<Program> {
        let mut command = self.command_in(recording.folder);
        recorder.watch(&mut command, recording);
        self.start_by(&command, recording.folder).await
    }

    async fn start_by(&self, command: &Command, data: &Path) -> Result<Program> {
        let name = data.file_name().context("a name")?;
        let log = self.path().join(name).with_extension("log");
        let process = Process::spawn(command, &log)?;
        let client = client(&self.files.kubeconfig(self.port, &self.admin)?).await?;
        let llamas = Api::namespaced(client.clone(), "default");
        let mut program = Program { process, client, llamas };
        wait_until_served(&mut program.process, &program.llamas).await?;
        Ok(program)
    }
}
