//! farm-operator: serves llamas and farm pods behind kube-apiserver.

use aggregated_apiserver::{ManifestOptions, ServeArgs, start_logging};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about = "Serves llamas and farm pods behind kube-apiserver")]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Print everything to deploy, as YAML
    Manifests(ManifestOptions),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    match program.command {
        Some(Command::Manifests(options)) => {
            print!("{}", farm_operator::server().manifests(&options)?);
        }
        None => {
            start_logging(&program.serve);
            farm_operator::server().run(&program.serve).await?;
        }
    }
    Ok(())
}
