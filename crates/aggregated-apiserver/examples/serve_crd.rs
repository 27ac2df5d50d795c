//! Custom resources without etcd: serves the CustomResourceDefinitions of files behind an APIService, as kinds that are
//! stored in memory.
//!
//! `cargo run -p aggregated-apiserver --example serve_crd -- --crd foos.yaml`
//!
//! With `manifests` in front, the program prints everything to deploy instead.

use std::path::PathBuf;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "serve_crd",
    about = "Serves the kinds of CustomResourceDefinitions, kept in memory"
)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    /// Files of CustomResourceDefinitions, YAML or JSON, one or more documents each
    #[arg(long, num_args = 1.., value_name = "FILE", global = true)]
    crd: Vec<PathBuf>,
    /// Serve definitions also if they ask for what is not served yet; the log says what that is
    #[arg(long, global = true)]
    allow_partial: bool,
    /// The name of the server, its Service and its objects in the cluster
    #[arg(long, default_value = "serve-crd", value_name = "NAME", global = true)]
    name: String,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Print everything to deploy, as YAML
    Manifests(ManifestOptions),
}

#[tokio::main]
async fn main() -> Result<()> {
    let program = Program::parse();
    if program.crd.is_empty() {
        Program::command().error(ErrorKind::MissingRequiredArgument, "--crd names no file").exit();
    }
    let mut kinds = Kinds::new();
    for file in &program.crd {
        let named = || format!("--crd {}", file.display());
        let yaml = std::fs::read_to_string(file).with_context(named)?;
        kinds = kinds.crds_from_yaml(&yaml).with_context(named)?;
    }
    if program.allow_partial {
        kinds = kinds.allow_partial();
    }
    let server = ApiServer::new(&program.name, kinds);
    match program.command {
        Some(Command::Manifests(options)) => print!("{}", server.manifests(&options)?),
        None => {
            start_logging(&program.serve);
            server.run(&program.serve).await?;
        }
    }
    Ok(())
}
