//! kube's reflectors and client-go's informers know all llamas, while replicas are replaced sequentially and etcd is
//! compacted.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farm_operator::v1alpha::Llama;
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use test_cluster::{Etcd, Process, Programs};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::installation::{Installation, Replica};
use crate::llama;
use crate::switch::Switch;

const REPLICAS: usize = 3;
const WRITERS: usize = 4;
/// The number of times that each replica is replaced.
const TIMES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// A reflector, and the number of its lists.
struct Followed {
    store: Store<Llama>,
    lists: Arc<AtomicUsize>,
}

fn follow(api: Api<Llama>, tasks: &mut JoinSet<()>) -> Followed {
    let (store, writer) = reflector::store();
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    tasks.spawn(async move {
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let events = events.reflect(writer);
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if matches!(event, Ok(watcher::Event::Init)) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    Followed { store, lists }
}

/// Creates, changes and deletes the llamas of one writer, at random replicas.
async fn write(apis: Arc<Vec<Api<Llama>>>, writer: usize, is_over: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::with_seed(writer as u64);
    while !is_over.load(Ordering::Relaxed) {
        let api = &apis[random.usize(..apis.len())];
        let name = format!("w{writer}-{}", random.u8(..8));
        let weight = f64::from(random.u16(1..));
        let done = match random.u8(..4) {
            0 => api.delete(&name, &DeleteParams::default()).await.map(drop),
            1 => {
                let change = Patch::Merge(json!({"spec": {"weight": weight}}));
                api.patch(&name, &PatchParams::default(), &change).await.map(drop)
            }
            _ => api.create(&PostParams::default(), &llama(&name, weight)).await.map(drop),
        };
        if !matches!(done, Ok(()) | Err(kube::Error::Api(_))) {
            // This replica is being replaced.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The resourceVersions of llamas, by name.
fn versions(llamas: impl IntoIterator<Item = Arc<Llama>>) -> BTreeMap<String, Option<String>> {
    llamas.into_iter().map(|llama| (llama.name_any(), llama.resource_version())).collect()
}

/// Replicas with one etcd, and tasks that write llamas at all of them.
struct World {
    etcd: Etcd,
    installation: Installation,
    replicas: Vec<Replica>,
    apis: Arc<Vec<Api<Llama>>>,
    is_over: Arc<AtomicBool>,
    writing: JoinSet<()>,
}

impl World {
    async fn start(flags: &[&str]) -> Result<Option<Self>> {
        let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(None) };
        let installation = Installation::new(etcd.urls())?;
        let mut replicas: Vec<Replica> = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(installation.start(flags).await?);
        }
        let apis: Vec<Api<Llama>> = replicas.iter().map(|replica| replica.llamas.clone()).collect();
        let (apis, is_over, writing) = (Arc::new(apis), Arc::default(), JoinSet::new());
        Ok(Some(Self { etcd, installation, replicas, apis, is_over, writing }))
    }

    fn write(&mut self) {
        for writer in 0..WRITERS {
            self.writing.spawn(write(Arc::clone(&self.apis), writer, Arc::clone(&self.is_over)));
        }
    }

    /// The replicas, in the order in which they are replaced.
    fn turns() -> impl Iterator<Item = usize> {
        (0..REPLICAS).cycle().take(REPLICAS * TIMES)
    }

    async fn replace(&mut self, index: usize, flags: &[&str]) -> Result<()> {
        let replica = &mut self.replicas[index];
        // Every other replica is stopped as in a rollout; the others are killed.
        if index.is_multiple_of(2) {
            replica.process.terminate()?;
            replica.process.wait()?;
        } else {
            replica.process.kill();
        }
        *replica = self.installation.start_on(replica.port, &self.etcd.urls(), flags).await?;
        Ok(())
    }

    async fn make(&self, name: &str) -> Result<()> {
        self.apis[0].create(&PostParams::default(), &llama(name, 1.0)).await?;
        Ok(())
    }

    /// Stops the writers, and returns the existing llamas.
    async fn end(&mut self) -> Result<BTreeMap<String, Option<String>>> {
        self.is_over.store(true, Ordering::Relaxed);
        while self.writing.join_next().await.is_some() {}
        self.make("last").await?;
        let kept = self.apis[0].list(&ListParams::default()).await?.items;
        Ok(versions(kept.into_iter().map(Arc::new)))
    }
}

/// Replaces all replicas several times, while llamas are written and followed. Returns the number of lists of each
/// reflector.
async fn replace(flags: &[&str]) -> Result<Option<Vec<usize>>> {
    let Some(mut world) = World::start(flags).await? else { return Ok(None) };
    let mut following = JoinSet::new();
    let followed: Vec<Followed> =
        world.apis.iter().map(|api| follow(api.clone(), &mut following)).collect();
    for one in &followed {
        one.store.wait_until_ready().await?;
    }
    world.write();
    for index in World::turns() {
        world.replace(index, flags).await?;
    }
    let expected = world.end().await?;
    let deadline = Instant::now() + PATIENCE;
    for (index, one) in followed.iter().enumerate() {
        while versions(one.store.state()) != expected {
            let known = versions(one.store.state());
            ensure!(Instant::now() < deadline, "{index} knows {known:#?} of {expected:#?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(Some(followed.iter().map(|one| one.lists.load(Ordering::Relaxed)).collect()))
}

/// An informer of client-go, in its own process.
struct Informer(Process);

impl Informer {
    fn start(installation: &Installation, port: u16, streams: bool) -> Result<Self> {
        let mut command = Command::new(Programs::informer()?);
        command.arg(installation.kubeconfig(port)?).args(["farm.example.com", "v1alpha", "llamas"]);
        command.env("KUBE_FEATURE_WatchListClient", streams.to_string());
        let log = installation.path().join(format!("informer-{streams}.log"));
        Ok(Self(Process::spawn(&command, &log)?))
    }

    /// The last known resourceVersion of each llama, by name.
    fn known(&self) -> Result<BTreeMap<String, Option<String>>> {
        let mut known = BTreeMap::new();
        let printed = self.0.printed();
        // The last line may be incomplete.
        let (lines, _) = printed.rsplit_once('\n').unwrap_or_default();
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what @ ("added" | "updated" | "deleted"), key, version] = words[..] else {
                continue;
            };
            let (_, name) = key.split_once('/').context("a namespace")?;
            let before = match what {
                "deleted" => known.remove(name),
                _ => known.insert(name.to_owned(), Some(version.to_owned())),
            };
            ensure!(before.is_some() == (what != "added"), "{line}, which was {before:?}");
        }
        Ok(known)
    }

    /// The number of times that the informer has requested all llamas, by a list or by a watch with initial events.
    fn lists(&self) -> usize {
        let printed = self.0.printed();
        let queries = printed.lines().filter_map(|line| line.strip_prefix("request "));
        let is_list = |query: &&str| {
            !query.contains("watch=true") || query.contains("sendInitialEvents=true")
        };
        queries.filter(is_list).count()
    }

    /// The number of watches.
    fn watches(&self) -> usize {
        let printed = self.0.printed();
        let lines = printed.lines().filter(|line| line.starts_with("request "));
        lines.filter(|line| line.contains("watch=true")).count()
    }

    async fn wait_until(&mut self, is_so: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self)? {
            self.0.ensure_running()?;
            ensure!(Instant::now() < deadline, "{}", self.0.printed());
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Same as `replace`, with informers of client-go. They connect to a port that leads to one replica at a time, like a
/// Service. One informer lists first, the other uses a streaming list. Returns the number of lists of each and its
/// output.
async fn replace_before_informers(flags: &[&str]) -> Result<Option<Vec<(usize, String)>>> {
    let Some(mut world) = World::start(flags).await? else { return Ok(None) };
    let switch = Switch::to(world.replicas[0].port)?;
    let mut informers = Vec::new();
    for streams in [false, true] {
        let mut informer = Informer::start(&world.installation, switch.port, streams)?;
        informer.wait_until(|one| Ok(one.0.printed().contains("synced "))).await?;
        informers.push(informer);
    }
    world.write();
    for (turn, index) in World::turns().enumerate() {
        // The old replica reports an event to each informer first, because client-go lists again after a short watch
        // without an event.
        let mark = format!("mark-{turn}");
        world.make(&mark).await?;
        for informer in &mut informers {
            informer.wait_until(|one| Ok(one.known()?.contains_key(&mark))).await?;
            let watches = informer.watches();
            ensure!(watches > turn, "it goes on without a replica: {}", informer.0.printed());
        }
        switch.lead_new_connections_to(world.replicas[(index + 1) % REPLICAS].port);
        world.replace(index, flags).await?;
    }
    let expected = world.end().await?;
    for informer in &mut informers {
        informer.wait_until(|one| Ok(one.known()? == expected)).await?;
    }
    Ok(Some(informers.iter().map(|one| (one.lists(), one.0.printed())).collect()))
}

#[tokio::test(flavor = "multi_thread")]
async fn reflectors_continue_without_relists_while_replicas_are_replaced() -> Result<()> {
    if let Some(lists) = replace(&[]).await? {
        ensure!(lists == [1; REPLICAS], "they have listed {lists:?} times");
    }
    Ok(())
}

/// etcd is compacted every second, so a client that was disconnected for longer lists again.
#[tokio::test(flavor = "multi_thread")]
async fn reflectors_stay_complete_during_compaction_and_replica_replacement() -> Result<()> {
    if let Some(lists) = replace(&["--etcd-compaction-interval", "1s"]).await? {
        println!("they have listed {lists:?} times");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_continue_without_relists_while_replicas_are_replaced() -> Result<()> {
    for (lists, printed) in replace_before_informers(&[]).await?.unwrap_or_default() {
        ensure!(lists == 1, "it has listed {lists} times: {printed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_stay_complete_during_compaction_and_replica_replacement() -> Result<()> {
    let informers = replace_before_informers(&["--etcd-compaction-interval", "1s"]).await?;
    for (lists, _) in informers.unwrap_or_default() {
        println!("it has listed {lists} times");
    }
    Ok(())
}
