//! An operator of echoes: for each `Echo` it keeps a Deployment of that many
//! echo servers.
//!
//! `cargo run --example echoes`, then create an Echo in another terminal.
//! Ctrl-C ends it, when what it has begun is done.

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

/// How long what has begun may take when the program is told to end.
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
