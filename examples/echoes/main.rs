//! An operator of echoes: for each `Echo` it manages a Deployment with that many echo servers.
//!
//! Run `cargo run --example echoes`, then create an Echo in another terminal. Ctrl-C ends the program after the
//! reconciliations in progress.

mod backoff;
#[path = "../shared/definition.rs"]
mod definition;
mod echo;
#[path = "../shared/program.rs"]
mod program;
mod reconcile;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use echo::Echo;
use kube::CustomResourceExt;

/// The time limit for reconciliations in progress when the program ends.
const GRACE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<()> {
    program::start_logging()?;
    let mut interrupted = tokio::spawn(program::interrupted());
    let client = program::connect().await?;
    let definition = Echo::crd();
    tokio::select! {
        defined = definition::define(&client, &definition) => defined?,
        signal = &mut interrupted => return Ok(signal??),
    }
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let operator = reconcile::operate(client, async { drop(ended.await) });
    let mut operator = tokio::spawn(operator);
    tracing::info!("the operator follows echoes");
    tokio::select! {
        signal = interrupted => signal??,
        failed = &mut operator => return failed.context("the operator has ended by itself"),
    }
    drop(end);
    tokio::time::timeout(GRACE, operator).await.context("a change takes too long")??;
    Ok(())
}
