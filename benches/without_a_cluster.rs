//! Measures a server without a cluster and a real control plane: the time to the first response, and the memory. `cargo
//! bench --bench without_a_cluster`

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::Client;
use kube::api::{ListParams, ObjectMeta, PostParams};
use standalone_apiserver::TestServer;
use test_cluster::{ControlPlane, Programs, Standalone};
use test_server::client;

const ROUNDS: usize = 50;
const AT_ONCE: usize = 200;

/// A minimal test: creates an object and lists it.
async fn small_test(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let metadata = ObjectMeta { generate_name: Some("a-".to_owned()), ..Default::default() };
    maps.create(&PostParams::default(), &ConfigMap { metadata, ..Default::default() }).await?;
    anyhow::ensure!(!maps.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

/// Returns the resident memory of a process, in kB.
fn resident(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 4].as_secs_f64() * 1e3;
    println!("| {what} | ms | {:.1} ({:.1}–{:.1}) |", at(2), at(1), at(3));
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("| | | median (quartiles) |\n|---|---|---|");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let server = TestServer::builder().start().await?;
        small_test(server.client()).await?;
        times.push(begun.elapsed());
    }
    print("TestServer: start, an object made and listed", times);
    let before = resident(std::process::id())?;
    let begun = Instant::now();
    let mut servers = Vec::new();
    for server in
        (0..AT_ONCE).map(|_| tokio::spawn(TestServer::builder().start())).collect::<Vec<_>>()
    {
        servers.push(server.await??);
    }
    let took = begun.elapsed();
    let each = (resident(std::process::id())? - before) / AT_ONCE as u64;
    println!("| TestServer: memory of each of {AT_ONCE} | kB | {each} |");
    println!("| TestServer: start of {AT_ONCE} at once | ms | {:.0} |", took.as_secs_f64() * 1e3);
    drop(servers);
    let (mut ready, mut tested, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS / 5 {
        let begun = Instant::now();
        let program = Standalone::start(env!("CARGO_BIN_EXE_farm-operator"), &[])?;
        ready.push(begun.elapsed());
        memory = resident(program.process.id())?;
        small_test(client(&program.kubeconfig).await?).await?;
        tested.push(begun.elapsed());
    }
    print("--standalone: until it is ready", ready);
    print("--standalone: start, an object made and listed, over TLS", tested);
    println!("| --standalone: resident memory, idle | MB | {:.1} |", memory as f64 / 1e3);
    if let Ok(programs) = Programs::find() {
        let mut times = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            let plane = ControlPlane::start(&programs, &[])?;
            small_test(client(&plane.kubeconfig()).await?).await?;
            times.push(begun.elapsed());
        }
        print("etcd, kube-apiserver and kube-controller-manager: the same", times);
    }
    Ok(())
}
