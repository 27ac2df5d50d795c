//! Serves kinds that are defined while the server runs, in the manner of Cozystack. Each object is a ConfigMap of the
//! cluster, so the server itself stores nothing.

mod config_maps;
mod definitions;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::serving::PostStart;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::{Parser, Subcommand};
use kube::CustomResourceExt;
use standalone_apiserver::{Standalone, StandaloneArgs};

use definitions::Definition;

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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Program { command, serve, standalone } = Program::parse();
    start_logging(&serve);
    let cluster = config_maps::Cluster::default();
    let kinds = Kinds::new().kind(definitions::kind(&cluster, Definition::crd()));
    let with_hook = |server: ApiServer| {
        server.with_post_start_hook("definitions", async move |server: PostStart| {
            tokio::spawn(definitions::serve(server, cluster));
            Ok::<(), String>(())
        })
    };
    if let Some(Command::Manifests(options)) = command {
        let manifests = ApiServer::new("apps", kinds).manifests(&options)?;
        print!("{manifests}---\n{}", include_str!("roles.yaml"));
    } else if standalone.standalone {
        // The server is its own cluster.
        Standalone::new("apps", kinds).with_server(with_hook).run(&serve, &standalone).await?;
    } else {
        with_hook(ApiServer::new("apps", kinds)).run(&serve).await?;
    }
    Ok(())
}
