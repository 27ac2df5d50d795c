//! The environment of the examples: clusters, programs, and functions that wait for a condition.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use standalone_apiserver::TestServer;
use tempfile::TempDir;
use test_cluster::Process;
use test_server::client;
use tokio::time::{Instant, sleep};

use crate::Scenario;
use crate::echo::Echo;
use crate::foos::Foo;
use crate::library::Book;
use crate::recording::Recording;

/// The timeout for something that happens by itself.
pub const PATIENCE: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_millis(20);

/// A cluster, as a program and as a test use it.
pub struct Cluster {
    pub kubeconfig: PathBuf,
    pub client: Client,
    /// Whether there are controllers, so that Deployments get Pods.
    pub is_real: bool,
}

impl Cluster {
    pub async fn real(kubeconfig: PathBuf) -> Result<Self> {
        let client = client(&kubeconfig).await?;
        Ok(Self { kubeconfig, client, is_real: true })
    }
}

pub fn on_a_test_server(scenario: Scenario) -> Result<()> {
    block_on(async {
        let server = TestServer::builder().listen().start().await?;
        let kubeconfig = server.kubeconfig().context("it listens")?;
        let client = server.client();
        scenario(&Cluster { kubeconfig, client, is_real: false }).await
    })
}

/// Runs a test on enough threads for a server and a test that waits for it.
pub fn block_on(test: impl Future<Output = Result<()>>) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build()?.block_on(test)
}

/// Runs a test with a paused clock.
pub fn block_on_without_pauses(test: impl Future<Output = Result<()>>) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build()?.block_on(test)
}

/// Repeats a function until it succeeds.
pub async fn eventually<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("not even after {PATIENCE:?}")));
            }
            Err(_) => sleep(ASK).await,
            answered => return answered,
        }
    }
}

/// Waits until an object fulfils a condition.
pub async fn becomes<K>(api: &Api<K>, name: &str, is_good: impl Fn(&K) -> bool) -> Result<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    eventually(async || {
        let found = api.get(name).await?;
        ensure!(is_good(&found), "{found:?}");
        Ok(found)
    })
    .await
}

/// Waits until an object is deleted.
pub async fn is_gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    eventually(async || {
        let found = api.get_opt(name).await?;
        ensure!(found.is_none(), "{found:?}");
        Ok(())
    })
    .await
}

/// Deletes an object, and waits until the deletion is complete.
pub async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    api.delete(name, &DeleteParams::default()).await?;
    is_gone(api, name).await
}

/// The command that runs an example.
pub fn command(name: &str, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(test_cluster::example(name).unwrap());
    command.args(arguments).env("KUBECONFIG", kubeconfig).env_remove("RUST_LOG");
    command
}

/// A running program. Dropping it kills the program.
pub struct Program {
    process: Process,
    _folder: TempDir,
}

impl Program {
    pub fn example(name: &str, kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start(&command(name, kubeconfig, arguments))
    }

    pub fn start(command: &Command) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = Process::spawn(command, &folder.path().join("log"))?;
        Ok(Self { process, _folder: folder })
    }

    /// The lines of the output that start with this prefix, without the prefix.
    pub fn lines(&self, beginning: &str) -> Vec<String> {
        let printed = self.process.printed();
        // The last line may be incomplete.
        let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
        let lines = whole.lines().filter_map(|line| line.strip_prefix(beginning));
        lines.map(str::to_owned).collect()
    }

    /// Waits for a line with this prefix. Returns the rest of the line.
    pub async fn prints(&mut self, beginning: &str) -> Result<String> {
        eventually(async || {
            let line = self.lines(beginning).into_iter().next();
            line.with_context(|| format!("no line {beginning:?} in {}", self.process.printed()))
        })
        .await
    }

    /// Sends a signal, and waits until the program ends successfully.
    pub async fn end(mut self, signal: &str) -> Result<()> {
        let kill = format!("kill -{signal} {}", self.process.id());
        ensure!(Command::new("sh").args(["-c", &kill]).status()?.success(), "{kill}");
        let process = &mut self.process;
        eventually(async || {
            ensure!(process.ensure_running().is_err(), "it goes on: {}", process.printed());
            Ok(())
        })
        .await?;
        let status = self.process.wait()?;
        ensure!(status.success(), "{status}: {}", self.process.printed());
        Ok(())
    }
}

/// Runs an example until it ends. Returns whether it succeeded, and its output.
pub async fn run(
    name: &str,
    kubeconfig: &Path,
    arguments: &[&str],
) -> Result<(bool, String, String)> {
    let mut command = command(name, kubeconfig, arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

/// The sample objects of the examples are valid.
pub fn samples_fit_their_kinds() -> Result<()> {
    let book: Book = serde_saphyr::from_str(include_str!("../../examples/books/moby-dick.yaml"))?;
    ensure!(book.name_any() == "moby-dick" && book.spec.authors == ["Herman Melville"]);
    let echo: Echo = serde_saphyr::from_str(include_str!("../../examples/echoes/hello.yaml"))?;
    ensure!(echo.name_any() == "hello" && echo.spec.replicas == 2);
    let nightly: Recording =
        serde_saphyr::from_str(include_str!("../../examples/collector/nightly.yaml"))?;
    ensure!(nightly.name_any() == "nightly" && nightly.spec.kinds.len() == 3);
    let alice: Foo = serde_saphyr::from_str(include_str!("../../examples/reflected/alice.yaml"))?;
    ensure!(alice.name_any() == "alice" && alice.spec.name == "Alice");
    Ok(())
}
