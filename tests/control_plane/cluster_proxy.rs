//! The example `cluster-proxy`: kubectl reaches the cluster through it, with all of its commands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::{Standalone, example};

use crate::kubelet::Kubelet;
use crate::subresources::start_pod;
use crate::world::{Following, World};

const ROOT: &str = "/apis/proxy.example.com/v1/clusters/remote/proxy";

/// The proxy, and a kubeconfig that leads through it.
struct Proxied {
    kubeconfig: PathBuf,
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
        let server = &mut config["clusters"][0]["cluster"]["server"];
        *server = format!("{}{ROOT}", server.as_str().context("a URL")?).into();
        let kubeconfig = folder.join("through-the-proxy");
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubeconfig, _proxy: proxy })
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
