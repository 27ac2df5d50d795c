//! The example `cluster-proxy`: kubectl reaches the cluster through it, with all of its commands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use axum::http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use test_cluster::{Standalone, StreamClient, echo, example};
use test_server::client;

use crate::kubelet::Kubelet;
use crate::subresources::start_pod;
use crate::world::{Following, World};

const ROOT: &str = "/apis/proxy.example.com/v1/clusters/remote/proxy";

/// The proxy, and a kubeconfig that leads through it.
struct Proxied {
    kubeconfig: PathBuf,
    /// The URL of the cluster behind the proxy.
    server: String,
    _proxy: Standalone,
}

impl Proxied {
    fn start(world: &World) -> Result<Self> {
        let folder = world.control_plane.folder().join("kubeconfigs");
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(world.control_plane.kubeconfig(), folder.join("remote.yaml"))?;
        let program = example("cluster-proxy")?;
        let program = program.to_str().context("a path in UTF-8")?;
        let folder_text = folder.to_str().context("a path in UTF-8")?;
        let proxy = Standalone::start(program, &["--kubeconfigs", folder_text])?;
        let cluster = json!({
            "apiVersion": "proxy.example.com/v1", "kind": "Cluster",
            "metadata": {"name": "remote"}, "spec": {},
        });
        let create = world.control_plane.kubectl_as(&proxy.kubeconfig, ["create", "-f", "-"]);
        create.input(&cluster.to_string()).run()?;
        // Groups of the system, such as system:masters, are not forwarded.
        let grant = ["create", "clusterrolebinding", "proxied", "--clusterrole=cluster-admin"];
        let user = "--user=kubernetes-admin";
        let granted = world.control_plane.kubectl(grant.into_iter().chain([user])).output()?;
        ensure!(granted.succeeded || granted.errors.contains("already exists"), "{granted:?}");
        let view = ["config", "view", "--raw", "--flatten", "-o", "json"];
        let view = world.control_plane.kubectl_as(&proxy.kubeconfig, view).run()?;
        let mut config: Value = serde_json::from_str(&view)?;
        let own = &mut config["clusters"][0]["cluster"]["server"];
        let server = format!("{}{ROOT}", own.as_str().context("a URL")?);
        *own = server.clone().into();
        let kubeconfig = folder.join("through-the-proxy");
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubeconfig, server, _proxy: proxy })
    }
}

pub fn leads_to_another_cluster(world: &mut World) -> Result<()> {
    let proxied = Proxied::start(world)?;
    let kubectl =
        |arguments: &[&str]| world.control_plane.kubectl_as(&proxied.kubeconfig, arguments);
    let names = kubectl(&["get", "namespaces", "-o", "name"]).run()?;
    ensure!(names.contains("namespace/kube-system"), "{names}");
    let who = kubectl(&["auth", "whoami", "-o", "json"]).run()?;
    let who: Value = serde_json::from_str(&who)?;
    ensure!(who["status"]["userInfo"]["username"] == "kubernetes-admin", "{who}");
    // A watch of objects that are applied through the proxy, too.
    let mut watch =
        Following::start(kubectl(&["get", "configmaps", "-w", "--output-watch-events"]))?;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "far"}, "data": {"a": "1"},
    });
    let config = config.to_string();
    kubectl(&["apply", "-f", "-"]).input(&config).run()?;
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"]).input(&config).run()?;
    watch.wait_for(&["ADDED", "far"])?;
    kubectl(&["delete", "configmap", "far"]).run()?;
    watch.wait_for(&["DELETED", "far"])?;
    // A missing object is reported as by the cluster.
    let missing = kubectl(&["get", "pod", "none"]).output()?;
    ensure!(missing.errors.contains("pods \"none\" not found"), "{}", missing.errors);
    Ok(())
}

/// The methods that proxies of kube-apiserver forward, too.
pub fn passes_each_method(world: &mut World) -> Result<()> {
    let proxied = Proxied::start(world)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let direct = client(&world.control_plane.kubeconfig()).await?;
        let through = client(&proxied.kubeconfig).await?;
        for path in ["/version", "/api/v1/namespaces/default/configmaps/none"] {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                let sent = async |client: &Client| {
                    let request = Request::builder().method(method).uri(path);
                    let response = client.send(request.body(Body::empty())?).await?;
                    let status = response.status();
                    anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
                };
                let (expected, got) = (sent(&direct).await?, sent(&through).await?);
                ensure!(got == expected, "{method} {path}: {got:?} instead of {expected:?}");
            }
        }
        Ok(())
    })
}

/// The executors and port forwarders of client-go, and `kubectl cp` in both directions.
pub fn streams_of_client_go_and_copies(world: &mut World) -> Result<()> {
    let kubelet = Kubelet::start(world.control_plane.folder())?;
    start_pod(world, "streamed", kubelet.port)?;
    let proxied = Proxied::start(world)?;
    let program = StreamClient::build()?.with_kubeconfig(&proxied.kubeconfig);
    let pod = format!("{}/api/v1/namespaces/default/pods/streamed", proxied.server);
    let input = vec![7; 1 << 20];
    for transport in ["v5.channel.k8s.io", "v4.channel.k8s.io", "spdy", "fallback"] {
        // Without a way to close the input, the fourth protocol only gets the output.
        let (query, input) = match transport {
            "v4.channel.k8s.io" => ("command=ls&stdout=1&stderr=1", &[][..]),
            _ => ("command=cat&stdin=1&stdout=1&stderr=1", &input[..]),
        };
        let ran = program.exec(transport, &format!("{pod}/exec?container=web&{query}"), input)?;
        let is_expected = input.is_empty() && !ran.stdout.is_empty() || ran.stdout == input;
        ensure!(ran.code == 0 && is_expected, "{transport}: {} {}", ran.code, ran.stderr);
        let failed = format!("{pod}/exec?container=web&command=false&stdin=1&stdout=1&stderr=1");
        let failed = program.exec(transport, &failed, b"")?;
        ensure!(failed.code == 3, "{transport}: {failed:?}");
    }
    for dialer in ["spdy", "tunnel", "fallback"] {
        let url = format!("{pod}/portforward");
        let (program, address) = program.forward(dialer, &url, 80)?;
        for _ in 0..20 {
            echo(address, b"hello over there").context(dialer)?;
        }
        echo(address, &input).context(dialer)?;
        let (code, stderr) = program.end()?;
        ensure!(code == 0, "{dialer}: {code} {stderr}");
    }
    let folder = world.control_plane.folder().join("copies");
    std::fs::create_dir_all(&folder)?;
    let (there, back) = (folder.join("there"), folder.join("back"));
    std::fs::write(&there, &input)?;
    let [there, back_text] = [&there, &back].map(|path| path.to_string_lossy().into_owned());
    for [from, to] in [[&*there, "streamed:copied"], ["streamed:copied", &*back_text]] {
        let copy = ["cp", "-c", "web", from, to];
        world.control_plane.kubectl_as(&proxied.kubeconfig, copy).run()?;
    }
    ensure!(std::fs::read(&back)? == input, "the copy differs");
    world.kubectl(["delete", "pod", "streamed", "--grace-period=0", "--force"]).run()?;
    Ok(())
}

pub fn streams_through(world: &mut World) -> Result<()> {
    let kubelet = Kubelet::start(world.control_plane.folder())?;
    start_pod(world, "remote", kubelet.port)?;
    let proxied = Proxied::start(world)?;
    let kubectl =
        |arguments: &[&str]| world.control_plane.kubectl_as(&proxied.kubeconfig, arguments);
    let mut log = Following::start(kubectl(&["logs", "-f", "remote", "-c", "web"]))?;
    log.wait_for(&["web line 3"])?;
    drop(log);
    let ran = kubectl(&["exec", "remote", "-c", "web", "--", "ls", "-l"]).run()?;
    ensure!(ran.contains("command=ls") && ran.contains("command=-l"), "{ran}");
    let text = "x".repeat(1 << 20);
    let echoed = kubectl(&["exec", "-i", "remote", "-c", "web", "--", "cat"]).input(&text).run()?;
    ensure!(echoed == text, "{} of {} bytes", echoed.len(), text.len());
    let failed = kubectl(&["exec", "remote", "-c", "web", "--", "false"]).output()?;
    ensure!(failed.errors.contains("exit code 3"), "{failed:?}");
    // kubectl forwards ports of Pods that run.
    let running = r#"{"status": {"phase": "Running"}}"#;
    world.kubectl(["patch", "pod", "remote", "--subresource=status", "-p", running]).run()?;
    let attached = kubectl(&["attach", "remote", "-c", "web"]).run()?;
    ensure!(attached.contains("output=1"), "{attached}");
    let mut forward = Following::start(kubectl(&["port-forward", "pod/remote", ":80"]))?;
    let line = forward.wait_for(&["Forwarding from 127.0.0.1:"])?;
    let port = line.split(&[':', ' ']).filter_map(|part| part.parse::<u16>().ok()).next();
    let mut connection = TcpStream::connect(("127.0.0.1", port.context("a port")?))?;
    connection.write_all(b"hello over there")?;
    let mut answer = [0; 16];
    connection.read_exact(&mut answer)?;
    ensure!(&answer == b"hello over there", "{answer:?}");
    world.kubectl(["delete", "pod", "remote", "--grace-period=0", "--force"]).run()?;
    Ok(())
}
