//! A server as a process of its own, and what it has used.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tokio::io::AsyncReadExt;

use crate::Server;

const ADDRESS: &str = "address";
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(30);
/// The kernel counts CPU time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Says where a server listens, to whoever has started it.
pub fn announce(folder: &Path, address: SocketAddr) -> Result<()> {
    // Renamed, so that it is never read half-written.
    fs::write(folder.join("address.new"), address.to_string())?;
    Ok(fs::rename(folder.join("address.new"), folder.join(ADDRESS))?)
}

/// Returns when whoever has started this process closes its input, or is gone.
pub async fn wait_for_end() {
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
}

/// A server that runs. Dropping it ends it.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    /// From its start until it listened.
    pub started: Duration,
}

impl Process {
    pub async fn start(server: Server, folder: &Path, objects: usize) -> Result<Self> {
        let _ = fs::remove_file(folder.join(ADDRESS));
        let name = server.to_possible_value().context("a server has a name")?;
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(name.get_name())
            .arg(folder)
            .arg(objects.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .env("RUST_LOG", "off")
            .spawn()?;
        loop {
            if let Ok(address) = fs::read_to_string(folder.join(ADDRESS)) {
                let started = begun.elapsed();
                return Ok(Self { child, address: address.parse()?, started });
            }
            if let Some(status) = child.try_wait()? {
                bail!("{} has ended: {status}", name.get_name());
            }
            if begun.elapsed() > START {
                let _ = child.kill();
                bail!("{} does not listen", name.get_name());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The CPU time that it has used.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may hold anything.
        let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat")?;
        let ticks: Vec<u32> =
            fields.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
        Ok(TICK * ticks.iter().sum())
    }

    /// The memory that it holds.
    pub fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let bytes = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("status")?;
            let kibibytes = line.split_whitespace().next().context("status")?;
            Ok(kibibytes.parse::<u64>()? << 10)
        };
        Ok(Memory { resident: bytes("VmRSS:")?, own: bytes("RssAnon:")? })
    }
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All that is in memory, the program's file too.
    pub resident: u64,
    /// What it has made itself.
    pub own: u64,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
