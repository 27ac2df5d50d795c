//! Common parts of the example programs: logging, the connection to the cluster, and the exit.

use std::env;
use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The default log filter. Failed requests are logged by the code that sent them, not by kube.
const LOG: &str = "info,kube_client=off";

/// Logs to standard error, because standard output is for the results of the program. The environment variable
/// `RUST_LOG` sets the filter.
pub fn start_logging() -> Result<()> {
    let wanted = env::var("RUST_LOG").unwrap_or_else(|_| LOG.to_owned());
    let filter = EnvFilter::try_new(&wanted).with_context(|| format!("RUST_LOG={wanted}"))?;
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(filter);
    log.with_ansi(io::stderr().is_terminal()).init();
    Ok(())
}

/// A client of the cluster that `KUBECONFIG` names, or of the one in which this Pod runs. The client connects at its
/// first request.
pub async fn connect() -> Result<Client> {
    // The error message itself contains the files that were tried.
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

/// The innermost cause of an error, which is the most informative one in a single line.
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Ends a program. An error is printed in one line.
pub fn end(result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("Error: {}", one_line(&error));
    ExitCode::FAILURE
}

/// Formats an error in one line: the failed operation, then the cause.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for part in error.chain() {
        // The wrappers of kube repeat the message of their cause.
        if part.is::<kube::Error>() {
            parts.push(cause(part));
            break;
        }
        parts.push(part.to_string());
    }
    parts.join(": ").replace('\n', " ")
}
