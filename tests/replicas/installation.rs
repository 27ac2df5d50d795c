//! Replicas of the program with one etcd and an unreachable cluster. Administrators do not need the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use farm_operator::v1alpha::Llama;
use kube::{Api, Client};
use test_cluster::{Certificate, Process, ServerFiles, free_port};
use test_server::{client_without_retries, wait_until_served};

use crate::clock::Clock;

/// The admission plugins, which would need a cluster.
const ADMISSION_PLUGINS: &str = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,ResourceQuota";

/// Certificates, and the URLs of etcd.
pub struct Installation {
    files: ServerFiles,
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

impl Installation {
    pub fn new(etcd: Vec<String>) -> Result<Self> {
        let files = ServerFiles::new(ServerFiles::NO_CLUSTER)?;
        let admin = files.client("admin", Some("system:masters"))?;
        Ok(Self { files, admin, etcd, clock: None })
    }

    /// The directory with all files.
    pub fn path(&self) -> &Path {
        self.files.path()
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
    pub fn command(&self, port: u16, etcd: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        self.files.configure(&mut command, port);
        // The error message must not contain a backtrace.
        command.env("RUST_BACKTRACE", "0");
        command.args(["--shutdown-delay-duration", "0s"]);
        command.args(["--disable-admission-plugins", ADMISSION_PLUGINS]);
        command.args(["--store-namespace-limit", "100%", "--etcd-servers", &etcd.join(",")]);
        command
    }

    /// Starts a replica, and waits until it serves llamas.
    pub async fn start(&self, flags: &[&str]) -> Result<Replica> {
        self.start_on(free_port()?, &self.etcd, flags).await
    }

    /// Starts a replica at a port with these URLs of etcd, and waits until it serves llamas.
    pub async fn start_on(&self, port: u16, etcd: &[String], flags: &[&str]) -> Result<Replica> {
        let mut replica = self.begin(port, etcd, flags).await?;
        wait_until_served(&mut replica.process, &replica.llamas).await?;
        Ok(replica)
    }

    /// Starts a replica without waiting.
    pub async fn begin(&self, port: u16, etcd: &[String], flags: &[&str]) -> Result<Replica> {
        let mut command = self.command(port, etcd);
        command.args(flags);
        if let Some(clock) = self.clock_of(port) {
            clock.give_to(&mut command);
        }
        let process = Process::spawn(&command, &self.log(port))?;
        let client = client_without_retries(&self.kubeconfig(port)?).await?;
        let llamas = Api::namespaced(client.clone(), "default");
        Ok(Replica { process, port, llamas, client })
    }

    /// The log file of the replica at a port. All processes of the replica append to it.
    pub fn log(&self, port: u16) -> PathBuf {
        self.path().join(format!("{port}.log"))
    }

    /// Writes the kubeconfig of an administrator for the server at a port. Returns its path.
    pub fn kubeconfig(&self, port: u16) -> Result<PathBuf> {
        self.files.kubeconfig(port, &self.admin)
    }
}
