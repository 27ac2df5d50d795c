//! Serves alpacas, which are stored, and stables, which are computed from Nodes and Pods.

mod alpaca;
mod stable;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::{Parser, Subcommand};
use standalone_apiserver::{Standalone, StandaloneArgs};

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
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
fn kinds() -> Kinds {
    Kinds::new().kind(alpaca::kind()).computed::<stable::Stable>()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let server = ApiServer::new("alpacas", kinds());
    if let Some(Command::Manifests(options)) = program.command {
        print!("{}", server.manifests(&options)?);
    } else if program.standalone.standalone {
        Standalone::new("alpacas", kinds()).run(&program.serve, &program.standalone).await?;
    } else {
        server.run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
