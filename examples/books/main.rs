//! A watcher of books: defines the kind `Book`, and prints a line for each Book that is added or deleted.
//!
//! Run `cargo run --example books`, then create a Book in another terminal. Ctrl-C ends the program.

#[path = "../shared/definition.rs"]
mod definition;
mod library;
#[path = "../shared/program.rs"]
mod program;

use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Result;
use futures::StreamExt;
use kube::{Api, CustomResourceExt};
use library::{Book, changes};

#[tokio::main]
async fn main() -> ExitCode {
    program::end(tokio::select! {
        ended = run() => ended,
        signal = program::interrupted() => signal.map_err(Into::into),
    })
}

async fn run() -> Result<()> {
    program::start_logging()?;
    let client = program::connect().await?;
    definition::define(&client, &Book::crd()).await?;
    let mut changes = pin!(changes(Api::default_namespaced(client)));
    while let Some(change) = changes.next().await {
        writeln!(io::stdout(), "{change}")?;
    }
    Ok(())
}
