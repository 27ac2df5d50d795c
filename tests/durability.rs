//! Acknowledged writes survive. The program is killed at random moments, repeatedly, while many clients write and one
//! watches. Other tests simulate power failures, a disk that is full, fails or is damaged, and a disk that is replaced
//! by an older copy.
//!
//! Environment variables: `KILLS` is the number of kills (20), `IMAGES` the number of moments at which the power may
//! fail (40), and `FAILURES` the number of disk operations that may fail (12).

#[path = "durability/damage.rs"]
mod damage;
#[path = "durability/disk.rs"]
mod disk;
#[path = "durability/encryption.rs"]
mod encryption;
#[path = "durability/full_disk.rs"]
mod full_disk;
#[path = "durability/history.rs"]
mod history;
#[path = "durability/installation.rs"]
mod installation;
#[path = "durability/large_history.rs"]
mod large_history;
#[path = "durability/older_copy.rs"]
mod older_copy;
#[path = "durability/power.rs"]
mod power;
#[path = "durability/recorder.rs"]
mod recorder;
#[path = "durability/versions.rs"]
mod versions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use farm_operator::v1alpha::{Llama, LlamaSpec};
use futures::{StreamExt, TryStreamExt};
use history::{History, State};
use installation::Installation;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

const WRITERS: u64 = 16;
/// The timeout for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<History>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn llama(name: &str, weight: f64) -> Llama {
    Llama::new(name, LlamaSpec { weight, height: 0.0 })
}

fn number(llama: &Llama) -> Result<u64> {
    Ok(llama.resource_version().context("no version")?.parse()?)
}

/// Creates, changes and deletes llamas until the program no longer responds.
async fn write(llamas: Api<Llama>, history: Shared, (round, writer): (usize, u64)) -> Result<()> {
    for count in 0_u32.. {
        let name = format!("w{round}-{writer}-{count}");
        let weight = f64::from(count);
        history.lock().ask(&name, State::Weighs(weight));
        let Ok(created) = llamas.create(&PostParams::default(), &llama(&name, weight)).await else {
            return Ok(());
        };
        history.lock().acknowledge(&name, Some(number(&created)?))?;
        if count % 2 == 0 {
            history.lock().ask(&name, State::Weighs(weight + 0.5));
            let patch = Patch::Merge(json!({"spec": {"weight": weight + 0.5}}));
            let Ok(changed) = llamas.patch(&name, &PatchParams::default(), &patch).await else {
                return Ok(());
            };
            history.lock().acknowledge(&name, Some(number(&changed)?))?;
        }
        if count % 3 == 0 {
            history.lock().ask(&name, State::Gone);
            if llamas.delete(&name, &DeleteParams::default()).await.is_err() {
                return Ok(());
            }
            history.lock().acknowledge(&name, None)?;
        }
    }
    Ok(())
}

/// Follows events until the program has ended, or until the event of a llama with this name.
async fn watch(llamas: &Api<Llama>, history: &Shared, until: Option<&str>) -> Result<()> {
    let seen = history.lock().seen.to_string();
    let mut events = match llamas.watch(&WatchParams::default().timeout(290), &seen).await {
        Ok(events) => events.boxed(),
        Err(_) if until.is_none() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    loop {
        match events.try_next().await {
            Ok(Some(WatchEvent::Added(llama) | WatchEvent::Modified(llama))) => {
                history.lock().show(&llama, false)?;
                if until == Some(&*llama.name_any()) {
                    return Ok(());
                }
            }
            Ok(Some(WatchEvent::Deleted(llama))) => history.lock().show(&llama, true)?,
            Ok(Some(WatchEvent::Bookmark(_))) => {}
            Ok(Some(WatchEvent::Error(error))) => bail!("the watch has lost its place: {error:?}"),
            Ok(None) | Err(_) if until.is_none() => return Ok(()),
            Ok(None) => bail!("the watch has ended"),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Creates a llama, waits until the watch has reported it, and checks the whole state.
async fn settle(llamas: &Api<Llama>, history: &Shared, round: usize) -> Result<()> {
    let mark = format!("mark-{round}");
    history.lock().ask(&mark, State::Weighs(1.0));
    let made = llamas.create(&PostParams::default(), &llama(&mark, 1.0)).await?;
    history.lock().acknowledge(&mark, Some(number(&made)?))?;
    timeout(PATIENCE, watch(llamas, history, Some(&mark))).await??;
    let listed = llamas.list(&ListParams::default()).await?;
    history.lock().check(&listed.items)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment() -> Result<()> {
    let kills = std::env::var("KILLS").map_or(Ok(20), |kills| kills.parse())?;
    let (installation, history) = (Installation::new()?, Shared::default());
    let mut program = installation.start().await?;
    let listed = program.llamas.list(&ListParams::default()).await?;
    let revision = listed.metadata.resource_version.context("no version")?.parse()?;
    history.lock().begin(&listed.items, revision)?;
    for round in 0..kills {
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            tasks.spawn(write(program.llamas.clone(), history.clone(), (round, writer)));
        }
        let (llamas, shown) = (program.llamas.clone(), history.clone());
        tasks.spawn(async move { watch(&llamas, &shown, None).await });
        // Each round ends at another moment of the start, or of a group of writes.
        let pause = Duration::from_micros(400_000 * (round as u64 * 7 % 20) / 20 + 137);
        tokio::time::sleep(pause).await;
        program.process.kill();
        while let Some(done) = timeout(PATIENCE, tasks.join_next()).await? {
            done??;
        }
        program = installation.start().await?;
        settle(&program.llamas, &history, round).await.with_context(|| format!("round {round}"))?;
    }
    let acknowledged = history.lock().acknowledged();
    println!("{kills} kills, {acknowledged} writes with numbers were acknowledged");
    ensure!(acknowledged > 10 * kills, "hardly anything was written: {acknowledged}");
    // A regular shutdown loses nothing either, and the sample llama does not come back.
    program.llamas.delete("dolly", &DeleteParams::default()).await?;
    program.process.terminate()?;
    ensure!(timeout(PATIENCE, async { program.process.wait() }).await??.success());
    let program = installation.start().await?;
    ensure!(program.llamas.get_opt("dolly").await?.is_none(), "what was deleted is back");
    settle(&program.llamas, &history, kills).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_with_the_same_data_directory_exits_with_an_error() -> Result<()> {
    let installation = Installation::new()?;
    let _program = installation.start().await?;
    let second = installation.command().output()?;
    let said = String::from_utf8_lossy(&second.stderr);
    ensure!(second.status.code() == Some(1), "{:?} {said}", second.status);
    ensure!(said.contains("is in use by another process"), "{said}");
    Ok(())
}
