//! A control plane that tests can start, disturb and stop.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;

use crate::ports::free_ports;
use crate::{Authority, Certificate, Kubectl, Process, Programs, kubeconfig};

/// The largest time until a program is ready, also on a busy machine.
const START: Duration = Duration::from_secs(90);
/// The interval of readiness checks.
const ASK: Duration = Duration::from_millis(250);
/// The number of attempts to start. Another process may use a free port before we do.
const ATTEMPTS: usize = 3;

/// The prefix of the names of our temporary directories, and the file in them with the process id of their owner.
const PREFIX: &str = "control-plane-";
const OWNER: &str = "owner.pid";

/// A user with a static bearer token.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token.
    pub token: String,
    /// The user's name.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Token {
    /// Returns a token `<user>-token` for a user without groups.
    pub fn of(user: &str) -> Self {
        Self { token: format!("{user}-token"), user: user.to_owned(), groups: Vec::new() }
    }
}

/// A control plane. Dropping it stops its programs and removes its files.
pub struct ControlPlane {
    // The fields are dropped in this order: the programs that write to the directory before the directory.
    _controller_manager: Option<Process>,
    api_server: Process,
    etcd: Process,
    programs: Programs,
    ports: Ports,
    authority: Authority,
    front_proxy: Certificate,
    folder: TempDir,
}

/// The files of the audit policy, which exists only if the control plane is audited, and of the audit log.
const AUDIT_POLICY: &str = "audit-policy.yaml";
const AUDIT_LOG: &str = "audit.log";
/// The file of the AuthenticationConfiguration, which exists only if the control plane has one. It configures anonymous
/// requests.
const AUTHENTICATION: &str = "authentication.yaml";

/// The controllers that run.
#[derive(Clone, Copy)]
enum Controllers {
    All,
    None,
}

#[derive(Clone, Copy)]
struct Ports {
    etcd_client: u16,
    etcd_peer: u16,
    api_server: u16,
}

impl ControlPlane {
    /// Starts a control plane with these users, and the administrator of [`ControlPlane::kubeconfig`]. The start takes
    /// about four seconds.
    ///
    /// # Errors
    /// When a program does not start. The error contains the end of its output.
    pub fn start(programs: &Programs, tokens: &[Token]) -> Result<Self> {
        Self::start_with(programs, tokens, Controllers::All, None)
    }

    /// Starts a control plane without controllers: only etcd and kube-apiserver.
    ///
    /// # Errors
    /// Same as [`ControlPlane::start`].
    pub fn start_without_controllers(programs: &Programs) -> Result<Self> {
        Self::start_with(programs, &[], Controllers::None, None)
    }

    /// Starts a control plane without controllers, with an audit policy. Events are lines of
    /// [`ControlPlane::audit_log`].
    ///
    /// # Errors
    /// Same as [`ControlPlane::start`].
    pub fn start_audited(programs: &Programs, policy: &str) -> Result<Self> {
        Self::start_with(programs, &[], Controllers::None, Some((AUDIT_POLICY, policy)))
    }

    /// Starts a control plane without controllers, with an AuthenticationConfiguration.
    ///
    /// # Errors
    /// Same as [`ControlPlane::start`].
    pub fn start_with_authentication(programs: &Programs, configuration: &str) -> Result<Self> {
        Self::start_with(programs, &[], Controllers::None, Some((AUTHENTICATION, configuration)))
    }

    fn start_with(
        programs: &Programs,
        tokens: &[Token],
        controllers: Controllers,
        file: Option<(&str, &str)>,
    ) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_start(programs, tokens, controllers, file) {
                Err(error) if attempt < ATTEMPTS && format!("{error:?}").contains("in use") => {
                    attempt += 1;
                }
                started => return started,
            }
        }
    }

    fn try_start(
        programs: &Programs,
        tokens: &[Token],
        controllers: Controllers,
        file: Option<(&str, &str)>,
    ) -> Result<Self> {
        sweep();
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let path = folder.path().to_owned();
        fs::write(path.join(OWNER), std::process::id().to_string())?;
        let [etcd_client, etcd_peer, api_server] = free_ports()?;
        let ports = Ports { etcd_client, etcd_peer, api_server };
        let authority = Authority::new("cluster-ca", &path.join("ca.crt"))?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        authority.server(&path, "api-server", &names)?;
        let admin = authority.client(&path, "admin", "admin", Some("system:masters"))?;
        let manager = "system:kube-controller-manager";
        let manager = authority.client(&path, "controller-manager", manager, None)?;
        let front_proxy = new_front_proxy(&path)?;
        let key = KeyPair::generate()?;
        fs::write(path.join("service-account.key"), key.serialize_pem())?;
        fs::write(path.join("service-account.pub"), key.public_key_pem())?;
        fs::write(path.join("tokens.csv"), token_file(tokens))?;
        if let Some((name, content)) = file {
            fs::write(path.join(name), content)?;
        }
        let write_kubeconfig_of = |name: &str, certificate: &Certificate| -> Result<()> {
            let user = json!({
                "client-certificate": certificate.certificate,
                "client-key": certificate.key,
            });
            write_kubeconfig(&path.join(name), api_server, &path.join("ca.crt"), &user)
        };
        write_kubeconfig_of("admin.kubeconfig", &admin)?;
        write_kubeconfig_of("controller-manager.kubeconfig", &manager)?;

        let mut etcd = spawn_etcd(programs, &path, ports)?;
        let mut api_server = spawn_api_server(programs, &path, ports)?;
        wait_ready(programs, &path, &mut [&mut etcd, &mut api_server])?;
        let controller_manager = match controllers {
            Controllers::All => Some(spawn_controller_manager(programs, &path)?),
            Controllers::None => None,
        };
        let control_plane = Self {
            _controller_manager: controller_manager,
            api_server,
            etcd,
            programs: programs.clone(),
            ports,
            authority,
            front_proxy,
            folder,
        };
        Ok(control_plane)
    }

    /// Returns the temporary directory of the control plane.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.folder().join(AUDIT_LOG)
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// Writes a kubeconfig with a bearer token, and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_of_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        let file = self.folder().join(format!("{name}.kubeconfig"));
        let ca = self.authority.file.clone();
        write_kubeconfig(&file, self.ports.api_server, &ca, &json!({"token": token}))?;
        Ok(file)
    }

    /// Returns the URL of kube-apiserver, for example `https://127.0.0.1:1234`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api_server)
    }

    /// Returns the URL of etcd, for example `http://127.0.0.1:1234`.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.etcd_client)
    }

    /// The CA of the users and of kube-apiserver.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The client certificate that kube-apiserver presents to aggregated API servers.
    pub fn front_proxy(&self) -> &Certificate {
        &self.front_proxy
    }

    /// Returns a kubectl command with the administrator's kubeconfig.
    pub fn kubectl<I, S>(&self, arguments: I) -> Kubectl
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.kubectl_as(&self.kubeconfig(), arguments)
    }

    /// Returns a kubectl command with another kubeconfig.
    pub fn kubectl_as<I, S>(&self, kubeconfig: &Path, arguments: I) -> Kubectl
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Kubectl::new(&self.programs.path("kubectl"), kubeconfig, self.folder(), arguments)
    }

    /// Changes APIServices and their Service, so that requests are sent to a port of this machine instead of to Pods.
    ///
    /// # Errors
    /// When kube-apiserver rejects the change.
    pub fn lead_to_localhost(
        &self,
        api_services: &[&str],
        (namespace, service): (&str, &str),
        port: u16,
    ) -> Result<()> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        self.kubectl(["delete", "service", service, "-n", namespace, "--ignore-not-found"])
            .run()?;
        self.kubectl(["create", "-f", "-"]).input(&object.to_string()).run()?;
        let patch = json!({"spec": {"service": {"port": port}}}).to_string();
        for api_service in api_services {
            self.kubectl(["patch", "apiservice", api_service, "--type=merge", "-p", &patch])
                .run()?;
        }
        Ok(())
    }

    /// Kills kube-apiserver with SIGKILL.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Restarts kube-apiserver on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart_api_server(&mut self) -> Result<()> {
        self.api_server.kill();
        self.api_server = spawn_api_server(&self.programs, self.folder.path(), self.ports)?;
        wait_ready(&self.programs, self.folder.path(), &mut [&mut self.etcd, &mut self.api_server])
    }

    /// Kills etcd with SIGKILL. Reads from and writes to the store fail then. kube-apiserver continues to use the
    /// contents of its caches.
    pub fn kill_etcd(&mut self) {
        self.etcd.kill();
    }

    /// Restarts etcd with its stored data, and waits until kube-apiserver is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart_etcd(&mut self) -> Result<()> {
        self.etcd.kill();
        self.etcd = spawn_etcd(&self.programs, self.folder.path(), self.ports)?;
        wait_ready(&self.programs, self.folder.path(), &mut [&mut self.etcd, &mut self.api_server])
    }

    /// Creates another CA for the front proxy and restarts kube-apiserver with it. Afterwards nothing in the cluster
    /// refers to the old CA.
    ///
    /// # Errors
    /// When kube-apiserver does not start.
    pub fn exchange_front_proxy_authority(&mut self) -> Result<()> {
        self.api_server.kill();
        self.front_proxy = new_front_proxy(self.folder.path())?;
        self.restart_api_server()?;
        // kube-apiserver only adds certificates to an existing ConfigMap. It recreates a deleted one.
        let config_map = "extension-apiserver-authentication";
        self.kubectl(["delete", "configmap", config_map, "-n", "kube-system"]).run()?;
        self.kubectl([
            "wait",
            "--for=create",
            "configmap",
            config_map,
            "-n",
            "kube-system",
            "--timeout=90s",
        ])
        .run()?;
        Ok(())
    }
}

/// Waits until kube-apiserver is ready. Fails if one of the processes ends.
fn wait_ready(programs: &Programs, folder: &Path, processes: &mut [&mut Process]) -> Result<()> {
    let deadline = Instant::now() + START;
    let kubeconfig = folder.join("admin.kubeconfig");
    loop {
        for process in &mut *processes {
            process.ensure_running()?;
        }
        let ask = ["get", "--raw", "/readyz"];
        let asked = Kubectl::new(&programs.path("kubectl"), &kubeconfig, folder, ask).output()?;
        if asked.succeeded {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("kube-apiserver is not ready after {START:?}: {}", asked.errors);
        }
        thread::sleep(ASK);
    }
}

/// Removes the directories of earlier processes that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(owner) = fs::read_to_string(entry.path().join(OWNER)) else { continue };
        // A process that has ended has no command line, even if its parent has not waited for it yet.
        let processes = Path::new("/proc");
        let command = fs::read(processes.join(owner.trim()).join("cmdline"));
        if processes.join("self").exists() && command.unwrap_or_default().is_empty() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Creates a CA for the front proxy, and its client certificate.
fn new_front_proxy(folder: &Path) -> Result<Certificate> {
    let authority = Authority::new("front-proxy-ca", &folder.join("front-proxy-ca.crt"))?;
    authority.client(folder, "front-proxy-client", "front-proxy-client", None)
}

fn spawn_etcd(programs: &Programs, folder: &Path, ports: Ports) -> Result<Process> {
    let client = format!("http://127.0.0.1:{}", ports.etcd_client);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut command = Command::new(programs.path("etcd"));
    command
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
    Process::spawn(&command, &folder.join("etcd.log"))
}

fn spawn_api_server(programs: &Programs, folder: &Path, ports: Ports) -> Result<Process> {
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{}", ports.etcd_client)),
        ("secure-port", ports.api_server.to_string()),
        ("bind-address", "127.0.0.1".to_owned()),
        ("tls-cert-file", file("api-server.crt")),
        ("tls-private-key-file", file("api-server.key")),
        ("client-ca-file", file("ca.crt")),
        ("authorization-mode", "RBAC".to_owned()),
        // The first 256 addresses are reserved for Services that specify their address.
        ("service-cluster-ip-range", "10.0.0.0/16".to_owned()),
        // Same as in clusters of kubeadm; by default privileged containers are invalid.
        ("allow-privileged", "true".to_owned()),
        ("service-account-key-file", file("service-account.pub")),
        ("service-account-signing-key-file", file("service-account.key")),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("requestheader-client-ca-file", file("front-proxy-ca.crt")),
        ("requestheader-allowed-names", "front-proxy-client".to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("requestheader-uid-headers", "X-Remote-Uid".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
        ("proxy-client-cert-file", file("front-proxy-client.crt")),
        ("proxy-client-key-file", file("front-proxy-client.key")),
        ("token-auth-file", file("tokens.csv")),
        // With this plugin, a Pod needs a ServiceAccount, which a controller must create.
        ("disable-admission-plugins", "ServiceAccount".to_owned()),
    ];
    let mut command = Command::new(programs.path("kube-apiserver"));
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    match folder.join(AUTHENTICATION).exists() {
        true => command.arg(format!("--authentication-config={}", file(AUTHENTICATION))),
        false => command.arg("--anonymous-auth=false"),
    };
    if folder.join(AUDIT_POLICY).exists() {
        command.arg(format!("--audit-policy-file={}", file(AUDIT_POLICY)));
        command.arg(format!("--audit-log-path={}", file(AUDIT_LOG)));
    }
    Process::spawn(&command, &folder.join("kube-apiserver.log"))
}

fn spawn_controller_manager(programs: &Programs, folder: &Path) -> Result<Process> {
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = [
        ("service-account-private-key-file", file("service-account.key")),
        ("root-ca-file", file("ca.crt")),
        ("use-service-account-credentials", "true".to_owned()),
        ("controllers", "*,-nodelifecycle,-nodeipam".to_owned()),
    ];
    start_controller_manager(
        programs,
        &folder.join("controller-manager.kubeconfig"),
        folder,
        &flags,
    )
}

/// Starts kube-controller-manager with these flags. It can use any API server. Its log is in `folder`.
///
/// # Errors
/// When it cannot be started.
pub fn start_controller_manager(
    programs: &Programs,
    kubeconfig: &Path,
    folder: &Path,
    flags: &[(&str, String)],
) -> Result<Process> {
    let kubeconfig = kubeconfig.display();
    let mut command = Command::new(programs.path("kube-controller-manager"));
    command
        .arg(format!("--kubeconfig={kubeconfig}"))
        .arg(format!("--authentication-kubeconfig={kubeconfig}"))
        .arg(format!("--authorization-kubeconfig={kubeconfig}"))
        .args(["--leader-elect=false", "--secure-port=0"])
        .args(flags.iter().map(|(name, value)| format!("--{name}={value}")));
    Process::spawn(&command, &folder.join("kube-controller-manager.log"))
}

fn token_file(tokens: &[Token]) -> String {
    let line = |token: &Token| {
        let Token { token, user, groups } = token;
        format!("{token},{user},{user}-uid,\"{}\"\n", groups.join(","))
    };
    // kube-apiserver rejects an empty file.
    let nobody = Token::of("nobody");
    std::iter::once(&nobody).chain(tokens).map(line).collect()
}

fn write_kubeconfig(file: &Path, port: u16, ca: &Path, user: &serde_json::Value) -> Result<()> {
    let ca = fs::read(ca).with_context(|| ca.display().to_string())?;
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}"),
        "certificate-authority-data": STANDARD.encode(ca),
    });
    fs::write(file, kubeconfig(&cluster, user).to_string())?;
    Ok(())
}
