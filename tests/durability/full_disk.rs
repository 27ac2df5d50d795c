//! A disk that is full.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::disk::Disk;
use crate::program::Place;
use crate::{PATIENCE, llama};

/// Whether something was refused because the disk is full.
fn is_no_room(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 507 && status.message.contains("no room on the disk"))
}

fn is_status<T>(answer: &Result<T, kube::Error>, code: u16) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_takes_deletions_and_nothing_else() -> Result<()> {
    let Some(disk) = Disk::new(80 << 20)? else {
        println!("left out: nothing can be mounted here");
        return Ok(());
    };
    let place = Place::on(disk)?;
    let disk = place.disk().context("a disk")?;
    let mut program = place.start().await?;
    let (mut made, text) = (Vec::new(), "x".repeat(200_000));
    let large = |name: &str| {
        let mut llama = llama(name, 1.0);
        llama.annotations_mut().insert("text".to_owned(), text.clone());
        llama
    };
    for number in 0..20 {
        let name = format!("l{number}");
        program.llamas.create(&PostParams::default(), &large(&name)).await?;
        made.push(name);
    }
    let finalizers =
        |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let hold = finalizers(&["example.com/hold", "example.com/leash"]);
    program.llamas.patch("l0", &PatchParams::default(), &hold).await?;
    program.llamas.patch("l1", &PatchParams::default(), &hold).await?;
    disk.fill()?;
    // The log has some room left that it has had before.
    let refused = loop {
        let name = format!("l{}", made.len());
        match program.llamas.create(&PostParams::default(), &large(&name)).await {
            Ok(_) => made.push(name),
            Err(error) => break error,
        }
        ensure!(made.len() < 1_000, "there is no end of the disk");
    };
    ensure!(is_no_room(&refused), "{refused}");
    let listed = program.llamas.list(&ListParams::default()).await?.items;
    ensure!(listed.len() == made.len() + 1, "{} of {}", listed.len(), made.len());

    // An object that is there is found before there is no room for it.
    let again = program.llamas.create(&PostParams::default(), &large("l1")).await;
    ensure!(is_status(&again, 409), "{again:?}");
    // Finalizers of an object that is being deleted can be removed, also by a manager that has not written the object yet.
    program.llamas.delete("l1", &DeleteParams::default()).await?;
    let another =
        PatchParams { field_manager: Some("another".to_owned()), ..PatchParams::default() };
    let released = program.llamas.patch("l1", &another, &finalizers(&[])).await?;
    ensure!(released.finalizers().is_empty(), "{:?}", released.finalizers());

    // What is acknowledged is there after a start on a disk that is full.
    program.process.kill();
    program = place.start().await?;
    let marked = program.llamas.delete("l0", &DeleteParams::default()).await?;
    ensure!(marked.left().is_some_and(|held| held.metadata.deletion_timestamp.is_some()));
    // Controllers let go of it, one after the other.
    let hold = finalizers(&["example.com/hold"]);
    let held = program.llamas.patch("l0", &PatchParams::default(), &hold).await?;
    ensure!(held.finalizers().len() == 1, "{:?}", held.finalizers());
    for name in &made[2..] {
        program
            .llamas
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| name.clone())?;
    }
    let refused = program.llamas.create(&PostParams::default(), &large("late")).await;
    ensure!(refused.as_ref().is_err_and(is_no_room), "{refused:?}");
    let refused = program.llamas.patch("dolly", &PatchParams::default(), &hold).await;
    ensure!(refused.as_ref().is_err_and(is_no_room), "{refused:?}");
    program.process.kill();
    program = place.start().await?;
    let left = program.llamas.list(&ListParams::default()).await?.items;
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    ensure!(left.len() == 2 && left.contains(&"dolly".to_owned()), "{left:?}");

    disk.free()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match program.llamas.create(&PostParams::default(), &large("late")).await {
            Ok(_) => return Ok(()),
            Err(error) if !is_no_room(&error) => return Err(error.into()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What a start prints, once the server is ready.
fn start_standalone(disk: &Disk) -> Result<(Child, PathBuf)> {
    let mut command = disk.command(env!("CARGO_BIN_EXE_farm-operator"));
    command.args(["--standalone", "--secure-port=0", "--load"]).arg(FARM);
    command.arg("--data-dir").arg(disk.path().join("data"));
    command.env_remove("KUBECONFIG").stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
    let file = line.trim().strip_prefix("export KUBECONFIG=").map(PathBuf::from);
    if file.is_none() {
        let _ = child.kill();
    }
    Ok((child, file.context("the program is not ready")?))
}

const FARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/farm.yaml");

/// A start writes nothing that is there already: objects that are loaded, those of the server, and the kubeconfig.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_cluster_starts_on_a_full_disk_and_serves_reads() -> Result<()> {
    let Some(disk) = Disk::new(60 << 20)? else {
        println!("left out: nothing can be mounted here");
        return Ok(());
    };
    let client = async |kubeconfig: &Path| -> Result<Client> {
        let text = disk.command("cat").arg(kubeconfig).output()?.stdout;
        let config = Kubeconfig::from_yaml(&String::from_utf8(text)?)?;
        let options = KubeConfigOptions::default();
        Ok(Client::try_from(Config::from_custom_kubeconfig(config, &options).await?)?)
    };
    let (mut child, kubeconfig) = start_standalone(&disk)?;
    let pods: Api<Pod> = Api::default_namespaced(client(&kubeconfig).await?);
    let count = pods.list(&ListParams::default()).await?.items.len();
    ensure!(count > 0, "nothing was loaded");
    child.kill()?;
    child.wait()?;
    disk.fill()?;
    for _ in 0..2 {
        // Each start has another port.
        let (mut child, kubeconfig) = start_standalone(&disk)?;
        let pods: Api<Pod> = Api::default_namespaced(client(&kubeconfig).await?);
        let listed = pods.list(&ListParams::default()).await?.items;
        let deleted = pods.delete(&listed[0].name_any(), &DeleteParams::default()).await;
        child.kill()?;
        child.wait()?;
        ensure!(!listed.is_empty(), "nothing is read");
        deleted.context("a deletion")?;
    }
    Ok(())
}
