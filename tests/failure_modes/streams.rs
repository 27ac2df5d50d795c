//! Long, large or slow requests, and their end when a program ends.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farm_operator::v1alpha::Llama;
use futures::{StreamExt, TryStreamExt};
use http::HeaderValue;
use http::header::ETAG;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use test_cluster::Process;
use test_server::client_without_retries;

use crate::rest;
use crate::stage::{Stage, llama};
use crate::traffic::Traffic;
use crate::world::{Following, LLAMAS, PATIENCE};

/// A process replaces another one, which is asked to stop. No request fails, and watches end properly.
pub fn a_rollout(stage: &mut Stage) -> Result<()> {
    let mut watch = Following::start(stage.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    let (port, next) = stage.world.start_another("rolled-out", &["--v=2"])?;
    stage.world.eventually(|| {
        let log = next.printed();
        ensure!(log.contains("synced source jobs.batch"), "{log}");
        Ok(())
    })?;
    // Each process stores its own llamas, so the traffic must not create any.
    let before = documents(stage)?;
    let readers = Traffic::of_readers(stage);
    stage.switch.lead_new_connections_to(port);
    stage.world.server.terminate()?;
    watch.wait_for_end()?;
    let status = stage.world.server.wait()?;
    ensure!(status.success(), "{status}");
    rest::is_silent(stage)?;
    readers.end().context("while processes changed places")?;
    ensure!(documents(stage)? == before, "they do not say the same of themselves");
    rest::is_undisturbed(stage, "rolled-out")?;
    stage.world.restart_server()?;
    stage.switch.lead_to(stage.world.port);
    drop(next);
    stage.wait_available()
}

/// The discovery and OpenAPI documents of a process, with their ETags.
fn documents(stage: &Stage) -> Result<Vec<(Option<HeaderValue>, Vec<u8>)>> {
    let paths = ["/apis/farm.example.com/v1alpha", "/openapi/v3/apis/farm.example.com/v1alpha"];
    let ask = |path| {
        let answer = stage.ask(path, "application/json")?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        Ok((answer.headers().get(ETAG).cloned(), answer.into_body()))
    };
    paths.into_iter().map(ask).collect()
}

/// The etcd of the cluster is killed. The caches of kube-apiserver are sufficient for llamas and their watches.
pub fn etcd_is_killed(stage: &mut Stage) -> Result<()> {
    let mut watch = Following::start(stage.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    stage.world.control_plane.kill_etcd();
    stage.create(&llama("default", "without-etcd"))?;
    watch.wait_for(&["without-etcd"])?;
    stage.world.control_plane.restart_etcd()?;
    stage.kubectl(["delete", "llama", "without-etcd"]).run()?;
    stage.create(&llama("default", "with-etcd"))?;
    watch.wait_for(&["with-etcd"])?;
    stage.kubectl(["delete", "llama", "with-etcd"]).run()?;
    stage.wait_available()?;
    rest::is_undisturbed(stage, "etcd")
}

/// kube-apiserver is killed. Watchers continue from their last revision. If the server itself was restarted, they list
/// again.
pub fn kube_apiserver_is_killed(stage: &mut Stage) -> Result<()> {
    let kubeconfig = stage.world.control_plane.kubeconfig();
    let runtime = tokio::runtime::Runtime::new()?;
    let (told, events) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let client = client_without_retries(&kubeconfig).await?;
        let llamas: Api<Llama> = Api::default_namespaced(client);
        let events = watcher(llamas, watcher::Config::default());
        let mut events = events.default_backoff().boxed();
        loop {
            let said = match events.try_next().await {
                Ok(Some(event)) => match event {
                    watcher::Event::Apply(llama) => llama.metadata.name.unwrap_or_default(),
                    watcher::Event::InitDone => "all".to_owned(),
                    _ => continue,
                },
                Ok(None) => return anyhow::Ok(()),
                Err(_) => continue,
            };
            if told.send(said).is_err() {
                return Ok(());
            }
        }
    });
    ensure!(events.recv_timeout(PATIENCE)? == "all");
    stage.world.control_plane.kill_api_server();
    stage.world.control_plane.restart_api_server()?;
    stage.wait_available()?;
    stage.create(&llama("default", "after"))?;
    // The watcher did not have to list again.
    let next = events.recv_timeout(PATIENCE)?;
    ensure!(next == "after", "{next}");
    stage.kubectl(["delete", "llama", "after"]).run()?;
    // A restarted server does not know the revision, and rejects it.
    stage.world.restart_server()?;
    stage.wait_available()?;
    let next = events.recv_timeout(PATIENCE)?;
    ensure!(next == "all", "{next}");
    rest::is_undisturbed(stage, "restarted")
}

/// Requests of any size, on the connection that carries the watches of others.
pub fn large_requests(stage: &mut Stage) -> Result<()> {
    let mut watch = Following::start(stage.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    let mut large = llama("default", "large");
    large["metadata"]["annotations"] = json!({"example.com/large": "x".repeat(4 << 20)});
    // A client with a rejected request may not read the rest of the response.
    let file = stage.fresh_folder("large.json");
    std::fs::write(&file, large.to_string())?;
    let file = file.display().to_string();
    let refused = stage.kubectl(["create", "--raw", LLAMAS, "-f", &file]).output()?;
    ensure!(refused.errors.contains("RequestEntityTooLarge"), "{}", refused.errors);
    let long = "x".repeat(60 << 10);
    let refused = stage.kubectl(["get", "--raw", &format!("{LLAMAS}/{long}")]).output()?;
    ensure!(refused.errors.contains("RequestURITooLong"), "{}", refused.errors);
    let refused =
        stage.kubectl(["get", "--raw", &format!("{LLAMAS}?labelSelector={long}")]).output()?;
    ensure!(refused.errors.contains("BadRequest"), "{}", refused.errors);
    // The watch is not affected.
    stage.create(&llama("default", "small"))?;
    watch.wait_for(&["small"])?;
    stage.kubectl(["delete", "llama", "small"]).run()?;
    Ok(())
}

/// A client that does not read its watch does not block others on the shared connection.
pub fn slow_readers(stage: &mut Stage) -> Result<()> {
    const LARGE: usize = 200 << 10;
    const CHANGES: usize = 60;
    // A suspended program reads nothing.
    let slow = ["get", "llamas", "-w", "-o", "json"];
    let held = Held::start(stage, &slow, 2)?;
    let mut watch = Following::start(stage.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    let mut fat = llama("default", "fat");
    fat["metadata"]["annotations"] = json!({"example.com/fat": "x".repeat(LARGE)});
    stage.create(&fat)?;
    watch.wait_for(&["fat"])?;
    let kubeconfig = stage.world.control_plane.kubeconfig();
    tokio::runtime::Runtime::new()?.block_on(async {
        let llamas: Api<Llama> =
            Api::default_namespaced(client_without_retries(&kubeconfig).await?);
        for weight in 2..=CHANGES {
            let patch = Patch::Merge(json!({"spec": {"weight": weight}}));
            llamas.patch("fat", &PatchParams::default(), &patch).await?;
        }
        anyhow::Ok(())
    })?;
    // The active watch has received all changes, and the server responds to others as usual.
    watch.wait_for(&["fat", &CHANGES.to_string()])?;
    rest::is_silent(stage)?;
    stage.world.server.ensure_running()?;
    drop(held);
    stage.kubectl(["delete", "llama", "fat"]).run()?;
    Ok(())
}

/// Programs that were suspended while they read.
struct Held {
    _programs: Vec<Process>,
}

impl Held {
    fn start(stage: &Stage, arguments: &[&str], count: usize) -> Result<Self> {
        let mut held = Vec::new();
        for _ in 0..count {
            let command = stage.world.control_plane.kubectl(arguments).into_command();
            let process = Process::spawn(&command, &stage.fresh_folder("held.log"))?;
            stage.world.eventually(|| {
                ensure!(process.printed().contains("dolly"), "it has not begun");
                Ok(())
            })?;
            process.suspend()?;
            held.push(process);
        }
        Ok(Self { _programs: held })
    }
}

/// The server asks kube-apiserver to open another connection every ten to twenty minutes. No request fails, and open
/// streams continue. A watch also lasts longer than the minute that kube-apiserver allows for other requests.
pub fn connections_are_renewed(stage: &mut Stage) -> Result<()> {
    let mut watch = Following::start(stage.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    let traffic = Traffic::start(stage);
    // Twice the time after which a connection is renewed, and a margin.
    let deadline = Instant::now() + Duration::from_secs(25 * 60);
    let mut round = 0;
    while Instant::now() < deadline {
        round += 1;
        let name = format!("renewed-{round}");
        stage.create(&llama("default", &name))?;
        watch.wait_for(&[&name])?;
        stage.kubectl(["delete", "llama", &name]).run()?;
        rest::is_silent(stage)?;
        thread::sleep(Duration::from_secs(5));
    }
    traffic.end()
}
