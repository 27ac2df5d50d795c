//! An etcd of one member or more, without a control plane.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::control_plane::free_ports;
use crate::{Process, Programs};

const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd whose members run beside us, with what they keep in a temporary folder.
pub struct Etcd {
    programs: Programs,
    folder: TempDir,
    members: Vec<Member>,
}

struct Member {
    client: u16,
    peer: u16,
    process: Process,
}

impl Etcd {
    /// Starts so many members; returns when they answer.
    ///
    /// # Errors
    /// When they do not.
    pub fn start(programs: &Programs, members: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut ports = HashSet::new();
        while ports.len() < 2 * members {
            ports.extend(free_ports::<2>()?);
        }
        let ports: Vec<u16> = ports.into_iter().collect();
        let pairs: Vec<(u16, u16)> = ports.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let peers: Vec<u16> = pairs.iter().map(|(_, peer)| *peer).collect();
        let start = |(index, (client, peer)): (usize, &(u16, u16))| {
            let process = spawn(programs, folder.path(), index, (*client, &peers))?;
            Ok(Member { client: *client, peer: *peer, process })
        };
        let members = pairs.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
        let mut etcd = Self { programs: programs.clone(), folder, members };
        etcd.wait_healthy()?;
        Ok(etcd)
    }

    /// Where its members are, as `http://127.0.0.1:1234`.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("http://127.0.0.1:{}", member.client)).collect()
    }

    /// The process of a member.
    pub fn member(&mut self, index: usize) -> &mut Process {
        &mut self.members[index].process
    }

    /// The member that leads the others, if one says so.
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: &Member| {
            let metrics = get(member.client, "/metrics").unwrap_or_default();
            metrics.lines().any(|line| line == "etcd_server_is_leader 1")
        };
        self.members.iter().position(leads)
    }

    /// Starts a member again that was killed, with what it had kept.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        let peers: Vec<u16> = self.members.iter().map(|member| member.peer).collect();
        let member = &mut self.members[index];
        member.process.kill();
        member.process = spawn(&self.programs, self.folder.path(), index, (member.client, &peers))?;
        Ok(())
    }

    /// Returns when all members answer.
    ///
    /// # Errors
    /// When one has ended, or does not within a minute.
    pub fn wait_healthy(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for member in &mut self.members {
            while !get(member.client, "/health").is_ok_and(|answer| answer.contains("\"true\"")) {
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

fn spawn(
    programs: &Programs,
    folder: &Path,
    index: usize,
    (client, peers): (u16, &[u16]),
) -> Result<Process> {
    let name = |index: usize| format!("m{index}");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(client), url(peers[index]));
    let all =
        peers.iter().enumerate().map(|(index, peer)| format!("{}={}", name(index), url(*peer)));
    let all: Vec<String> = all.collect();
    let mut command = Command::new(programs.path("etcd"));
    command
        .args(["--name", &name(index), "--data-dir"])
        .arg(folder.join(name(index)))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &all.join(","), "--unsafe-no-fsync"]);
    Process::spawn(&command, &folder.join(format!("{}.log", name(index))))
}

/// What a member answers over HTTP.
fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
