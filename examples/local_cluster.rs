//! A real control plane on this machine, with farm-operator registered in it.
//!
//! `cargo run --example local_cluster` builds the control plane if necessary (once, about five minutes), starts it, and
//! creates a Deployment whose Pods have the status of running Pods. Ctrl-C stops and removes everything.

use std::net::Ipv4Addr;
use std::time::Duration;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ServeArgs, start_logging};
use anyhow::{Context, Result};
use farm_operator::NAME;
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Programs};
use tokio::signal::unix::{SignalKind, signal};

const API_SERVICES: [&str; 2] = ["v1.farm.example.com", "v1alpha.farm.example.com"];

/// Returns at the first SIGINT or SIGTERM.
async fn interrupted() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt,
        _ = terminate.recv() => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // From here on the program handles Ctrl-C and SIGTERM: at any time they stop and remove everything.
    let interrupted = tokio::spawn(interrupted());
    let programs = Programs::find()?;
    println!("starting etcd, kube-apiserver and kube-controller-manager");
    let cluster = ControlPlane::start(&programs, &[])?;

    let manifests = farm_operator::server().manifests(&ManifestOptions::default())?;
    cluster.kubectl(["apply", "-f", "-"]).input(&manifests).run()?;
    let mut serve = ServeArgs::default();
    serve.bind_address = Ipv4Addr::LOCALHOST.into();
    serve.secure_port = 0;
    serve.namespace = Some(NAME.to_owned());
    serve.kubeconfig = Some(cluster.kubeconfig());
    start_logging(&serve);
    let bound = farm_operator::server().bind(&serve).await?;
    cluster.lead_to_localhost(&API_SERVICES, (NAME, NAME), bound.address().port())?;
    let running = bound.start().await?;
    let mut wait = vec!["wait", "--for=condition=Available", "--timeout=60s", "apiservice"];
    wait.extend(API_SERVICES);
    cluster.kubectl(wait).run()?;
    populate(&cluster)?;

    println!("\nReady. In another terminal:\n");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("kubectl get llamas,farmpods\n");
    println!("(without a kubectl of your own: {})", programs.path("kubectl").display());
    println!("Ctrl-C ends and removes everything.");
    interrupted.await??;
    running.drain(Duration::ZERO).await;
    Ok(())
}

/// Creates a Deployment, and writes the status of its Pods in place of a kubelet.
fn populate(cluster: &ControlPlane) -> Result<()> {
    const REPLICAS: usize = 3;
    let image = "registry.k8s.io/pause:3.10";
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "pause", "image": image}],
                    // There is no kubelet to report that the containers have ended.
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    });
    cluster.kubectl(["create", "-f", "-"]).input(&deployment.to_string()).run()?;
    let replicas = format!("--for=jsonpath={{.status.replicas}}={REPLICAS}");
    cluster.kubectl(["wait", "deployment/web", &replicas, "--timeout=60s"]).run()?;
    let names = ["get", "pods", "-l", "app=web", "-o", "json"];
    let pods: Value = serde_json::from_str(&cluster.kubectl(names).run()?)?;
    let pods = pods["items"].as_array().context("no list of Pods")?;
    for (index, pod) in pods.iter().enumerate() {
        let name = pod["metadata"]["name"].as_str().context("a Pod without a name")?;
        let node = format!("node-{}", index + 1);
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        cluster.kubectl(["create", "-f", "-"]).input(&object.to_string()).run()?;
        bind(cluster, name, &node)?;
        let now = jiff::Timestamp::now().to_string();
        let mut container = json!({
            "name": "pause", "image": image, "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now}},
        });
        if index == 0 {
            container["restartCount"] = 2.into();
            container["lastState"]["terminated"] =
                json!({"exitCode": 137, "reason": "OOMKilled", "finishedAt": now});
        }
        let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        let patch = status.to_string();
        let arguments = ["patch", "pod", name, "--subresource=status", "-p", &patch];
        cluster.kubectl(arguments).run()?;
    }
    Ok(())
}

/// Binds a Pod to a node in place of a scheduler.
fn bind(cluster: &ControlPlane, pod: &str, node: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
    cluster.kubectl(["create", "--raw", &path, "-f", "-"]).input(&binding.to_string()).run()?;
    Ok(())
}
