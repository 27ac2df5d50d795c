//! The measurements, and the table of their results.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde_json::{Value, json};
use test_cluster::{Authority, Etcd, Missing, Programs};

use crate::Server;
use crate::client::Client;
use crate::peer::{self, Surroundings};
use crate::process::{Memory, Process};

/// The path of the collection of our server and of the floor.
pub const COLLECTION: &str = "/apis/load.example.com/v1/namespaces/load/samples";
/// The page size of kubectl.
pub const PAGE: usize = 500;
/// The number of concurrent requests, and the number of connections that they use.
pub const IN_FLIGHT: usize = 32;
const CONNECTIONS: usize = 4;
/// The number of watches that kube-aggregator opens on one connection.
const WATCHERS_ON_A_CONNECTION: usize = 500;
/// The numbers of operations. They are large enough for the resolution of CPU times.
const GETS: usize = 40_000;
const CHANGES: usize = 10_000;
const LISTS: usize = 40;
const PAGES: usize = 400;
const EVENTS: usize = 200;
/// The largest time until the collection is served.
const KNOWN: Duration = Duration::from_secs(30);

/// The numbers of objects, watchers and rounds.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub objects: usize,
    pub watchers: usize,
    pub rounds: usize,
}

/// Returns an object. In responses, with the fields that a server sets, its size is 1.65 kB.
pub fn sample(number: usize) -> Value {
    let parts: Vec<_> = (0..6)
        .map(|part| json!({"name": format!("part-{part}"), "image": format!("registry.example.com/some/where/part-{part}:1.{number}")}))
        .collect();
    json!({
        "apiVersion": "load.example.com/v1",
        "kind": "Sample",
        "metadata": {
            "name": format!("sample-{number:06}"),
            "labels": {"app.example.com/name": "sample", "app.example.com/number": format!("{number}")},
        },
        "spec": {"text": "x".repeat(760), "numbers": [1, 2, 3, 5, 8, 13], "parts": parts},
    })
}

impl Server {
    pub fn collection(self) -> &'static str {
        if self == Self::Peer { peer::COLLECTION } else { COLLECTION }
    }

    pub fn sample(self, number: usize) -> String {
        let sample = sample(number);
        if self == Self::Peer { peer::flunder(&sample).to_string() } else { sample.to_string() }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ours => "ours",
            Self::Audited => "audited",
            Self::Traced => "traced",
            Self::Sampled => "all traced",
            Self::Folder => "in a folder",
            Self::Backend => "with a backend",
            Self::Etcd => "in etcd",
            Self::Peer => "sample-apiserver",
        }
    }
}

/// The cost of one operation of each type.
#[derive(Debug, Default)]
struct Measured {
    start: Duration,
    idle: Memory,
    full: Memory,
    /// The memory per watcher, including its stream, in bytes.
    watcher: u64,
    create: Duration,
    /// The number of creates per second.
    creates: f64,
    get: Duration,
    list: Duration,
    page: Duration,
    patch: Duration,
    put: Duration,
    event: Duration,
}

/// Measures the servers alternately, and prints a table.
pub async fn compare(sizes: Sizes, mut servers: Vec<Server>) -> Result<()> {
    let peer = match servers.contains(&Server::Peer) {
        true => Surroundings::start()?,
        false => None,
    };
    let etcd = match (&peer, servers.contains(&Server::Etcd)) {
        (None, true) => etcd()?,
        _ => None,
    };
    let url = peer.as_ref().map(Surroundings::etcd_url).or_else(|| etcd.as_ref()?.urls().pop());
    servers.retain(|server| match server {
        Server::Peer => peer.is_some(),
        Server::Etcd => url.is_some(),
        _ => true,
    });
    let folder = tempfile::tempdir()?;
    prepare(folder.path())?;
    let mut rounds: Vec<Vec<(Server, Measured)>> = Vec::new();
    for round in 1..=sizes.rounds {
        eprintln!("round {round} of {}", sizes.rounds);
        let mut measured = Vec::new();
        for server in &servers {
            let process = match (server, &peer) {
                (Server::Peer, Some(peer)) => Process::start_peer(peer, folder.path()).await?,
                _ => {
                    let etcd = url.as_deref().filter(|_| *server == Server::Etcd);
                    Process::start(*server, folder.path(), sizes.objects, etcd).await?
                }
            };
            measured.push((*server, measure(*server, process, folder.path(), sizes).await?));
        }
        rounds.push(measured);
    }
    print(&rounds, sizes);
    Ok(())
}

/// Creates the certificates of servers and clients.
pub fn prepare(folder: &Path) -> Result<()> {
    let authority = Authority::new("load-ca", &folder.join("ca.crt"))?;
    authority.server(folder, "serving", &["localhost"])?;
    authority.client(folder, "front-proxy", "front-proxy", None)?;
    Ok(())
}

/// Starts an etcd. Returns `None` if this machine lacks the program.
fn etcd() -> Result<Option<Etcd>> {
    match Programs::find() {
        Ok(programs) => Etcd::start(&programs, 1).map(Some),
        Err(error) if error.is::<Missing>() => {
            eprintln!("without etcd: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn measure(
    server: Server,
    process: Process,
    folder: &Path,
    sizes: Sizes,
) -> Result<Measured> {
    let collection = server.collection();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(folder, process.address).await?);
    }
    let mut measured = Measured { start: process.started, ..Measured::default() };
    // Objects in etcd are synced a short time after the server listens.
    let known = Instant::now();
    while let Err(error) =
        clients[0].ask("GET", &format!("{collection}?limit=1"), String::new()).await
    {
        ensure!(known.elapsed() < KNOWN, "nothing is served: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    measured.idle = process.memory()?;
    let each = Each { server, process: &process, clients: &clients };
    let began = Instant::now();
    measured.create = each
        .times(sizes.objects, move |client, number| async move {
            client.ask("POST", collection, server.sample(number)).await
        })
        .await?;
    measured.creates = f64::from(u32::try_from(sizes.objects)?) / began.elapsed().as_secs_f64();
    measured.full = process.memory()?;
    let objects = sizes.objects;
    measured.get = each
        .times(GETS, move |client, number| async move {
            let path = format!("{collection}/sample-{:06}", number * 7 % objects);
            client.ask("GET", &path, String::new()).await
        })
        .await?;
    measured.list =
        each.times(LISTS, move |client, _| async move {
            client.ask("GET", collection, String::new()).await
        })
        .await?;
    let page = format!("{collection}?limit={PAGE}");
    measured.page = each
        .times(PAGES, move |client, _| {
            let page = page.clone();
            async move { client.ask("GET", &page, String::new()).await }
        })
        .await?;
    let path = move |number| format!("{collection}/sample-{:06}", number * 7 % objects);
    measured.patch = each
        .times(CHANGES, move |client, number| async move {
            let patch = json!({"metadata": {"annotations": {"load": format!("patch {number}")}}});
            client.ask("PATCH", &path(number), patch.to_string()).await
        })
        .await?;
    measured.put = each
        .times(CHANGES, move |client, number| async move {
            client.put_back(&path(number), &format!("put {number}")).await
        })
        .await?;
    watch(&each, folder, sizes, &mut measured).await?;
    Ok(measured)
}

struct Each<'a> {
    server: Server,
    process: &'a Process,
    clients: &'a [Client],
}

impl Each<'_> {
    /// Runs an operation `times` times. Returns the CPU time of the server per operation.
    async fn times<F, T>(&self, times: usize, operation: F) -> Result<Duration>
    where
        F: Fn(Client, usize) -> T + Clone + Send + 'static,
        T: Future<Output = Result<usize>> + Send,
    {
        let before = self.process.cpu()?;
        in_turns(self.clients, IN_FLIGHT, times, operation).await?;
        Ok((self.process.cpu()? - before) / u32::try_from(times)?)
    }
}

/// Runs an operation `times` times, `at_once` of them concurrently.
pub async fn in_turns<F, T>(
    clients: &[Client],
    at_once: usize,
    times: usize,
    operation: F,
) -> Result<()>
where
    F: Fn(Client, usize) -> T + Clone + Send + 'static,
    T: Future<Output = Result<usize>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let workers = (0..at_once).map(|worker| {
        let client = clients[worker % clients.len()].clone();
        let (next, operation) = (Arc::clone(&next), operation.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= times {
                    return anyhow::Ok(());
                }
                operation(client.clone(), number).await?;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(())
}

/// Measures the memory per watcher, and the CPU time of the server per event and watcher, including that of the write
/// that causes the event.
async fn watch(
    each: &Each<'_>,
    folder: &Path,
    sizes: Sizes,
    measured: &mut Measured,
) -> Result<()> {
    let collection = each.server.collection();
    let listed =
        each.clients[0].open("GET", &format!("{collection}?limit=1"), String::new()).await?;
    let listed = listed.collect().await?.to_bytes();
    let listed: Value = serde_json::from_slice(&listed).unwrap_or_default();
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap_or("1");
    let path = format!("{collection}?watch=true&resourceVersion={version}");
    let (mut connections, mut watchers) = (Vec::new(), Vec::new());
    let before = each.process.memory()?.own;
    for number in 0..sizes.watchers {
        if number % WATCHERS_ON_A_CONNECTION == 0 {
            connections.push(Client::connect(folder, each.process.address).await?);
        }
        let connection = connections.last().context("a connection")?;
        watchers.push(connection.open("GET", &path, String::new()).await?);
    }
    let grown = each.process.memory()?.own.saturating_sub(before);
    measured.watcher = grown / sizes.watchers as u64;
    let before = each.process.cpu()?;
    let begun = Instant::now();
    let reading: Vec<_> = watchers
        .into_iter()
        .map(|mut events| {
            tokio::spawn(async move {
                let mut seen = 0;
                while seen < EVENTS {
                    let frame = events.frame().await.context("the watch has ended")??;
                    let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
                    seen += data.iter().filter(|&&byte| byte == b'\n').count();
                }
                ensure!(seen == EVENTS, "more events than changes");
                Ok(())
            })
        })
        .collect();
    for number in 0..EVENTS {
        let object = each.server.sample(sizes.objects + number);
        each.clients[0].ask("POST", collection, object).await?;
    }
    for reader in reading {
        reader.await??;
    }
    eprintln!("  {} watchers, {EVENTS} events: {:.1?}", sizes.watchers, begun.elapsed());
    let delivered = u32::try_from(sizes.watchers * EVENTS)?;
    measured.event = (each.process.cpu()? - before) / delivered;
    Ok(())
}

fn print(rounds: &[Vec<(Server, Measured)>], sizes: Sizes) {
    type Show = fn(&Measured) -> f64;
    let rows: [(String, &str, Show); 13] = [
        ("start until it listens".into(), "ms", |one| one.start.as_secs_f64() * 1e3),
        ("resident memory, idle".into(), "MB", |one| in_units_of(1e6, one.idle.resident)),
        ("of it its own".into(), "MB", |one| in_units_of(1e6, one.idle.own)),
        (format!("resident memory, {} objects", sizes.objects), "MB", |one| {
            in_units_of(1e6, one.full.resident)
        }),
        ("memory per watcher, with its stream".into(), "kB", |one| in_units_of(1e3, one.watcher)),
        ("CREATE".into(), "µs", |one| one.create.as_secs_f64() * 1e6),
        (format!("CREATE, {IN_FLIGHT} at a time"), "/s", |one| one.creates),
        ("PATCH, a merge patch".into(), "µs", |one| one.patch.as_secs_f64() * 1e6),
        ("PUT, and the GET before it".into(), "µs", |one| one.put.as_secs_f64() * 1e6),
        ("GET".into(), "µs", |one| one.get.as_secs_f64() * 1e6),
        (format!("LIST {}", sizes.objects), "ms", |one| one.list.as_secs_f64() * 1e3),
        (format!("LIST page of {PAGE}"), "ms", |one| one.page.as_secs_f64() * 1e3),
        (format!("WATCH, per event of {} watchers", sizes.watchers), "µs", |one| {
            one.event.as_secs_f64() * 1e6
        }),
    ];
    let names: Vec<_> = rounds[0].iter().map(|(server, _)| server.name()).collect();
    println!("| | | {} |", names.join(" | "));
    println!("|---|---{}|", "|---".repeat(names.len()));
    for (name, unit, show) in rows {
        let of = |server: usize| {
            let mut values: Vec<f64> = rounds.iter().map(|round| show(&round[server].1)).collect();
            values.sort_by(f64::total_cmp);
            let (least, median) = (values[0], values[values.len() / 2]);
            format!("{median:.1} ({least:.1}–{:.1})", values[values.len() - 1])
        };
        let values: Vec<_> = (0..names.len()).map(of).collect();
        println!("| {name} | {unit} | {} |", values.join(" | "));
    }
}

#[allow(clippy::cast_precision_loss)] // printed only
fn in_units_of(unit: f64, bytes: u64) -> f64 {
    bytes as f64 / unit
}
