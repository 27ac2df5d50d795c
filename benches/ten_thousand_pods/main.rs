//! What ten thousand Pods cost the program that shows them, with all that is looked at beside them.
//!
//! A cluster is played in this process, on 500 nodes and with objects as large as they are. Printed are: the memory
//! that a Pod takes; what 20 changes a second cost, and how long each takes until it is told; what a change of a node's
//! labels and a poll of all measurements come to; and how many bytes a client reads for the table, here and of a
//! cluster without the program. `cargo bench --bench ten_thousand_pods`

mod cluster;
mod objects;
mod server;

use std::time::{Duration, Instant};

use aggregated_apiserver::InProcess;
use anyhow::{Context, Result, ensure};
use axum::body::Body;
use cluster::Cluster;
use http::StatusCode;
use http_body_util::BodyExt;
use mimalloc::MiMalloc;
use objects::{LISTS, PODS_OF_FIRST_NODE, count, node, pod};
use serde_json::{Value, json};
use server::{FARM_PODS, PATIENCE, admin, request, serve};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// As in the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How many Pods there are.
pub const PODS: usize = 10_000;
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// How long nothing may come until all is said to have come: more than a computation takes.
const QUIET: Duration = Duration::from_millis(500);
/// So many servers more than the first are made to see what a Pod takes: what one of them leaves behind or finds free differs.
const SERVERS: usize = 3;
/// How many changes there are, and how many of them in a second.
const CHANGES: u32 = 400;
const A_SECOND: u32 = 20;

/// What the process takes, in bytes.
fn resident() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("no resident pages")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// How long the process has computed. The kernel counts hundredths of a second.
fn cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(')').context("no name")?;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// The events of all farm pods, as they come.
struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// Those from now on.
    async fn from_now(server: &InProcess) -> Result<Self> {
        let list = format!("{FARM_PODS}?limit=1");
        let response = server.respond(admin(), request(&list, "application/json")?).await;
        let list: Value =
            serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
        let version = list["metadata"]["resourceVersion"].as_str().context("no version")?;
        let path = format!("{FARM_PODS}?watch=true&resourceVersion={version}");
        let response = server.respond(admin(), request(&path, "application/json")?).await;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        Ok(Self { body: response.into_body(), rest: Vec::new() })
    }

    /// The names and restarts of those that come next, at once.
    async fn next(&mut self) -> Result<Vec<(String, i64)>> {
        let frame = self.body.frame().await.context("the watch has ended")??;
        self.rest.extend_from_slice(frame.data_ref().context("no data")?);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..end).collect();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let event: Value = serde_json::from_slice(line)?;
                ensure!(event["type"] == "MODIFIED", "{event}");
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                Ok((name.to_owned(), object["status"]["restarts"].as_i64().unwrap_or(-1)))
            })
            .collect()
    }

    /// How many come until there are so many, or until nothing comes any more.
    async fn count(&mut self, expected: usize, patience: Duration) -> Result<usize> {
        let mut count = 0;
        loop {
            let patience = if count < expected { patience } else { QUIET };
            match timeout(patience, self.next()).await {
                Ok(events) => count += events?.len(),
                Err(_) => return Ok(count),
            }
        }
    }
}

fn micros(time: Duration, of: usize) -> u128 {
    time.as_micros() / of.max(1) as u128
}

/// Pods change, each once, so many in a second.
async fn changes(cluster: &Cluster, server: &InProcess) -> Result<()> {
    let mut events = Events::from_now(server).await?;
    let changed: Vec<Value> = (0..CHANGES).map(|index| pod(index as usize * 20 + 1, 2)).collect();
    let teller = tokio::spawn({
        let cluster = cluster.clone();
        async move {
            let mut ticks = interval(Duration::from_secs(1) / A_SECOND);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut times = Vec::new();
            for pod in changed {
                ticks.tick().await;
                times.push(Instant::now());
                cluster.change("pods", &pod);
            }
            times
        }
    });
    let before = cpu()?;
    let mut told = Vec::new();
    while told.len() < CHANGES as usize {
        let next = timeout(PATIENCE, events.next()).await??;
        let now = Instant::now();
        told.extend(next.into_iter().filter(|(_, restarts)| *restarts == 2).map(|_| now));
    }
    let spent = cpu()? - before;
    let times = teller.await?;
    let mut delays: Vec<Duration> =
        told.iter().zip(&times).map(|(told, made)| told.saturating_duration_since(*made)).collect();
    delays.sort();
    let more = events.count(0, QUIET).await?;
    let at = |part: usize| delays[(delays.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "{CHANGES} changes of Pods, {A_SECOND} a second: {} µs of CPU each; told after {:.1} ms (half of them), {:.1} ms \
         (99 %); {more} events more than changes",
        micros(spent, CHANGES as usize),
        at(50),
        at(99)
    );
    Ok(())
}

/// A node is in another zone from now on.
async fn label(cluster: &Cluster, server: &InProcess) -> Result<()> {
    let mut events = Events::from_now(server).await?;
    let (before, begin) = (cpu()?, Instant::now());
    cluster.change("nodes", &node(0, "eu-1b"));
    let mut count = 0;
    let mut took = Duration::ZERO;
    while count < PODS_OF_FIRST_NODE {
        count += timeout(PATIENCE, events.next()).await??.len();
        took = begin.elapsed();
    }
    let spent = cpu()? - before;
    count += events.count(0, QUIET).await?;
    println!(
        "a label of the node of {PODS_OF_FIRST_NODE} Pods: {count} events, all told after {:.1} ms, {} ms of CPU",
        took.as_secs_f64() * 1e3,
        spent.as_millis()
    );
    Ok(())
}

/// All Pods use more than they did when they were asked for last.
async fn poll(cluster: &Cluster, server: &InProcess, used: u64, expected: usize) -> Result<()> {
    let mut events = Events::from_now(server).await?;
    cluster.set_used(used);
    let (before, polls) = (cpu()?, cluster.polls());
    // Both are polled: the Pods by this type, for two kinds.
    let deadline = Instant::now() + PATIENCE;
    let mut count = 0;
    while cluster.polls() == polls || count < expected {
        ensure!(Instant::now() < deadline, "{count} of {expected} were told");
        count += events.count(0, QUIET).await?;
    }
    count += events.count(0, QUIET * 4).await?;
    let spent = cpu()? - before;
    let polls = cluster.polls() - polls;
    println!(
        "{PODS} Pods use {used}m: {count} events, {} ms of CPU, {polls} polls",
        spent.as_millis()
    );
    Ok(())
}

/// What other tools list for a table of all Pods, as their sources say: each list is read whole, and none of them has what is read
/// of ReplicaSets, Deployments, Services and Events. Headlamp shows a page of both at a time.
const TOOLS: [(&str, &[&str]); 3] = [
    ("k9s, Headlamp", &["pods", "metrics"]),
    ("kubectl-view-allocations with utilization", &["nodes", "pods", "metrics"]),
    ("kube-capacity with utilization, without what nodes use", &["nodes", "pods", "metrics"]),
];

/// What is read for the table that `kubectl get farmpods -A` prints, and for what is in it where there is no such server.
async fn fetched(cluster: &Cluster, server: &InProcess) -> Result<()> {
    let (mut bytes, mut requests, mut next) = (0, 0, String::new());
    loop {
        let path = format!("{FARM_PODS}?limit=500&continue={next}");
        let response = server.respond(admin(), request(&path, AS_TABLE)?).await;
        let body = response.into_body().collect().await?.to_bytes();
        (bytes, requests) = (bytes + body.len(), requests + 1);
        let table: Value = serde_json::from_slice(&body)?;
        match table["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.clone_into(&mut next),
            _ => break,
        }
    }
    let others: usize = LISTS.iter().map(|resource| cluster.bytes(resource)).sum();
    let pages: usize = LISTS.iter().map(|resource| count(resource).div_ceil(500)).sum();
    println!(
        "the table of all: {} kB in {requests} requests; what it is made of: {} kB in {pages}, of them Pods {} kB",
        bytes / 1_000,
        others / 1_000,
        cluster.bytes("pods") / 1_000
    );
    for (tool, lists) in TOOLS {
        let bytes: usize = lists.iter().map(|resource| cluster.bytes(resource)).sum();
        println!("{tool}: {} kB in {} lists ({})", bytes / 1_000, lists.len(), lists.join(", "));
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let cluster = Cluster::default();
    cluster.set_used(120);
    cluster.prepare();
    // What the allocator keeps of what was read to make the first one, the next one takes, and leaves as much itself.
    let (first, shown) = serve(&cluster).await?;
    let status = &shown["status"];
    ensure!(status["owner"]["kind"] == "Deployment", "{status}");
    ensure!(status["release"]["tool"] == "Helm", "{status}");
    ensure!(status["services"] == json!(["web-0"]), "{status}");
    ensure!(status["why"]["code"] == "ReadinessProbe", "{status}");
    let (mut others, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..SERVERS {
        let before = resident()?;
        others.push(serve(&cluster).await?.0);
        taken.push(resident()?.saturating_sub(before) / PODS);
    }
    let length = shown.to_string().len();
    println!("a Pod takes {taken:?} bytes of each server after the first; it is shown in {length}");
    drop(others);
    let server = first;
    fetched(&cluster, &server).await?;
    changes(&cluster, &server).await?;
    label(&cluster, &server).await?;
    poll(&cluster, &server, 121, 0).await?;
    poll(&cluster, &server, 220, PODS).await
}
