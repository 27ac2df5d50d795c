//! An older copy replaces the file. The later writes are lost, and no client can continue from their revisions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use farm_operator::v1alpha::Llama;
use futures::{StreamExt, TryStreamExt};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use crate::installation::{Installation, Program};
use crate::{PATIENCE, llama, number};

/// An event of a watch: the revision, the type and the name.
type Told = (u64, &'static str, String);

const FILE: &str = "objects.db";

async fn make(llamas: &Api<Llama>, name: &str) -> Result<Told> {
    let made = llamas.create(&PostParams::default(), &llama(name, 1.0)).await?;
    Ok((number(&made)?, "added", name.to_owned()))
}

async fn change(llamas: &Api<Llama>, name: &str, weight: u32) -> Result<Told> {
    let patch = Patch::Merge(json!({"spec": {"weight": weight}}));
    let changed = llamas.patch(name, &PatchParams::default(), &patch).await?;
    Ok((number(&changed)?, "modified", name.to_owned()))
}

/// The events of a watch after a revision, up to the revision `last`. Returns `None` if the server rejects the start
/// revision as too old.
async fn told(llamas: &Api<Llama>, since: u64, last: u64) -> Result<Option<Vec<Told>>> {
    let params = WatchParams::default().timeout(290);
    let mut events = match llamas.watch(&params, &since.to_string()).await {
        Ok(events) => events.boxed(),
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut told = Vec::new();
    loop {
        let event = timeout(PATIENCE, events.try_next()).await??.context("the watch has ended")?;
        let (what, llama) = match event {
            WatchEvent::Added(llama) => ("added", llama),
            WatchEvent::Modified(llama) => ("modified", llama),
            WatchEvent::Deleted(llama) => ("deleted", llama),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) if status.code == 410 && told.is_empty() => return Ok(None),
            WatchEvent::Error(status) => bail!("{status:?} after {told:?}"),
        };
        told.push((number(&llama)?, what, llama.name_any()));
        if number(&llama)? >= last {
            return Ok(Some(told));
        }
    }
}

/// The names of all objects at a revision, or `None` if the server does not know that revision.
async fn listed(llamas: &Api<Llama>, at: u64) -> Result<Option<BTreeSet<String>>> {
    let params = ListParams::default().at(&at.to_string()).matching(VersionMatch::Exact);
    match llamas.list(&params).await {
        Ok(list) => Ok(Some(list.items.iter().map(ResourceExt::name_any).collect())),
        Err(kube::Error::Api(status)) if status.code == 410 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Stops or kills the program, and replaces its data by the copy.
fn replace(program: &mut Program, data: &Path, copy: &Path, is_killed: bool) -> Result<()> {
    if is_killed {
        program.process.kill();
        // A remaining log would be applied to the copy.
        fs::remove_dir_all(data)?;
        fs::create_dir(data)?;
    } else {
        program.process.terminate()?;
        ensure!(program.process.wait()?.success());
    }
    fs::copy(copy, data.join(FILE))?;
    Ok(())
}

/// Makes a copy, while the program runs or while it is stopped.
async fn copy(
    installation: &Installation,
    program: Program,
    file: &Path,
    is_running: bool,
) -> Result<Program> {
    if is_running {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        command.arg("backup").arg(file).arg("--data-dir").arg(installation.path().join("data"));
        let done = command.output()?;
        ensure!(done.status.success(), "{done:?}");
        return Ok(program);
    }
    let mut program = program;
    program.process.terminate()?;
    ensure!(program.process.wait()?.success());
    fs::copy(installation.path().join("data").join(FILE), file)?;
    installation.start().await
}

async fn go_back(is_running: bool) -> Result<()> {
    let installation = Installation::new()?;
    let (data, file) = (installation.path().join("data"), installation.path().join("copy.db"));
    let mut program = installation.start().await?;
    let begin: u64 = {
        let list = program.llamas.list(&ListParams::default()).await?;
        list.metadata.resource_version.context("no version")?.parse()?
    };
    let mut kept = vec![
        make(&program.llamas, "a").await?,
        change(&program.llamas, "a", 2).await?,
        make(&program.llamas, "b").await?,
    ];
    program.llamas.delete("b", &DeleteParams::default()).await?;
    let fourth = make(&program.llamas, "c").await?;
    let all = told(&program.llamas, kept[2].0, fourth.0).await?.context("it was just made")?;
    ensure!(all.len() == 2 && all[0].1 == "deleted" && all[1] == fourth, "{all:?}");
    kept.extend(all);

    program = copy(&installation, program, &file, is_running).await?;
    let mut lost = Vec::new();
    // When the copy is restored a second time, it does not contain the first restore either.
    for time in 0..2 {
        for name in ["lost", "lost-again"] {
            lost.push(make(&program.llamas, name).await?.0);
        }
        lost.push(change(&program.llamas, "a", 10 + time).await?.0);
        // The client of a list has received a revision that belongs to no write.
        let list = program.llamas.list(&ListParams::default()).await?;
        ensure!(list.items.iter().any(|llama| llama.name_any() == "lost"));
        replace(&mut program, &data, &file, is_running)?;
        program = installation.start().await?;
    }
    let llamas = &program.llamas;
    let mut after = kept.clone();
    after.push(make(llamas, "new").await?);
    after.push(change(llamas, "a", 3).await?);
    let numbers = kept.iter().chain(&after[kept.len()..]).map(|told| told.0).chain(lost.clone());
    let numbers: Vec<u64> = numbers.collect();
    let different: BTreeSet<u64> = numbers.iter().copied().collect();
    ensure!(different.len() == numbers.len(), "a number was given twice: {numbers:?}");
    let (newest, last) = (numbers.iter().max().copied(), after[after.len() - 1].0);
    ensure!(newest == Some(last), "{numbers:?} do not grow");

    for since in &lost {
        let resumed = told(llamas, *since, last).await?;
        ensure!(resumed.is_none(), "a watch goes on behind {since}, which was lost: {resumed:?}");
        let shown = listed(llamas, *since).await?;
        ensure!(shown.is_none(), "what there was at {since} was lost: {shown:?}");
    }
    for (count, since) in std::iter::once(begin).chain(kept.iter().map(|kept| kept.0)).enumerate() {
        let resumed = told(llamas, since, last).await?;
        let expected = &after[count..];
        let is_it = resumed.as_deref() == Some(expected);
        ensure!(is_it, "behind {since} comes {expected:?}, and not {resumed:?}");
    }
    let shown = listed(llamas, kept[2].0).await?.context("what there was then is known")?;
    ensure!(shown == ["a", "b", "dolly"].map(str::to_owned).into(), "{shown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn restoring_a_backup_expires_lost_resource_versions_and_reuses_none() -> Result<()> {
    go_back(true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn restoring_an_older_file_expires_lost_resource_versions_and_reuses_none() -> Result<()> {
    go_back(false).await
}
