//! The environment of the tests: a control plane with farm-operator.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use test_cluster::{ControlPlane, Kubectl, Process, Programs, Token, free_port, kubeconfig, lines};

use crate::harness::Shared;

pub const NAMESPACE: &str = "farm-operator";
/// The image of Pods. No kubelet runs it.
pub const IMAGE: &str = "registry.k8s.io/pause:3.10";
/// The APIService of the version that has all kinds.
pub const API_SERVICE: &str = "v1alpha.farm.example.com";
/// All APIServices, one for each version.
pub const API_SERVICES: [&str; 2] = ["v1.farm.example.com", API_SERVICE];
/// The llamas of a namespace in each version, in the order of the APIServices.
pub const LLAMAS_OF_VERSIONS: [&str; 2] =
    ["/apis/farm.example.com/v1/namespaces/default/llamas", LLAMAS];
/// The llamas of a namespace in the version that has all kinds.
pub const LLAMAS: &str = "/apis/farm.example.com/v1alpha/namespaces/default/llamas";
/// The timeout for something that happens by itself.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct World {
    // Dropped first, because it uses the control plane.
    pub server: Process,
    pub port: u16,
    pub control_plane: ControlPlane,
    pub server_kubeconfig: PathBuf,
}

impl Shared for World {
    fn start(programs: &Programs) -> Result<Self> {
        let users = ["jane", "ann", "eve", "joe", "mia", "kim", "lou"].map(Token::of);
        Self::start_on(ControlPlane::start(programs, &users)?, &[])
    }

    fn server_log(&self) -> String {
        self.server.printed()
    }
}

impl World {
    /// Starts farm-operator with these arguments behind a control plane.
    pub fn start_on(control_plane: ControlPlane, arguments: &[&str]) -> Result<Self> {
        // The same steps as an operator's, except that the Service refers to this machine, because no Pod runs here.
        install(&control_plane)?;
        let port = free_port()?;
        let service = (NAMESPACE, farm_operator::NAME);
        control_plane.lead_to_localhost(&API_SERVICES, service, port)?;
        let server_kubeconfig = kubeconfig_of_server(&control_plane)?;
        let server = spawn(&control_plane, &server_kubeconfig, port, arguments)?;
        let world = Self { server, port, control_plane, server_kubeconfig };
        world.wait_available().with_context(|| world.server_log())?;
        Ok(world)
    }

    pub fn kubectl<const N: usize>(&self, arguments: [&str; N]) -> Kubectl {
        self.control_plane.kubectl(arguments)
    }

    /// Runs kubectl as one of the users.
    pub fn kubectl_as<const N: usize>(&self, user: &str, arguments: [&str; N]) -> Result<Kubectl> {
        let kubeconfig = self.control_plane.kubeconfig_of_token(user, &format!("{user}-token"))?;
        Ok(self.control_plane.kubectl_as(&kubeconfig, arguments))
    }

    /// A kubeconfig for direct requests to farm-operator, with these credentials.
    pub fn directly(&self, name: &str, user: &serde_json::Value) -> Result<PathBuf> {
        let secret = "secret/farm-operator-serving-certificate";
        let path = "-o=jsonpath={.data.ca\\.crt}";
        let ca = self.kubectl(["get", secret, "-n", NAMESPACE, path]).run()?;
        self.directly_by(&ca, name, user)
    }

    /// A kubeconfig for direct requests that trusts only this CA, in base64.
    pub fn directly_by(&self, ca: &str, name: &str, user: &serde_json::Value) -> Result<PathBuf> {
        let file = self.control_plane.folder().join(format!("{name}-direct.kubeconfig"));
        let cluster = serde_json::json!({
            "server": format!("https://localhost:{}", self.port),
            "certificate-authority-data": ca,
        });
        std::fs::write(&file, kubeconfig(&cluster, user).to_string())?;
        Ok(file)
    }

    pub fn wait_available(&self) -> Result<()> {
        let mut wait = vec!["wait", "--for=condition=Available", "--timeout=60s", "apiservice"];
        wait.extend(API_SERVICES);
        self.control_plane.kubectl(wait).run()?;
        // kube-apiserver forwards requests for a version some time after it has set the condition of the version.
        for path in LLAMAS_OF_VERSIONS {
            self.eventually(|| self.kubectl(["get", "--raw", path]).run())?;
        }
        Ok(())
    }

    /// Repeats a function until it succeeds.
    pub fn eventually<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask() {
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("not even after two minutes"));
                }
                Err(_) => thread::sleep(Duration::from_millis(100)),
                answered => return answered,
            }
        }
    }

    /// Creates a Deployment, and waits until this number of Pods exists.
    pub fn deploy(&self, name: &str, replicas: usize) -> Result<()> {
        let image = format!("--image={IMAGE}");
        let created = self.kubectl(["create", "deployment", name, &image]).output()?;
        ensure!(created.succeeded || created.errors.contains("already exists"), "{created:?}");
        let deployment = format!("deployment/{name}");
        let scale = format!("--replicas={replicas}");
        self.kubectl(["scale", &deployment, &scale]).run()?;
        let selector = format!("app={name}");
        self.eventually(|| {
            let names = ["get", "farmpods", "-l", &selector, "-o", "name"];
            let names = self.kubectl(names).run()?;
            ensure!(names.lines().count() == replicas, "{names}");
            Ok(())
        })
    }

    /// Kills the server and starts it again, with the current permissions of its ServiceAccount.
    pub fn restart_server(&mut self) -> Result<()> {
        self.restart_server_with(&[])
    }

    /// Kills the server and starts it again with these arguments.
    pub fn restart_server_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.server.kill();
        self.server_kubeconfig = kubeconfig_of_server(&self.control_plane)?;
        self.server = spawn(&self.control_plane, &self.server_kubeconfig, self.port, arguments)?;
        Ok(())
    }
}

impl World {
    /// Starts another process of the same server, on another port.
    pub fn start_another(&self, name: &str, arguments: &[&str]) -> Result<(u16, Process)> {
        self.start_another_as(&self.server_kubeconfig, name, arguments)
    }

    /// Starts another process of the same server, with the permissions of this kubeconfig.
    pub fn start_another_as(
        &self,
        kubeconfig: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Result<(u16, Process)> {
        let (port, mut command) = command_of_another(kubeconfig)?;
        command.args(arguments);
        let log = self.control_plane.folder().join(format!("{name}.log"));
        Ok((port, Process::spawn(&command, &log)?))
    }
}

/// Applies the manifests.
pub fn install(control_plane: &ControlPlane) -> Result<()> {
    let manifest = std::fs::read_to_string(manifest_file())?;
    control_plane.kubectl(["apply", "-f", "-"]).input(&manifest).run()?;
    Ok(())
}

fn kubeconfig_of_server(control_plane: &ControlPlane) -> Result<PathBuf> {
    let create = ["create", "token", farm_operator::NAME, "-n", NAMESPACE];
    let token = control_plane.kubectl(create).run()?;
    control_plane.kubeconfig_of_token("farm-operator", token.trim())
}

fn spawn(
    control_plane: &ControlPlane,
    kubeconfig: &Path,
    port: u16,
    arguments: &[&str],
) -> Result<Process> {
    let mut command = command(kubeconfig, port);
    command.args(arguments);
    Process::spawn(&command, &control_plane.folder().join("farm-operator.log"))
}

/// The command that starts another process of the same server, and its port.
pub fn command_of_another(kubeconfig: &Path) -> Result<(u16, Command)> {
    let port = free_port()?;
    Ok((port, command(kubeconfig, port)))
}

fn command(kubeconfig: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    command
        .args(["--bind-address=127.0.0.1", "--namespace", NAMESPACE])
        .arg(format!("--secure-port={port}"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env_remove("RUST_LOG");
    command
}

pub fn manifest_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("app.yaml")
}

/// A long-running client, whose output is read line by line. Dropping it ends the client.
pub struct Following {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    seen: Vec<String>,
}

impl Following {
    pub fn start(kubectl: Kubectl) -> Result<Self> {
        Self::run(kubectl.into_command())
    }

    pub fn run(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let output = child.stdout.take().context("no output")?;
        let errors = child.stderr.take().context("no errors")?;
        Ok(Self { child, lines: lines(output), errors: lines(errors), seen: Vec::new() })
    }

    /// The output so far, and the errors.
    fn printed(&self) -> String {
        let error = || self.errors.recv_timeout(Duration::from_millis(100)).ok();
        let errors: Vec<String> = std::iter::from_fn(error).collect();
        format!("{:#?}, errors: {errors:#?}", self.seen)
    }

    /// Waits for a line that contains all of these strings.
    pub fn wait_for(&mut self, parts: &[&str]) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                bail!("no line with {parts:?} among {}", self.printed());
            };
            self.seen.push(line.clone());
            if parts.iter().all(|part| line.contains(part)) {
                return Ok(line);
            }
        }
    }

    /// Waits until the client ends successfully by itself.
    pub fn wait_for_end(mut self) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline - Instant::now()) {
            self.seen.push(line);
        }
        ensure!(Instant::now() < deadline, "it goes on: {}", self.printed());
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {}", self.printed());
        Ok(std::mem::take(&mut self.seen))
    }
}

/// The lines of the output, until the client ends.
impl Iterator for Following {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(Ok(line))
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                Some(Err(anyhow!("nothing comes after {}", self.printed())))
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
