//! Counts the instructions of operations with valgrind. On a busy machine such counts hardly change, in contrast to
//! times. `cargo run --release -p load -- instructions --servers floor,ours`

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;

use crate::Server;
use crate::client::Client;
use crate::process::Process;
use crate::workload::{IN_FLIGHT, in_turns};

/// The number of objects before the first operation.
const OBJECTS: usize = 600;
/// The number of watches of an event.
const WATCHERS: usize = 50;

/// An operation whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// GET of an object
    Get,
    /// LIST of a page of 500 objects
    Page,
    /// POST of a new object
    Create,
    /// PATCH of an annotation, as a merge patch
    Patch,
    /// PATCH that changes nothing, as a merge patch
    SamePatch,
    /// PATCH by server-side apply that changes nothing
    SameApply,
    /// An event that 50 watches receive, with the POST that causes it
    Event,
}

impl Operation {
    /// The two numbers of repetitions. The difference between their counts excludes the start, the objects and the exit
    /// of a server.
    fn repetitions(self) -> [usize; 2] {
        match self {
            Self::Get => [1_000, 5_000],
            Self::Page => [20, 120],
            Self::Event => [50, 250],
            _ => [OBJECTS, OBJECTS + 2_000],
        }
    }

    /// Runs the operation `times` times.
    async fn run(self, server: Server, client: Client, times: usize) -> Result<()> {
        let watches = match self {
            Self::Event => watches(server, &client).await?,
            _ => Vec::new(),
        };
        let readers: Vec<_> = watches.into_iter().map(|events| read(events, times)).collect();
        let clients = [client];
        in_turns(&clients, IN_FLIGHT, times, move |client, number| {
            self.send(server, client, number)
        })
        .await?;
        for reader in readers {
            reader.await??;
        }
        Ok(())
    }

    /// Sends the request of one operation.
    async fn send(self, server: Server, client: Client, number: usize) -> Result<usize> {
        let collection = server.collection();
        let object = format!("{collection}/sample-{:06}", number * 7 % OBJECTS);
        let changed = |text: &str| json!({"metadata": {"annotations": {"load": text}}}).to_string();
        match self {
            Self::Get => client.ask("GET", &object, String::new()).await,
            Self::Page => {
                client.ask("GET", &format!("{collection}?limit=500"), String::new()).await
            }
            Self::Create | Self::Event => {
                client.ask("POST", collection, server.sample(OBJECTS + number)).await
            }
            Self::Patch => client.ask("PATCH", &object, changed(&format!("patch {number}"))).await,
            // The first repetitions change the objects, in both counts.
            Self::SamePatch => client.ask("PATCH", &object, changed("same")).await,
            Self::SameApply => {
                let path = format!("{object}?fieldManager=load&force=true");
                client.apply(&path, server.sample(number * 7 % OBJECTS)).await
            }
        }
    }
}

/// Opens the watches of the collection.
async fn watches(server: Server, client: &Client) -> Result<Vec<Incoming>> {
    let path = format!("{}?watch=true", server.collection());
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        let mut events = client.open("GET", &path, String::new()).await?;
        // The floor sends no initial objects.
        if server != Server::Floor {
            lines(&mut events, OBJECTS).await?;
        }
        watches.push(events);
    }
    Ok(watches)
}

fn read(mut events: Incoming, times: usize) -> tokio::task::JoinHandle<Result<()>> {
    tokio::spawn(async move { lines(&mut events, times).await })
}

/// Reads this number of lines.
async fn lines(events: &mut Incoming, count: usize) -> Result<()> {
    let mut seen = 0;
    while seen < count {
        let frame = events.frame().await.context("the watch has ended")??;
        let Some(data) = frame.data_ref() else { continue };
        seen += data.iter().filter(|&&byte| byte == b'\n').count();
    }
    Ok(())
}

/// Counts the instructions of each of these operations in each of these servers, and prints a table.
pub async fn count(servers: &[Server], operations: &[Operation], folder: &Path) -> Result<()> {
    let elsewhere = servers.iter().find(|server| matches!(server, Server::Etcd | Server::Peer));
    if let Some(server) = elsewhere {
        bail!("{server:?} runs in several programs, and valgrind counts one");
    }
    let names: Vec<_> = servers.iter().map(|server| format!("{server:?}")).collect();
    println!("| instructions | {} |\n|---{}|", names.join(" | "), "|---".repeat(names.len()));
    for operation in operations {
        let mut figures = Vec::new();
        for server in servers {
            let [few, many] = operation.repetitions();
            let less = counted(*server, *operation, folder, few).await?;
            let more = counted(*server, *operation, folder, many).await?;
            let each = more.saturating_sub(less) / u64::try_from(many - few)?;
            figures.push(each.to_string());
        }
        println!("| {operation:?} | {} |", figures.join(" | "));
    }
    Ok(())
}

/// Returns all instructions of a server that has repeated an operation.
async fn counted(
    server: Server,
    operation: Operation,
    folder: &Path,
    repetitions: usize,
) -> Result<u64> {
    let mut process = Process::start_counted(server, folder, OBJECTS).await?;
    let client = Client::connect(folder, process.address).await?;
    for number in 0..OBJECTS {
        client.ask("POST", server.collection(), server.sample(number)).await?;
    }
    operation.run(server, client, repetitions).await?;
    let printed = process.end()?;
    let count = printed.lines().rev().find_map(|line| line.split_once("Collected :"));
    let count = count.with_context(|| format!("valgrind has counted nothing: {printed}"))?;
    Ok(count.1.trim().parse()?)
}
