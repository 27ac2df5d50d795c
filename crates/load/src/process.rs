//! A server in a process of its own, with its CPU time and memory.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::Server;
use crate::client::Client;
use crate::peer::Surroundings;

const LOG: &str = "server.log";
const ADDRESS: &str = "address";
/// The largest time until a server listens.
const START: Duration = Duration::from_secs(60);
/// The unit of CPU times in `/proc`: hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Writes the address of a server to a file, which the process that started the server reads.
pub fn announce(folder: &Path, address: SocketAddr) -> Result<()> {
    // A rename prevents that a partial file is read.
    fs::write(folder.join("address.new"), address.to_string())?;
    Ok(fs::rename(folder.join("address.new"), folder.join(ADDRESS))?)
}

/// A running server. Dropping it ends the process.
pub struct Process {
    process: test_cluster::Process,
    pub address: SocketAddr,
    /// The time from the start of the process until it listened.
    pub started: Duration,
}

impl Process {
    /// Starts this program as a server, and waits until its address is written.
    pub async fn start(
        server: Server,
        folder: &Path,
        objects: usize,
        etcd: Option<&str>,
    ) -> Result<Self> {
        let _ = fs::remove_file(folder.join(ADDRESS));
        let name = server.to_possible_value().context("a server has a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg(name.get_name()).arg(folder).arg(objects.to_string());
        command.envs(etcd.map(|etcd| ("ETCD_SERVERS", etcd)));
        Self::spawn(&mut command, folder, async || {
            fs::read_to_string(folder.join(ADDRESS)).ok()?.parse().ok()
        })
        .await
    }

    /// Starts this program as a server under valgrind, which counts instructions and prints their number at the end.
    /// The server has one thread, so that counts do not depend on scheduling.
    pub async fn start_counted(server: Server, folder: &Path, objects: usize) -> Result<Self> {
        let _ = fs::remove_file(folder.join(ADDRESS));
        // Removes the count of an earlier process.
        let _ = fs::remove_file(folder.join(LOG));
        let name = server.to_possible_value().context("a server has a name")?;
        let out = folder.join(format!("{}.callgrind", name.get_name()));
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(std::env::current_exe()?).env("TOKIO_WORKER_THREADS", "1");
        command.arg("serve").arg(name.get_name()).arg(folder).arg(objects.to_string());
        Self::spawn(&mut command, folder, async || {
            fs::read_to_string(folder.join(ADDRESS)).ok()?.parse().ok()
        })
        .await
    }

    /// Ends the process and returns its output.
    pub fn end(&mut self) -> Result<String> {
        self.process.terminate()?;
        self.process.wait()?;
        Ok(self.process.printed())
    }

    /// Starts a sample-apiserver, and waits until it is ready.
    pub async fn start_peer(peer: &Surroundings, folder: &Path) -> Result<Self> {
        let (mut command, port) = peer.command(folder)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Self::spawn(&mut command, folder, async || {
            let client = Client::connect(folder, address).await.ok()?;
            client.ask("GET", "/readyz", String::new()).await.ok()?;
            Some(address)
        })
        .await
    }

    async fn spawn(
        command: &mut Command,
        folder: &Path,
        listens: impl AsyncFn() -> Option<SocketAddr>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let log = folder.join(LOG);
        let mut process = test_cluster::Process::spawn(command.env("RUST_LOG", "off"), &log)?;
        loop {
            if let Some(address) = listens().await {
                return Ok(Self { process, address, started: begun.elapsed() });
            }
            process.ensure_running()?;
            ensure!(begun.elapsed() < START, "a server does not listen: {}", process.printed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the CPU time of the process so far.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The fields follow the name of the process, which may contain any characters.
        let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat")?;
        let ticks: Vec<u32> =
            fields.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
        Ok(TICK * ticks.iter().sum())
    }

    /// Returns the memory of the process.
    pub fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let bytes = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("status")?;
            let kibibytes = line.split_whitespace().next().context("status")?;
            Ok(kibibytes.parse::<u64>()? << 10)
        };
        Ok(Memory { resident: bytes("VmRSS:")?, own: bytes("RssAnon:")? })
    }
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// The resident memory, including mapped files.
    pub resident: u64,
    /// The anonymous part of the resident memory.
    pub own: u64,
}
