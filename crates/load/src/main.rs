//! What an operation costs: of ours, of a bare server that answers ready-made
//! bytes over the same TLS and HTTP/2, and of sample-apiserver, in one run.
//!
//! `cargo run --release -p load` prints the table of `docs/explanation/performance.md`.
//! Servers run as processes of their own; what is counted is their CPU time,
//! which says more than the wall's on a machine that has other things to do.

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
use mimalloc::MiMalloc;
use workload::Sizes;

/// As in the program, for the floor too: what is compared is the servers.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(about = "Prints what each operation costs")]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many objects there are
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    objects: usize,
    /// How many watchers there are
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    watchers: usize,
    /// How often everything is measured; the median is shown, and the range
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// What is measured. The last two need Go once; sample-apiserver needs a control plane, whose etcd
    /// both use then
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Server::value_variants().to_vec())]
    servers: Vec<Server>,
}

#[derive(Subcommand)]
enum Command {
    /// Count the instructions of a GET instead, which needs valgrind: counts hardly change on a busy machine
    Instructions {
        /// Whose are counted
        #[arg(long, value_enum, value_delimiter = ',', required = true)]
        servers: Vec<Server>,
        /// Where files are, also what valgrind writes for `callgrind_annotate`; without it they are removed
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Be a server
    #[command(hide = true)]
    Serve {
        server: Server,
        /// Where certificates are, and where the address is written
        folder: PathBuf,
        objects: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    /// axum, axum-server and rustls, and nothing behind them
    Floor,
    /// aggregated-apiserver, with a kind that is kept in memory
    Ours,
    /// The same, with an audit log in a file, at the level Metadata
    Audited,
    /// The same without one, with traces of which none is chosen
    Traced,
    /// The same, with all of them chosen, and a collector that is away
    Sampled,
    /// The same without any, kept in a folder
    Folder,
    /// The same, kept in etcd
    Etcd,
    /// sample-apiserver, with etcd behind it
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
        Some(Command::Instructions { servers, folder }) => {
            let temporary = tempfile::tempdir()?;
            let folder = folder.as_deref().unwrap_or(temporary.path());
            workload::prepare(folder)?;
            instructions::count(&servers, folder).await
        }
        None => {
            let Program { objects, watchers, rounds, servers, .. } = program;
            workload::compare(Sizes { objects, watchers, rounds }, servers).await
        }
    }
}
