//! What the example programs have in common: how they log, find their cluster,
//! and end.

use std::env;
use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// What is logged if nothing else is asked for. A request that fails is told of by
/// the code that has sent it.
const LOG: &str = "info,kube_client=off";

/// Logs to standard error, so that standard output is the program's own.
/// `RUST_LOG` says how much.
pub fn start_logging() -> Result<()> {
    let wanted = env::var("RUST_LOG").unwrap_or_else(|_| LOG.to_owned());
    let filter = EnvFilter::try_new(&wanted).with_context(|| format!("RUST_LOG={wanted}"))?;
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter);
    log.with_ansi(io::stderr().is_terminal()).init();
    Ok(())
}

/// A client of the cluster that `KUBECONFIG` names, or of the one around this Pod.
/// It connects when it is used.
pub async fn connect() -> Result<Client> {
    // What it says itself names the files that it has looked for.
    let client = Client::try_default().await.map_err(|error| anyhow!("{error}"));
    client.context("no cluster is known, KUBECONFIG may lead to one")
}

/// Returns at the first Ctrl-C or SIGTERM.
pub async fn interrupted() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt,
        _ = terminate.recv() => Ok(()),
    }
}

/// The innermost cause of an error, which says most in one line.
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The end of a program: an error is told in one line.
pub fn end(result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("Error: {}", one_line(&error));
    ExitCode::FAILURE
}

/// What was being done, and why it failed.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for part in error.chain() {
        // What kube wraps around a cause repeats it.
        if part.is::<kube::Error>() {
            parts.push(cause(part));
            break;
        }
        parts.push(part.to_string());
    }
    parts.join(": ").replace('\n', " ")
}
