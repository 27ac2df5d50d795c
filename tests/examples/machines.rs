//! machines: its subresources, with client-go, kubectl, curl and a client of WebSockets.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use aggregated_apiserver::ApiServer;
use aggregated_apiserver::commands::ManifestOptions;
use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tempfile::TempDir;
use test_cluster::{
    ControlPlane, Process, Programs, StreamClient, echo, example, free_port, lines,
};
use test_server::client;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::device::{Machine, MachineSpec};
use crate::subresources::kinds;
use crate::world::{PATIENCE, block_on, eventually};

const API_SERVICE: &str = "v1.machines.example.com";
const MACHINES: &str = "/apis/machines.example.com/v1/namespaces/default/machines";
const TRANSPORTS: [&str; 4] = ["v5.channel.k8s.io", "v4.channel.k8s.io", "spdy", "fallback"];
const DIALERS: [&str; 3] = ["spdy", "tunnel", "fallback"];
/// The length of an image of zeros, and its checksum.
const IMAGE: u64 = 32 << 20;
const SHA256: &str = "83ee47245398adee79bd9c0a8bc57b821e92aba10f5f9ade8a5d1fae4d8c4302";

/// The programs that the tests need.
#[derive(Clone)]
pub struct Tools {
    pub programs: Programs,
    streams: StreamClient,
}

impl Tools {
    pub fn find() -> Result<Self> {
        Ok(Self { programs: Programs::find()?, streams: StreamClient::build()? })
    }
}

/// A server with the machine `a`, and users.
struct World {
    tools: Tools,
    kubeconfig: PathBuf,
    client: Client,
    server: String,
    directory: TempDir,
    /// Whether there is no kube-apiserver in front of the server.
    is_direct: bool,
}

pub fn are_served_by_a_test_server(tools: Tools) -> Result<()> {
    block_on(async {
        let server = TestServer::builder().kinds(kinds()).listen().start().await?;
        let kubeconfig = server.kubeconfig().context("it listens")?;
        World::open(tools, kubeconfig, true).await?.run().await
    })
}

/// kube-apiserver forwards all requests to the program, which has the permissions of its manifests.
pub fn are_served_behind_kube_apiserver(
    control_plane: &mut ControlPlane,
    tools: Tools,
) -> Result<()> {
    let manifests = ApiServer::new("machines", kinds()).manifests(&ManifestOptions::default())?;
    control_plane.kubectl(["apply", "-f", "-"]).input(&manifests).run()?;
    let port = free_port()?;
    control_plane.lead_to_localhost(&[API_SERVICE], ("machines", "machines"), port)?;
    let token = ["create", "token", "machines", "-n", "machines"];
    let token = control_plane.kubectl(token).run()?;
    let kubeconfig = control_plane.kubeconfig_of_token("machines", token.trim())?;
    let mut command = Command::new(example("machines")?);
    command.args(["--bind-address=127.0.0.1", "--namespace=machines"]).env_remove("RUST_LOG");
    command.arg(format!("--secure-port={port}")).arg("--kubeconfig").arg(kubeconfig);
    let server = Process::spawn(&command, &control_plane.folder().join("machines.log"))?;
    let wait = ["wait", "--for=condition=Available", "--timeout=60s", "apiservice", API_SERVICE];
    control_plane.kubectl(wait).run().with_context(|| server.printed())?;
    let result = block_on(async {
        World::open(tools, control_plane.kubeconfig(), false).await?.run().await
    });
    // An APIService without a server would disturb the other tests.
    control_plane.kubectl(["delete", "apiservice", API_SERVICE]).run()?;
    control_plane.kubectl(["delete", "namespace", "machines", "--wait=false"]).run()?;
    result.with_context(|| server.printed())
}

impl World {
    async fn open(tools: Tools, kubeconfig: PathBuf, is_direct: bool) -> Result<Self> {
        let client = client(&kubeconfig).await?;
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&kubeconfig)?)?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
        let server = server.to_owned();
        Ok(Self { tools, kubeconfig, client, server, directory: tempfile::tempdir()?, is_direct })
    }

    async fn run(&self) -> Result<()> {
        let machines: Api<Machine> = Api::default_namespaced(self.client.clone());
        let machine = Machine::new("a", MachineSpec { megabytes: 512 });
        eventually(async || Ok(machines.create(&PostParams::default(), &machine).await?)).await?;
        let get = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]}]);
        let reader = self.user("reader", &get).await?;
        let execute = json!([{
            "apiGroups": ["machines.example.com"], "resources": ["machines/exec"],
            "verbs": ["get", "create"],
        }]);
        let executor = self.user("executor", &execute).await?;
        let all = json!([{
            "apiGroups": ["machines.example.com"], "resources": ["*"], "verbs": ["*"],
        }]);
        let operator = self.user("operator", &all).await?;
        self.start_and_upload(&operator).context("start and upload")?;
        self.console(&operator).await.context("console")?;
        self.commands().context("commands")?;
        self.ports().context("ports")?;
        self.permissions(&reader, &executor).await.context("permissions")?;
        self.follow_until_deleted(&machines, &operator).await.context("log")
    }

    fn url(&self, subresource: &str) -> String {
        format!("{}{MACHINES}/a/{subresource}", self.server)
    }

    fn kubectl(&self, path: &str) -> Command {
        let mut command = Command::new(self.tools.programs.path("kubectl"));
        command.args(["get", "--raw", &format!("{MACHINES}/a/{path}")]);
        command.env("KUBECONFIG", &self.kubeconfig).stderr(Stdio::inherit());
        command
    }

    /// Sends a request with curl. Returns the status and the body.
    fn curl(&self, user: &User, arguments: &[&str], path: &str) -> Result<(u16, String)> {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--insecure",
            "--max-time",
            "60",
            "--write-out",
            "\n%{http_code}",
        ]);
        command.arg("--header").arg(format!("Authorization: Bearer {}", user.token));
        let output = command.args(arguments).arg(self.url(path)).output().context("curl")?;
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    fn start_and_upload(&self, user: &User) -> Result<()> {
        for (method, expected) in [("PUT", 202), ("POST", 200)] {
            let body = ["--request", method, "--json", "{}"];
            let (status, state) = self.curl(user, &body, "start")?;
            ensure!(status == expected && state.contains("\"running\":true"), "{status} {state}");
        }
        let file = self.directory.path().join("image");
        let image = std::fs::File::create(&file)?;
        image.set_len(IMAGE)?;
        let path = file.to_str().context("a path in UTF-8")?;
        let (status, state) = self.curl(user, &["--upload-file", path], "upload")?;
        ensure!(status == 200, "{status} {state}");
        let state: Value = serde_json::from_str(&state)?;
        ensure!(state["length"] == IMAGE && state["sha256"] == SHA256, "{state}");
        image.set_len((1 << 30) + 1)?;
        let (status, error) = self.curl(user, &["--upload-file", path], "upload")?;
        // kube-apiserver sometimes closes the connection of a rejected upload before curl has read the error.
        let is_lost = !self.is_direct && error.is_empty();
        ensure!(
            is_lost || status == 413 && error.contains("limit is 1073741824"),
            "{status} {error}"
        );
        let output = self.kubectl("log?tailLines=2").output()?;
        let log = String::from_utf8(output.stdout)?;
        ensure!(log == format!("started\nimage of {IMAGE} bytes\n"), "{log}");
        Ok(())
    }

    async fn console(&self, user: &User) -> Result<()> {
        let mut first = self.socket(user, "console").await?;
        let mut second = self.socket(user, "console").await?;
        // A line may arrive in several messages.
        for part in [&b"hello "[..], b"console\n"] {
            first.send(Message::Binary(part.into())).await?;
        }
        for socket in [&mut first, &mut second] {
            ensure!(next(socket).await? == Message::Binary("hello console\n".into()));
        }
        // A line that is too long ends its own connection.
        for _ in 0..3 {
            first.send(Message::Binary(vec![b'x'; 8 << 10].into())).await?;
        }
        let closed = next(&mut first).await?;
        let code = match &closed {
            Message::Close(Some(frame)) => u16::from(frame.code),
            _ => 0,
        };
        ensure!(code == 1009, "{closed:?}");
        second.send(Message::Binary("still here\n".into())).await?;
        ensure!(next(&mut second).await? == Message::Binary("still here\n".into()));
        // A message that is too long ends its connection, too.
        second.send(Message::Binary(vec![b'x'; 17 << 10].into())).await?;
        let closed = next(&mut second).await;
        ensure!(!matches!(closed, Ok(Message::Binary(_))), "{closed:?}");
        Ok(())
    }

    fn commands(&self) -> Result<()> {
        let client = self.tools.streams.with_kubeconfig(&self.kubeconfig);
        let run = |transport: &str, query: &str, input: &[u8]| {
            client.exec(transport, &self.url(&format!("exec?{query}&stdin=1&stdout=1")), input)
        };
        let input: Vec<u8> = (0..10_u32 << 20).map(|i| (i % 251).to_le_bytes()[0]).collect();
        for transport in TRANSPORTS {
            let ran = run(transport, "command=echo&command=a&command=b&stderr=1", b"")?;
            ensure!(ran.code == 0 && ran.stdout == b"a b", "{transport}: {ran:?}");
            let ran = run(transport, "command=exit&command=3&stderr=1", b"")?;
            ensure!(ran.code == 3, "{transport}: {ran:?}");
            let ran = run(transport, "command=size&command=2&tty=true", b"")?;
            ensure!(ran.stdout == b"80x24\n132x50\n", "{transport}: {ran:?}");
            // The older protocol over a WebSocket cannot close the input.
            if !transport.starts_with("v4") {
                let ran = run(transport, "command=cat&stderr=1", &input)?;
                let count = ran.stdout.len();
                ensure!(ran.stdout == input, "{transport}: {count} bytes, {}", ran.stderr);
            }
        }
        Ok(())
    }

    fn ports(&self) -> Result<()> {
        let client = self.tools.streams.with_kubeconfig(&self.kubeconfig);
        let data: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for dialer in DIALERS {
            let (program, address) = client.forward(dialer, &self.url("portforward"), 7)?;
            for _ in 0..20 {
                echo(address, b"a short message").context(dialer)?;
            }
            echo(address, &data).context(dialer)?;
            let (code, stderr) = program.end()?;
            ensure!(code == 0 && stderr.is_empty(), "{dialer}: {code} {stderr}");
            let (program, address) = client.forward(dialer, &self.url("portforward"), 8)?;
            ensure!(echo(address, b"nothing").is_err());
            let (code, stderr) = program.ended()?;
            let is_reported = stderr.contains("connection refused");
            ensure!(code == StreamClient::FAILED && is_reported, "{dialer}: {code} {stderr}");
        }
        Ok(())
    }

    async fn permissions(&self, reader: &User, executor: &User) -> Result<()> {
        let (status, log) = self.curl(reader, &[], "log?tailLines=1")?;
        ensure!(status == 200, "a role with `get` reads: {status} {log}");
        let exec = self.url("exec?command=echo&command=hello&stdin=1&stdout=1&stderr=1");
        for transport in TRANSPORTS {
            let client = self.tools.streams.with_kubeconfig(&reader.kubeconfig);
            let ran = client.exec(transport, &exec, b"")?;
            let is_forbidden = ran.code == StreamClient::FAILED && ran.stderr.contains("forbidden");
            ensure!(is_forbidden, "{transport}: {ran:?}");
            let client = self.tools.streams.with_kubeconfig(&executor.kubeconfig);
            let ran = client.exec(transport, &exec, b"")?;
            ensure!(ran.code == 0 && ran.stdout == b"hello", "{transport}: {ran:?}");
        }
        for dialer in DIALERS {
            let client = self.tools.streams.with_kubeconfig(&reader.kubeconfig);
            let forward = client.forward(dialer, &self.url("portforward"), 7);
            let error = forward.err().with_context(|| format!("{dialer} is allowed"))?.to_string();
            ensure!(error.contains("forbidden"), "{dialer}: {error}");
        }
        for (user, subresource) in [
            (reader, "console"),
            (reader, "exec?command=cat&stdin=1"),
            (reader, "portforward"),
            (executor, "console"),
            (executor, "portforward"),
        ] {
            let refused = self.socket(user, subresource).await.err();
            let status = match refused.and_then(|error| error.downcast().ok()) {
                Some(tungstenite::Error::Http(response)) => response.status().as_u16(),
                _ => 0,
            };
            ensure!(status == 403, "{subresource}: {status}");
        }
        Ok(())
    }

    /// A log that is followed ends when its machine is deleted.
    async fn follow_until_deleted(&self, machines: &Api<Machine>, user: &User) -> Result<()> {
        let mut command = self.kubectl("log?follow=true&tailLines=1");
        let mut kubectl = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = lines(kubectl.stdout.take().context("no output")?);
        ensure!(lines.recv_timeout(PATIENCE)? == "still here");
        let mut socket = self.socket(user, "console").await?;
        for number in 0..10 {
            let line = format!("line {number}");
            socket.send(Message::Binary(format!("{line}\n").into())).await?;
            ensure!(lines.recv_timeout(PATIENCE)? == line);
        }
        machines.delete("a", &DeleteParams::default()).await?;
        ensure!(lines.recv_timeout(PATIENCE).is_err());
        ensure!(kubectl.wait()?.success());
        loop {
            match next(&mut socket).await? {
                Message::Binary(_) => {}
                Message::Close(Some(frame)) => {
                    ensure!(u16::from(frame.code) == 1001, "{frame}");
                    return Ok(());
                }
                other => anyhow::bail!("{other:?}"),
            }
        }
    }
}

/// A ServiceAccount with a role.
struct User {
    token: String,
    kubeconfig: PathBuf,
}

impl World {
    /// Creates a ServiceAccount with the permissions of these rules.
    async fn user(&self, name: &str, rules: &Value) -> Result<User> {
        let parameters = PostParams::default();
        let accounts: Api<ServiceAccount> = Api::default_namespaced(self.client.clone());
        let roles: Api<Role> = Api::default_namespaced(self.client.clone());
        let bindings: Api<RoleBinding> = Api::default_namespaced(self.client.clone());
        let metadata = json!({"name": name});
        let account = json!({"metadata": metadata});
        accounts.create(&parameters, &serde_json::from_value(account)?).await?;
        let role = json!({"metadata": metadata, "rules": rules});
        roles.create(&parameters, &serde_json::from_value(role)?).await?;
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        bindings.create(&parameters, &serde_json::from_value(binding)?).await?;
        let request = TokenRequest::default();
        let request = accounts.create_token_request(name, &parameters, &request).await?;
        let status = request.status;
        let token = status.and_then(|status| status.token).context("no token")?;
        let config = std::fs::read_to_string(&self.kubeconfig)?;
        let mut config: Value = serde_saphyr::from_str(&config)?;
        config["users"][0]["user"] = json!({"token": token});
        let kubeconfig = self.directory.path().join(name);
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(User { token, kubeconfig })
    }

    /// Opens a WebSocket.
    async fn socket(&self, user: &User, subresource: &str) -> Result<Socket> {
        let address = self.server.strip_prefix("https://").context("no HTTPS")?;
        let mut request =
            format!("wss://{address}{MACHINES}/a/{subresource}").into_client_request()?;
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {}", user.token).parse()?);
        let protocols = "plain.kubevirt.io, v5.channel.k8s.io, SPDY/3.1+portforward.k8s.io";
        headers.insert("sec-websocket-protocol", protocols.parse()?);
        let config = test_server::config(&self.kubeconfig).await?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in config.root_cert.context("no CA")? {
            roots.add(certificate.into())?;
        }
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
        let tls = tokio_rustls::TlsConnector::from(Arc::new(tls.with_no_client_auth()));
        let host = request.uri().host().context("no host")?.to_owned();
        let stream = tls.connect(host.try_into()?, TcpStream::connect(address).await?).await?;
        let (socket, response) = client_async(request, stream).await?;
        ensure!(response.headers()["sec-websocket-protocol"] == "plain.kubevirt.io");
        Ok(socket)
    }
}

type Socket = WebSocketStream<TlsStream<TcpStream>>;

async fn next(socket: &mut Socket) -> Result<Message> {
    Ok(timeout(PATIENCE, socket.next()).await?.context("the connection has ended")??)
}
