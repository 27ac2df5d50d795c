//! Whoever follows llamas by kube's reflectors knows them all, while replicas are replaced one after the other,
//! and etcd forgets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use farm_operator::Llama;
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::place::{Place, Replica};
use crate::{etcd, llama};

const REPLICAS: usize = 3;
const WRITERS: usize = 4;
/// How often each replica is replaced.
const TIMES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// A reflector, and how often it has listed.
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

/// Makes, changes and removes llamas of its own, at any replica that answers.
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

/// What somebody knows: versions by names.
fn versions(llamas: impl IntoIterator<Item = Arc<Llama>>) -> BTreeMap<String, Option<String>> {
    llamas.into_iter().map(|llama| (llama.name_any(), llama.resource_version())).collect()
}

/// Replaces all replicas, some times, while llamas are written and followed; answers with how often each
/// reflector has listed.
async fn replace(flags: &[&str]) -> Result<Option<Vec<usize>>> {
    let Some(etcd) = etcd(1)? else { return Ok(None) };
    let place = Place::new(etcd.urls())?;
    let mut replicas: Vec<Replica> = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(place.start(flags).await?);
    }
    let apis: Vec<Api<Llama>> = replicas.iter().map(|replica| replica.llamas.clone()).collect();
    let apis = Arc::new(apis);
    let (mut following, mut writing) = (JoinSet::new(), JoinSet::new());
    let followed: Vec<Followed> =
        apis.iter().map(|api| follow(api.clone(), &mut following)).collect();
    for one in &followed {
        one.store.wait_until_ready().await?;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    for writer in 0..WRITERS {
        writing.spawn(write(Arc::clone(&apis), writer, Arc::clone(&is_over)));
    }
    for index in (0..REPLICAS).cycle().take(REPLICAS * TIMES) {
        let port = replicas[index].port;
        // As a rollout does it; every other one is killed.
        if index % 2 == 0 {
            replicas[index].process.terminate()?;
            replicas[index].process.wait()?;
        } else {
            replicas[index].process.kill();
        }
        replicas[index] = place.start_on(port, &etcd.urls(), flags).await?;
    }
    is_over.store(true, Ordering::Relaxed);
    while writing.join_next().await.is_some() {}
    let last = apis[0].create(&PostParams::default(), &llama("last", 1.0)).await?;
    ensure!(last.resource_version().is_some());
    let kept = apis[0].list(&ListParams::default()).await?.items;
    let expected = versions(kept.into_iter().map(Arc::new));
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

#[tokio::test(flavor = "multi_thread")]
async fn reflectors_go_on_while_replicas_are_replaced() -> Result<()> {
    if let Some(lists) = replace(&[]).await? {
        ensure!(lists == [1; REPLICAS], "they have listed {lists:?} times");
    }
    Ok(())
}

/// Etcd is made to forget every second: whoever was away for longer lists again.
#[tokio::test(flavor = "multi_thread")]
async fn reflectors_know_all_of_it_whatever_etcd_has_forgotten() -> Result<()> {
    if let Some(lists) = replace(&["--etcd-compaction-interval", "1s"]).await? {
        println!("they have listed {lists:?} times");
    }
    Ok(())
}
