//! Serves alpacas, which are stored, stables, which are computed from Nodes and Pods, and notes, which are files.

mod alpaca;
mod note;
mod stable;

use std::path::PathBuf;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::{Parser, Subcommand};
use standalone_apiserver::{Standalone, StandaloneArgs};

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    /// The directory of the notes. Without it, notes are not served
    #[arg(long, value_name = "DIR")]
    notes: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Print the manifests of an installation as YAML
    Manifests(ManifestOptions),
}

/// The kinds of this server.
fn kinds(notes: Option<PathBuf>) -> Kinds {
    let kinds = Kinds::new().kind(alpaca::kind()).computed::<stable::Stable>();
    match notes {
        Some(directory) => kinds.kind(note::kind(directory)),
        None => kinds,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let kinds = kinds(program.notes);
    if let Some(Command::Manifests(options)) = program.command {
        print!("{}", ApiServer::new("alpacas", kinds).manifests(&options)?);
    } else if program.standalone.standalone {
        Standalone::new("alpacas", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("alpacas", kinds).run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
