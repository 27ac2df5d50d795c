//! Compares clients step by step. Each client prints the result of every step, once with a real kube-apiserver without
//! controllers, and once with the standalone server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use test_cluster::{ControlPlane, Missing, Programs, Standalone, lines};

use crate::{PATIENCE, PROGRAM};

pub const TESTS: &[(&str, Client)] = &[
    ("client_go_in_json", Client::Go { format: "json" }),
    ("client_go_in_protobuf", Client::Go { format: "protobuf" }),
    ("java_client", Client::Java),
    ("javascript_client", Client::JavaScript),
];

/// A program that is a client of an API server.
#[derive(Clone, Copy)]
pub enum Client {
    /// `crates/test-cluster/programs/typed`
    Go { format: &'static str },
    /// `Steps.java`
    Java,
    /// `steps.mjs`
    JavaScript,
}

impl Client {
    /// The requirement of the client that this machine lacks, if any.
    pub fn is_missing(self) -> Option<&'static str> {
        match self {
            Self::Go { .. } => {
                Programs::typed().is_err_and(|error| error.is::<Missing>()).then_some("no go")
            }
            Self::Java => {
                let found = libraries().is_some_and(|folder| folder.is_dir())
                    && is_there("java", "-version");
                (!found).then_some("no Java with the libraries of its client")
            }
            Self::JavaScript => {
                let package = "@kubernetes/client-node";
                let found = modules().is_some_and(|modules| modules.join(package).is_dir())
                    && is_there("node", "--version");
                (!found).then_some("no node with the package @kubernetes/client-node")
            }
        }
    }

    /// Whether the client must exist where a control plane must exist.
    pub fn is_required(self) -> bool {
        matches!(self, Self::Go { .. })
    }

    /// The name of the client in `differences.txt`.
    fn name(self) -> String {
        match self {
            Self::Go { format } => format!("go-{format}"),
            Self::Java => "java".to_owned(),
            Self::JavaScript => "javascript".to_owned(),
        }
    }

    fn command(self, kubeconfig: &Path) -> Result<Command> {
        Ok(match self {
            Self::Go { format } => {
                let mut command = Command::new(Programs::typed()?);
                command.arg(kubeconfig).arg(format);
                command
            }
            Self::Java => {
                let libraries = libraries().context("$JAVA_LIBRARIES is not set")?;
                let mut command = Command::new("java");
                // The client assumes RSA for a key without a declared algorithm.
                command.arg("-Dkubernetes.certs.client.key.algo=EC").arg("-cp");
                command.arg(libraries.join("*")).arg(source("Steps.java")).arg(kubeconfig);
                command
            }
            Self::JavaScript => {
                let mut command = Command::new("node");
                command.arg(source("steps.mjs")).arg(kubeconfig);
                let modules = modules().context("$NODE_MODULES is not set")?;
                command.env("NODE_MODULES", modules);
                command
            }
        })
    }
}

fn is_there(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The directory with the archives of `pom.xml`: `$JAVA_LIBRARIES`.
fn libraries() -> Option<PathBuf> {
    std::env::var_os("JAVA_LIBRARIES").map(PathBuf::from)
}

/// The directory with the packages of node: `$NODE_MODULES`.
fn modules() -> Option<PathBuf> {
    std::env::var_os("NODE_MODULES").map(PathBuf::from)
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/other_programs").join(file)
}

/// Both servers, started when the first client needs them.
pub struct Clients {
    programs: Option<Programs>,
    // One client at a time, because some read objects of all namespaces.
    servers: Mutex<Option<(ControlPlane, Standalone)>>,
}

impl Clients {
    pub fn new(programs: Option<Programs>) -> Self {
        Self { programs, servers: Mutex::new(None) }
    }

    pub fn compare(&self, client: &Client) -> Result<()> {
        let programs = self.programs.as_ref().context("there is no control plane")?;
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let (control_plane, server) = match &mut *servers {
            Some(servers) => servers,
            none => {
                let control_plane = ControlPlane::start_without_controllers(programs)?;
                none.insert((control_plane, Standalone::start(PROGRAM, &[])?))
            }
        };
        let there = client.command(&control_plane.kubeconfig())?;
        let here = client.command(&server.kubeconfig)?;
        let folder = server.path();
        let (theirs, ours) = thread::scope(|scope| {
            let theirs = scope.spawn(|| steps(there, &folder.join("there.err")));
            let ours = steps(here, &folder.join("here.err"));
            (theirs.join(), ours)
        });
        let theirs = theirs.map_err(|_| anyhow!("a thread panicked"))?;
        let theirs = theirs.context("at kube-apiserver")?;
        let ours = ours.context("at our server")?;
        let known = Known::read()?;
        known.judge(&client.name(), &theirs, &ours).map_err(|found| {
            anyhow!("{found}\nthe end of our server's log:\n{}", server.end_of_log())
        })
    }

    /// Stops the servers.
    pub fn end(&self) {
        drop(self.servers.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The result of each step, by its name.
type Steps = BTreeMap<String, String>;

/// Runs a client until it ends.
fn steps(mut command: Command, errors: &Path) -> Result<Steps> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(errors)?);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().context("no output")?;
    let lines = lines(output);
    let deadline = Instant::now() + PATIENCE;
    let mut steps = Steps::new();
    let ended = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let Some((name, result)) = step(&line) else {
                    break Err(anyhow!("this is no step: {line}"));
                };
                if steps.insert(name.to_owned(), result.to_owned()).is_some() {
                    break Err(anyhow!("two steps are called {name:?}"));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                break Err(anyhow!("it goes on after {} steps", steps.len()));
            }
        }
    };
    if ended.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    ended?;
    ensure!(status.success(), "{status}: {}", fs::read_to_string(errors)?);
    ensure!(!steps.is_empty(), "it printed nothing");
    Ok(steps)
}

/// Parses a line `kind: step: result`.
fn step(line: &str) -> Option<(&str, &str)> {
    let kind = line.find(": ")? + 2;
    let name = kind + line[kind..].find(": ")?;
    Some((&line[..name], &line[name + 2..]))
}

/// The steps whose results are known to differ.
struct Known(Vec<Difference>);

struct Difference {
    /// The name of a client, or `go` for both clients in Go.
    client: String,
    /// The name of a step; `*` stands for any kind.
    step: String,
}

impl Known {
    fn read() -> Result<Self> {
        let file = source("differences.txt");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut has_reason = false;
        let mut differences = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with("== ") {
                has_reason = true;
            } else if !line.is_empty() && !line.starts_with('#') {
                ensure!(has_reason, "no reason is given for {line:?}");
                let (client, step) = line.split_once(' ').context(line.to_owned())?;
                differences.push(Difference { client: client.to_owned(), step: step.to_owned() });
            }
        }
        Ok(Self(differences))
    }

    /// Fails if a result differs that is not known to differ, or if a known difference no longer exists.
    fn judge(&self, client: &str, theirs: &Steps, ours: &Steps) -> Result<(), String> {
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        let language = client.split('-').next();
        let is_of = |known: &&Difference| known.client == client || language == Some(&known.client);
        let known: Vec<&Difference> = self.0.iter().filter(is_of).collect();
        let mut met = vec![false; known.len()];
        let (mut found, mut count) = (String::new(), 0);
        for name in names {
            let (there, here) = (theirs.get(name), ours.get(name));
            let differs = there != here;
            let mut is_known = false;
            for (index, known) in known.iter().enumerate().filter(|(_, known)| known.is_of(name)) {
                met[index] = true;
                is_known = true;
                if !differs {
                    count += 1;
                    let _ = writeln!(
                        found,
                        "{name}\n  is known to differ ({}), and does not",
                        known.step
                    );
                }
            }
            if differs && !is_known {
                count += 1;
                let none = "(no such step)".to_owned();
                let (there, here) = (there.unwrap_or(&none), here.unwrap_or(&none));
                let (there, here) = from_where_they_part(there, here);
                let _ =
                    writeln!(found, "{name}\n  kube-apiserver: {there}\n  ours:           {here}");
            }
        }
        for (known, _) in known.iter().zip(&met).filter(|(_, met)| !**met) {
            count += 1;
            let _ =
                writeln!(found, "{}\n  is known to differ, and there is no such step", known.step);
        }
        if count > 0 {
            return Err(format!("{count} of {} steps of {client}:\n{found}", theirs.len()));
        }
        Ok(())
    }
}

impl Difference {
    fn is_of(&self, step: &str) -> bool {
        match self.step.strip_prefix('*') {
            Some(rest) => {
                step.split_once(": ").is_some_and(|(_, name)| rest.strip_prefix(": ") == Some(name))
            }
            None => self.step == step,
        }
    }
}

/// Truncates long results to the part from shortly before their first difference.
fn from_where_they_part(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let skipped = if same > 100 { same - 60 } else { 0 };
    let shown = |text: &str| {
        let begin = if skipped > 0 { "… " } else { "" };
        let part: String = text.chars().skip(skipped).take(400).collect();
        format!("{begin}{part}")
    };
    (shown(one), shown(other))
}
