//! A disk that is full.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::disk::Disk;
use crate::installation::Installation;
use crate::{PATIENCE, llama};

/// Whether a write was rejected because the disk is full.
fn is_no_room(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 507 && status.message.contains("the disk of the store is full"))
}

fn is_status<T>(answer: &Result<T, kube::Error>, code: u16) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == code)
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_succeed_on_a_full_disk_and_other_writes_are_rejected() -> Result<()> {
    let Some(disk) = Disk::new(80 << 20)? else { return Ok(()) };
    let installation = Installation::on(disk)?;
    let disk = installation.disk().context("a disk")?;
    let mut program = installation.start().await?;
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
    // Writes succeed until the allocated part of the log file is used up.
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

    // An existing object is detected before the missing capacity.
    let again = program.llamas.create(&PostParams::default(), &large("l1")).await;
    ensure!(is_status(&again, 409), "{again:?}");
    // Finalizers of an object that is being deleted can be removed, even by a manager that has not written the object
    // before.
    program.llamas.delete("l1", &DeleteParams::default()).await?;
    let another =
        PatchParams { field_manager: Some("another".to_owned()), ..PatchParams::default() };
    let released = program.llamas.patch("l1", &another, &finalizers(&[])).await?;
    ensure!(released.finalizers().is_empty(), "{:?}", released.finalizers());

    // Acknowledged objects exist after a start on a full disk.
    program.process.kill();
    program = installation.start().await?;
    let marked = program.llamas.delete("l0", &DeleteParams::default()).await?;
    ensure!(marked.left().is_some_and(|held| held.metadata.deletion_timestamp.is_some()));
    // Controllers remove their finalizers one by one.
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
    program = installation.start().await?;
    let left = program.llamas.list(&ListParams::default()).await?.items;
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    ensure!(left.len() == 2 && left.contains(&"dolly".to_owned()), "{left:?}");

    // A server that starts on a disk on which nothing can be written serves reads.
    program.process.terminate()?;
    program.process.wait()?;
    ensure!(disk.command("rm").arg("-f").arg(disk.path().join("data/ballast")).status()?.success());
    disk.fill()?;
    program = installation.start().await?;
    ensure!(program.llamas.list(&ListParams::default()).await?.items.len() == 2);
    let refused = program.llamas.create(&PostParams::default(), &large("late")).await;
    ensure!(refused.as_ref().is_err_and(is_no_room), "{refused:?}");

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

/// A ready server without a cluster.
struct Standalone {
    child: Child,
    client: Client,
    pods: Api<Pod>,
}

impl Standalone {
    async fn start(disk: &Disk) -> Result<Self> {
        let mut command = disk.command(env!("CARGO_BIN_EXE_farm-operator"));
        command.args(["--standalone", "--secure-port=0", "--load"]).arg(FARM);
        command.arg("--data-dir").arg(disk.path().join("data"));
        command.args(["--shutdown-delay-duration", "0s"]);
        command.env_remove("KUBECONFIG").stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let kubeconfig = match printed_kubeconfig(&mut child) {
            Ok(kubeconfig) => kubeconfig,
            Err(error) => {
                let _ = child.kill();
                return Err(error);
            }
        };
        let text = disk.command("cat").arg(&kubeconfig).output()?.stdout;
        let config = Kubeconfig::from_yaml(&String::from_utf8(text)?)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        Ok(Self { child, pods: Api::default_namespaced(client.clone()), client })
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the server with a signal, like an administrator.
    fn terminate(mut self) -> Result<()> {
        let ended = Command::new("kill").arg(self.child.id().to_string()).status()?;
        ensure!(ended.success() && self.child.wait()?.success());
        Ok(())
    }

    /// A Pod that is not being deleted yet.
    async fn any_pod(&self) -> Result<String> {
        let listed = self.pods.list(&ListParams::default()).await?.items;
        let mut left = listed.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(left.next().context("nothing is read")?.name_any())
    }

    async fn readiness(&self, path: &str) -> Result<String> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.client.request_text(request).await?)
    }

    async fn assert_ready(&self) -> Result<()> {
        let readiness = self.readiness("/readyz?verbose").await?;
        ensure!(readiness.contains("[+]store ok"), "{readiness}");
        Ok(())
    }

    /// Checks that the server serves, and reports the full disk.
    async fn assert_full(&self) -> Result<()> {
        let readiness = self.readiness("/readyz?verbose").await?;
        ensure!(readiness.contains("[-]store failed"), "{readiness}");
        let Err(why) = self.readiness("/readyz/store").await else { bail!("the store is well") };
        ensure!(format!("{why:#}").contains("the disk of the store is full"), "{why:#}");
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<(), kube::Error> {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let mut map = ConfigMap { metadata: ObjectMeta::default(), ..ConfigMap::default() };
        map.metadata.name = Some(name.to_owned());
        map.data = Some([("text".to_owned(), "x".repeat(100_000))].into());
        maps.create(&PostParams::default(), &map).await.map(drop)
    }

    /// Creates an object once the disk has capacity for it.
    async fn create_in_time(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.create(name).await {
                Err(error) if is_no_room(&error) && Instant::now() < deadline => {
                    sleep(Duration::from_millis(100)).await;
                }
                created => return Ok(created?),
            }
        }
    }
}

/// The path of the kubeconfig that a server prints once it is ready.
fn printed_kubeconfig(child: &mut Child) -> Result<PathBuf> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
    let file = line.trim().strip_prefix("export KUBECONFIG=").map(PathBuf::from);
    file.context("the program is not ready")
}

const FARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/farm.yaml");

/// A start does not rewrite what exists already: loaded objects, the server's own objects, and the kubeconfig.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_cluster_starts_on_a_full_disk_and_serves_reads() -> Result<()> {
    let Some(disk) = Disk::new(60 << 20)? else { return Ok(()) };
    let server = Standalone::start(&disk).await?;
    server.any_pod().await.context("nothing was loaded")?;
    server.kill()?;
    disk.fill()?;
    for _ in 0..2 {
        // Each start uses another port.
        let server = Standalone::start(&disk).await?;
        let pod = server.any_pod().await?;
        let deleted = server.pods.delete(&pod, &DeleteParams::default()).await;
        server.kill()?;
        deleted.context("a deletion")?;
    }
    Ok(())
}

/// The remaining capacity of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    /// No bytes.
    Nothing,
    /// No bytes and no inodes.
    NoNames,
}

/// Nothing can be written at all, and no space is reserved.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_started_on_a_full_disk_serves_reads() -> Result<()> {
    for left in [Left::Nothing, Left::NoNames] {
        for is_killed in [true, false] {
            let Some(disk) = Disk::new(60 << 20)? else { return Ok(()) };
            let check = serves_reads(&disk, left, is_killed).await;
            check.with_context(|| format!("{left:?}, killed before: {is_killed}"))?;
        }
    }
    Ok(())
}

async fn serves_reads(disk: &Disk, left: Left, is_killed: bool) -> Result<()> {
    let server = Standalone::start(disk).await?;
    server.any_pod().await.context("nothing was loaded")?;
    server.assert_ready().await?;
    match is_killed {
        true => server.kill()?,
        false => server.terminate()?,
    }
    let reserved_space = disk.path().join("data/ballast");
    ensure!(disk.command("rm").arg("-f").arg(reserved_space).status()?.success());
    disk.fill()?;
    if left == Left::NoNames {
        disk.fill_names()?;
    }

    let server = Standalone::start(disk).await?;
    let pod = server.any_pod().await?;
    let refused = server.create("late").await;
    ensure!(refused.as_ref().is_err_and(is_no_room), "{refused:?}");
    server.assert_full().await?;
    if left == Left::NoNames {
        disk.free_names()?;
    }
    // A little space is enough for a deletion.
    disk.free_some(256 << 10)?;
    server
        .pods
        .delete(&pod, &DeleteParams::default().grace_period(0))
        .await
        .context("a deletion")?;
    let refused = server.create("late").await;
    ensure!(refused.as_ref().is_err_and(is_no_room), "{refused:?}");
    // The last writes exist after another start; a server that was not restarted reopens its file.
    let server = match is_killed {
        true => {
            server.kill()?;
            Standalone::start(disk).await?
        }
        false => server,
    };
    ensure!(server.pods.get_opt(&pod).await?.is_none(), "the deletion is lost");
    disk.free()?;
    server.create_in_time("late").await?;
    server.assert_ready().await?;
    // Another process can copy the file again.
    let mut backup = disk.command(env!("CARGO_BIN_EXE_farm-operator"));
    backup.arg("backup").arg("--data-dir").arg(disk.path().join("data"));
    let copied = backup.arg(disk.path().join("copy")).output()?;
    ensure!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    server.kill()
}
