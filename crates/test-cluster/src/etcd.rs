//! An etcd cluster with one or more members, without a control plane.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::ports::free_ports;
use crate::{Authority, Certificate, Process, Programs, unless_missing};

const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd cluster. Its members run as child processes and store their data in a temporary directory.
pub struct Etcd {
    programs: Programs,
    folder: TempDir,
    members: Vec<Member>,
    options: Options,
}

/// The options of all members.
#[derive(Default)]
struct Options {
    tls: Option<Tls>,
    /// The storage quota, in bytes.
    quota: Option<u64>,
}

/// The serving certificate of a member, and the CA of its clients.
struct Tls {
    serving: Certificate,
    authority: PathBuf,
    _folder: TempDir,
}

struct Member {
    ports: Ports,
    process: Process,
}

#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    /// The port of health and metrics, without authentication.
    health: u16,
}

impl Etcd {
    /// Starts `members` members, and waits until they are healthy.
    ///
    /// # Errors
    /// When a member does not become healthy.
    pub fn start(programs: &Programs, members: usize) -> Result<Self> {
        Self::start_by(programs, members, Options::default())
    }

    /// Starts `members` members for a test, or returns `None` if etcd is [missing](crate::unless_missing).
    ///
    /// # Errors
    /// Same as [`Etcd::start`], or when etcd is missing and required.
    pub fn start_unless_missing(members: usize) -> Result<Option<Self>> {
        let programs = unless_missing(Programs::find())?;
        programs.map(|programs| Self::start(&programs, members)).transpose()
    }

    /// Starts one member with a storage quota, in bytes.
    ///
    /// # Errors
    /// Same as [`Etcd::start`].
    pub fn start_with_quota(programs: &Programs, quota: u64) -> Result<Self> {
        Self::start_by(programs, 1, Options { quota: Some(quota), ..Options::default() })
    }

    /// Starts one member with a certificate of this authority for `localhost`. It accepts only clients with a
    /// certificate of the same authority.
    ///
    /// # Errors
    /// Same as [`Etcd::start`].
    pub fn start_with_tls(programs: &Programs, authority: &Authority) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let serving = authority.server(folder.path(), "serving", &["localhost"])?;
        let tls = Tls { serving, authority: authority.file.clone(), _folder: folder };
        Self::start_by(programs, 1, Options { tls: Some(tls), ..Options::default() })
    }

    fn start_by(programs: &Programs, members: usize, options: Options) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut free = HashSet::new();
        while free.len() < 3 * members {
            free.extend(free_ports::<3>()?);
        }
        let free: Vec<u16> = free.into_iter().collect();
        let ports: Vec<Ports> = free
            .chunks_exact(3)
            .take(members)
            .map(|three| Ports { client: three[0], peer: three[1], health: three[2] })
            .collect();
        let start = |index: usize| {
            let process = spawn(programs, folder.path(), (index, &ports), &options)?;
            Ok(Member { ports: ports[index], process })
        };
        let members = (0..members).map(start).collect::<Result<Vec<_>>>()?;
        let mut etcd = Self { programs: programs.clone(), folder, members, options };
        etcd.wait_healthy()?;
        Ok(etcd)
    }

    /// Returns the URLs of the members, for example `http://127.0.0.1:1234` or `https://localhost:1234`.
    pub fn urls(&self) -> Vec<String> {
        let host =
            if self.options.tls.is_some() { "https://localhost" } else { "http://127.0.0.1" };
        self.members.iter().map(|member| format!("{host}:{}", member.ports.client)).collect()
    }

    /// Returns the process of a member.
    pub fn member(&mut self, index: usize) -> &mut Process {
        &mut self.members[index].process
    }

    /// Returns the index of the leader, if a member reports that it leads.
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: &Member| {
            let metrics = get(member.ports.health, "/metrics").unwrap_or_default();
            metrics.lines().any(|line| line == "etcd_server_is_leader 1")
        };
        self.members.iter().position(leads)
    }

    /// Returns a handle for queries about compaction, which is independent of this value.
    pub fn past(&self) -> Past {
        Past(self.members.iter().map(|member| member.ports.health).collect())
    }

    /// Restarts a killed member with its stored data.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        let ports: Vec<Ports> = self.members.iter().map(|member| member.ports).collect();
        let process = &mut self.members[index].process;
        process.kill();
        *process = spawn(&self.programs, self.folder.path(), (index, &ports), &self.options)?;
        Ok(())
    }

    /// Waits until all members are healthy.
    ///
    /// # Errors
    /// When a member has ended, or is not healthy within a minute.
    pub fn wait_healthy(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for member in &mut self.members {
            let ask = || get(member.ports.health, "/health");
            while !ask().is_ok_and(|answer| answer.contains("\"true\"")) {
                member.process.ensure_running()?;
                if Instant::now() > deadline {
                    bail!("etcd is not healthy:\n{}", member.process.printed());
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// A handle for queries about the compaction of an etcd cluster.
#[derive(Clone, Debug)]
pub struct Past(Vec<u16>);

impl Past {
    /// Returns the largest revision up to which a member reports its history as compacted; 0 if no member reports one.
    pub fn compacted(&self) -> u64 {
        let compacted = |port: &u16| {
            let metrics = get(*port, "/metrics").ok()?;
            let value = metrics
                .lines()
                .find_map(|line| line.strip_prefix("etcd_debugging_mvcc_compact_revision "))?;
            // Go formats large numbers as 1.234567e+06.
            let value: f64 = value.parse().ok()?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "revisions")]
            let value = value.max(0.0) as u64;
            Some(value)
        };
        self.0.iter().filter_map(compacted).max().unwrap_or_default()
    }
}

fn spawn(
    programs: &Programs,
    folder: &Path,
    (index, ports): (usize, &[Ports]),
    options: &Options,
) -> Result<Process> {
    let name = |index: usize| format!("m{index}");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let own = ports[index];
    let (mut client, peer) = (url(own.client), url(own.peer));
    let all = ports.iter().enumerate();
    let all = all.map(|(index, ports)| format!("{}={}", name(index), url(ports.peer)));
    let all: Vec<String> = all.collect();
    let mut command = Command::new(programs.path("etcd"));
    if let Some(quota) = options.quota {
        command.args(["--quota-backend-bytes", &quota.to_string()]);
    }
    if let Some(Tls { serving, authority, .. }) = &options.tls {
        client = client.replace("http:", "https:");
        command.arg("--client-cert-auth").arg("--cert-file").arg(&serving.certificate);
        command.arg("--key-file").arg(&serving.key).arg("--trusted-ca-file").arg(authority);
    }
    command
        .args(["--name", &name(index), "--data-dir"])
        .arg(folder.join(name(index)))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--listen-metrics-urls", &url(own.health)])
        .args(["--initial-cluster", &all.join(","), "--unsafe-no-fsync"]);
    Process::spawn(&command, &folder.join(format!("{}.log", name(index))))
}

/// Returns the HTTP response of a member.
fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
