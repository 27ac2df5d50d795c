//! A replica with a delayed watch of etcd: its responses are late, but never wrong.
//!
//! `LATE_MILLISECONDS` is the delay (400). `CHAINS` is the number of chains (32), each with some twenty alternating
//! operations at the two replicas.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farm_operator::v1alpha::Llama;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use test_cluster::{Etcd, free_port};
use tokio::task::JoinSet;

use crate::installation::{Installation, Replica};
use crate::llama;

/// The number of concurrent chains, which is less than the limit of a server.
const AT_ONCE: usize = 128;
/// The number of operations of one chain.
const OPERATIONS: usize = 21;

fn number<T: std::str::FromStr<Err = std::num::ParseIntError>>(name: &str, or: T) -> Result<T> {
    Ok(std::env::var(name).map_or(Ok(or), |number| number.parse())?)
}

/// A port that forwards to another one. It delays the responses on all connections but the first: the first is for
/// calls, and watches use another connection.
fn late_link(target: u16, late: Duration) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    // This thread ends with the process of the tests.
    thread::spawn(move || {
        for (index, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
            let late = if index == 0 { Duration::ZERO } else { late };
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            thread::spawn(move || pass_on(from_client, to_server, Duration::ZERO));
            thread::spawn(move || pass_on(server, client, late));
        }
    });
    Ok(port)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, late: Duration) {
    let (sender, received) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in received {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + late, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

/// Alternates between the replicas: each request goes to the other replica as soon as a response has arrived. Returns the number of operations.
async fn take_turns(prompt: &Replica, late: &Replica, name: String) -> Result<usize> {
    let params = PostParams::default();
    let made = prompt.llamas.create(&params, &llama(&name, 1.0)).await?;
    // The object is not reported as missing.
    let found = late.llamas.get(&name).await.context("a new object")?;
    ensure!(found.resource_version() == made.resource_version());
    let mut changed = late.llamas.replace(&name, &params, &heavier(&made, 2.0)).await?;
    for weight in 3..5 {
        let heavier_now = heavier(&changed, f64::from(weight));
        prompt.llamas.replace(&name, &params, &heavier_now).await?;
        // The new state is visible, and the revision in the last response is no conflict.
        let patch = Patch::Merge(json!({"spec": {"height": weight}}));
        changed = late.llamas.patch(&name, &PatchParams::default(), &patch).await?;
        ensure!(changed.spec.weight == f64::from(weight), "{:?}", changed.spec);
        changed = late.llamas.replace(&name, &params, &heavier(&changed, 9.0)).await?;
    }
    // A write that seems to change nothing at this replica does change the state of the other.
    prompt.llamas.replace(&name, &params, &heavier(&changed, 10.0)).await?;
    let patch = Patch::Merge(json!({"spec": {"weight": 9.0}}));
    let restored = late.llamas.patch(&name, &PatchParams::default(), &patch).await?;
    ensure!(prompt.llamas.get(&name).await?.spec.weight == 9.0);
    ensure!(restored.spec.weight == 9.0);
    let stale = late.llamas.replace(&name, &params, &heavier(&made, 1.0)).await;
    ensure!(matches!(&stale, Err(kube::Error::Api(status)) if status.code == 409), "{stale:?}");
    let again = late.llamas.create(&params, &llama(&name, 1.0)).await;
    ensure!(matches!(&again, Err(kube::Error::Api(status)) if status.code == 409), "{again:?}");
    prompt.llamas.delete(&name, &DeleteParams::default()).await?;
    ensure!(late.llamas.get_opt(&name).await?.is_none(), "it is gone");
    late.llamas.create(&params, &llama(&name, 1.0)).await.context("its name is free again")?;
    let patched = prompt.llamas.patch(&name, &PatchParams::default(), &patch).await?;
    let listed = late.llamas.list(&ListParams::default()).await?.items;
    let listed = listed.iter().find(|listed| listed.name_any() == name).context("it is listed")?;
    ensure!(listed.resource_version() == patched.resource_version());
    late.llamas.delete(&name, &DeleteParams::default()).await.context("it is there")?;
    let gone = prompt.llamas.delete(&name, &DeleteParams::default()).await;
    ensure!(matches!(&gone, Err(kube::Error::Api(status)) if status.code == 404), "{gone:?}");
    Ok(OPERATIONS)
}

fn heavier(llama: &Llama, weight: f64) -> Llama {
    let mut heavier = llama.clone();
    heavier.spec.weight = weight;
    heavier
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_delayed_etcd_watch_returns_correct_responses() -> Result<()> {
    let delay = Duration::from_millis(number("LATE_MILLISECONDS", 400)?);
    let chains: usize = number("CHAINS", 32)?;
    let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(()) };
    let url = &etcd.urls()[0];
    let port = url.rsplit(':').next().context("a port")?.parse()?;
    let installation = Installation::new(etcd.urls())?;
    let prompt = installation.start(&[]).await?;
    let through = format!("http://127.0.0.1:{}", late_link(port, delay)?);
    let late = installation.start_on(free_port()?, &[through], &[]).await?;

    // Checks the delay: a list of the cached state contains the old state.
    prompt.llamas.create(&PostParams::default(), &llama("first", 1.0)).await?;
    let old = late.llamas.list(&ListParams::default().match_any()).await?;
    ensure!(!old.items.iter().any(|llama| llama.name_any() == "first"), "it was told in time");
    late.llamas.get("first").await?;

    let (prompt, late) = (Arc::new(prompt), Arc::new(late));
    let began = Instant::now();
    let mut going_on = JoinSet::new();
    let mut operations = 0;
    for chain in 0..chains {
        if going_on.len() >= AT_ONCE {
            operations += going_on.join_next().await.context("nothing goes on")???;
        }
        let (prompt, late) = (prompt.clone(), late.clone());
        going_on.spawn(async move {
            let done = take_turns(&prompt, &late, format!("l{chain}")).await;
            done.with_context(|| format!("chain {chain}"))
        });
    }
    while let Some(done) = going_on.join_next().await {
        operations += done??;
    }
    println!("{operations} operations, told {delay:?} late, took {:?}", began.elapsed());
    Ok(())
}
