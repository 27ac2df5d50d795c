//! Measures the cost of operations in one run: of our server, of sample-apiserver, and of a bare server that responds
//! with prebuilt bytes over the same TLS and HTTP/2.
//!
//! `cargo run --release -p load` prints the table of `docs/explanation/performance.md`. Each server runs in a process of its own.
//! Its CPU time is measured, which on a busy machine is more reliable than elapsed time.

mod client;
mod floor;
mod instructions;
mod ours;
mod peer;
mod process;
mod workload;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use instructions::Operation;
use mimalloc::MiMalloc;
use workload::Sizes;

/// The allocator of the program, also for the floor, so that only the servers differ.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(about = "Prints what each operation costs")]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of objects
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    objects: usize,
    /// Number of watchers
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    watchers: usize,
    /// Number of repetitions of all measurements; the table has the median and the range
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// Servers to measure. The last two need Go once. sample-apiserver needs a control plane, whose etcd both then use
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Server::value_variants().to_vec())]
    servers: Vec<Server>,
}

#[derive(Subcommand)]
enum Command {
    /// Count the instructions of operations instead, with valgrind: counts hardly change on a busy machine
    Instructions {
        /// Operations to count
        #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::value_variants().to_vec())]
        operations: Vec<Operation>,
        /// Servers to measure
        #[arg(long, value_enum, value_delimiter = ',', required = true)]
        servers: Vec<Server>,
        /// Directory for files, including those for `callgrind_annotate`; by default a temporary directory
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Run a server
    #[command(hide = true)]
    Serve {
        server: Server,
        /// Directory of the certificates and of the file with the server's address
        folder: PathBuf,
        objects: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    /// axum, axum-server and rustls without an API server
    Floor,
    /// aggregated-apiserver, with a kind that is stored in memory
    Ours,
    /// The same with an audit log at level Metadata
    Audited,
    /// The same without an audit log, with tracing that samples no requests
    Traced,
    /// The same with tracing that samples all requests, and an unreachable collector
    Sampled,
    /// The same without tracing, stored in a directory
    Folder,
    /// The same with a backend that accepts every object at once
    Backend,
    /// The same, stored in etcd
    Etcd,
    /// sample-apiserver with etcd
    Peer,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("must be at least 1".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let program = Program::parse();
    match program.command {
        Some(Command::Serve { server: Server::Floor, folder, objects }) => {
            floor::serve(&folder, objects).await
        }
        Some(Command::Serve { server, folder, .. }) => ours::serve(server, &folder).await,
        Some(Command::Instructions { operations, servers, folder }) => {
            let temporary = tempfile::tempdir()?;
            let folder = folder.as_deref().unwrap_or(temporary.path());
            workload::prepare(folder)?;
            instructions::count(&servers, &operations, folder).await
        }
        None => {
            let Program { objects, watchers, rounds, servers, .. } = program;
            workload::compare(Sizes { objects, watchers, rounds }, servers).await
        }
    }
}
