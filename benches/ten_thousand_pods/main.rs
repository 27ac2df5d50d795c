//! Measures the cost of ten thousand farm pods, with all their sources.
//!
//! A cluster with 500 nodes and objects of realistic size is simulated in this process. The benchmark prints:
//!
//! - the memory per Pod;
//! - the CPU time and the delay of 20 changes per second;
//! - the cost of a change of a node's labels and of a poll of all metrics;
//! - the bytes that a client reads for the table, from this server and from a cluster without it.
//!
//! `cargo bench --bench ten_thousand_pods`

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
use server::{FARM_PODS, PATIENCE, request, serve};
use test_server::admin;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The number of Pods.
pub const PODS: usize = 10_000;
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The time without events after which no more events are expected. It is longer than a computation takes.
const QUIET: Duration = Duration::from_millis(500);
/// The number of servers that are started after the first one to measure the memory per Pod. The results differ,
/// because each server uses memory that was free before, and leaves free memory behind.
const SERVERS: usize = 3;
/// The number of changes, and the number of changes per second.
const CHANGES: u32 = 400;
const A_SECOND: u32 = 20;

/// Returns the resident memory of the process, in bytes.
fn resident() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("no resident pages")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Returns the CPU time of the process. The kernel counts hundredths of a second.
fn cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(')').context("no name")?;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// The events of all farm pods, in order.
struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// Starts a watch at the current resourceVersion.
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

    /// Returns the names and restarts of the objects in the next chunk of events.
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

    /// Counts events until `expected` have arrived, and further until none arrives for some time.
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

/// Changes Pods once each, a fixed number per second.
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

/// Moves a node to another zone.
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

/// Sets a higher CPU usage of all Pods than in the previous poll.
async fn poll(cluster: &Cluster, server: &InProcess, used: u64, expected: usize) -> Result<()> {
    let mut events = Events::from_now(server).await?;
    cluster.set_used(used);
    let (before, polls) = (cpu()?, cluster.polls());
    // Metrics of Pods and of nodes are polled. Two kinds use the metrics of Pods.
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

/// The lists that other tools request for a table of all Pods, according to their source code. They read each list in
/// full. None of them shows the information from ReplicaSets, Deployments, Services and Events. Headlamp shows one page
/// of both lists at a time.
const TOOLS: [(&str, &[&str]); 3] = [
    ("k9s, Headlamp", &["pods", "metrics"]),
    ("kubectl-view-allocations with utilization", &["nodes", "pods", "metrics"]),
    ("kube-capacity with utilization, without what nodes use", &["nodes", "pods", "metrics"]),
];

/// Compares the bytes of the table that `kubectl get farmpods -A` prints with the bytes of its sources, which a client
/// reads if there is no such server.
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
    // The first server is not measured: memory that the allocator retains after its start is reused by the next server,
    // which leaves as much behind.
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
