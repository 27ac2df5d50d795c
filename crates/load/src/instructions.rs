//! Counts the instructions of a GET with valgrind. On a busy machine such counts hardly change, in contrast to times.
//! `cargo run --release -p load -- instructions --servers ours,audited`

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Server;
use crate::client::Client;
use crate::process::Process;
use crate::workload::{IN_FLIGHT, in_turns};

/// The number of objects.
const OBJECTS: usize = 100;
/// The two numbers of requests. The difference between their counts excludes the start, the writes and the exit of a
/// server.
const REQUESTS: [usize; 2] = [1_000, 5_000];

/// Counts the instructions of each of these servers and prints the number per GET.
pub async fn count(servers: &[Server], folder: &Path) -> Result<()> {
    let elsewhere = servers.iter().find(|server| matches!(server, Server::Etcd | Server::Peer));
    if let Some(server) = elsewhere {
        bail!("{server:?} runs in several programs, and valgrind counts one");
    }
    println!("| | instructions of a GET |\n|---|---|");
    for server in servers {
        let mut counts = [0; 2];
        for (count, requests) in counts.iter_mut().zip(REQUESTS) {
            *count = counted(*server, folder, requests).await?;
        }
        let between = u64::try_from(REQUESTS[1] - REQUESTS[0])?;
        println!("| {server:?} | {} |", counts[1].saturating_sub(counts[0]) / between);
    }
    Ok(())
}

/// Returns all instructions of a server that has answered this number of GETs.
async fn counted(server: Server, folder: &Path, requests: usize) -> Result<u64> {
    let mut process = Process::start_counted(server, folder, OBJECTS).await?;
    let client = Client::connect(folder, process.address).await?;
    let collection = server.collection();
    for number in 0..OBJECTS {
        client.ask("POST", collection, server.sample(number)).await?;
    }
    let clients = vec![client];
    in_turns(&clients, IN_FLIGHT, requests, move |client, number| async move {
        let path = format!("{collection}/sample-{:06}", number * 7 % OBJECTS);
        client.ask("GET", &path, String::new()).await
    })
    .await?;
    let printed = process.end()?;
    let count = printed.lines().rev().find_map(|line| line.split_once("Collected :"));
    let count = count.with_context(|| format!("valgrind has counted nothing: {printed}"))?;
    Ok(count.1.trim().parse()?)
}
