//! Clients that send requests continuously.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use farm_operator::v1alpha::{Llama, LlamaSpec};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use test_server::client_without_retries;

use crate::stage::Stage;

/// The pause between two rounds of a client.
const PAUSE: Duration = Duration::from_millis(100);
const CLIENTS: usize = 2;
/// Rounds of each client, however soon it is told to end.
const MIN_ROUNDS: usize = 2;

/// Clients that list, create and delete llamas through kube-apiserver until `end` is called.
pub struct Traffic {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Traffic {
    pub fn start(stage: &Stage) -> Self {
        Self::begin(stage, true)
    }

    /// Same as `start`, with clients that only list, and so need no llama of their own.
    pub fn of_readers(stage: &Stage) -> Self {
        Self::begin(stage, false)
    }

    fn begin(stage: &Stage, writes: bool) -> Self {
        let kubeconfig = stage.world.control_plane.kubeconfig();
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = Arc::clone(&ends);
            move || {
                tokio::runtime::Runtime::new()?.block_on(async {
                    let client = client_without_retries(&kubeconfig).await?;
                    let clients =
                        (0..CLIENTS).map(|number| rounds(client.clone(), number, writes, &ends));
                    // The first client that fails stops the others.
                    futures::future::try_join_all(clients).await?;
                    Ok(())
                })
            }
        });
        Self { ends, thread }
    }

    /// Stops the clients. None of their requests may have failed.
    pub fn end(self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the traffic panicked"))?
    }
}

async fn rounds(client: Client, number: usize, writes: bool, ends: &AtomicBool) -> Result<()> {
    let llamas: Api<Llama> = Api::default_namespaced(client);
    let mut rounds = 0;
    while rounds < MIN_ROUNDS || !ends.load(Ordering::Relaxed) {
        let name = format!("busy-{number}-{rounds}");
        llamas.list(&ListParams::default()).await.with_context(|| format!("list {name}"))?;
        if writes {
            let llama = Llama::new(&name, LlamaSpec { weight: 20.0, height: 1.5 });
            let create = llamas.create(&PostParams::default(), &llama).await;
            create.with_context(|| format!("create {name}"))?;
            let delete = llamas.delete(&name, &DeleteParams::default()).await;
            delete.with_context(|| format!("delete {name}"))?;
        }
        rounds += 1;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
