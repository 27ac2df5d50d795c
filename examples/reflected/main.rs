//! Serves the Foos of a cluster from memory, over HTTP: a reflector behind a small web server.
//!
//! `cargo run --example reflected`, then `curl http://127.0.0.1:8080/foos`. `deployment.yaml` runs it in a cluster.

#[path = "../shared/definition.rs"]
mod definition;
mod foos;
#[path = "../shared/program.rs"]
mod program;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use foos::{Foo, follow, router};
use kube::CustomResourceExt;
use kube::runtime::reflector::store;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time limit for requests in progress when the program ends.
const GRACE: Duration = Duration::from_secs(5);

/// Serves the Foos of a cluster from memory, over HTTP
#[derive(Parser)]
struct Flags {
    /// Where to listen; port 0 is a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run(&Flags::parse()).await)
}

async fn run(flags: &Flags) -> Result<()> {
    program::start_logging()?;
    let client = program::connect().await?;
    let bound = TcpListener::bind(flags.listen).await;
    let listener = bound.with_context(|| format!("--listen {}", flags.listen))?;
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    let (reader, writer) = store();
    let (end, ended) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(reader));
    let server = server.with_graceful_shutdown(async { drop(ended.await) });
    let server = tokio::spawn(server.into_future());
    let following = async {
        definition::define(&client, &Foo::crd()).await?;
        follow(client.clone(), writer).await;
        anyhow::Ok(())
    };
    tokio::select! {
        ended = following => ended?,
        signal = program::interrupted() => signal?,
    }
    drop(end);
    // At shutdown, the program waits at most this long for clients that do not finish their requests.
    if let Ok(served) = timeout(GRACE, server).await {
        served??;
    }
    Ok(())
}
