//! Serves kinds that are defined while the server runs, in the manner of Cozystack. Each object is a ConfigMap of the
//! cluster, so the server itself stores nothing.

mod config_maps;
mod definitions;

use std::sync::Arc;

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ApiServer, Kinds, Running, ServeArgs, User, start_logging};
use clap::{Parser, Subcommand};
use kube::{Api, Client};
use standalone_apiserver::{Standalone, StandaloneArgs};

use config_maps::Cluster;

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

/// Reads the ConfigMaps of the cluster with this client, and follows the definitions of the server in the background.
fn follow(running: &Running, client: Client, cluster: Cluster) {
    let _ = cluster.set(client);
    let definitions = Api::all(own_client(running));
    tokio::spawn(definitions::follow(definitions, running.runtime_kinds(), cluster));
}

/// A client of this server itself, which is allowed everything.
fn own_client(running: &Running) -> Client {
    let groups = vec!["system:masters".to_owned()];
    running.client(User { name: "system:apps".to_owned(), groups, ..User::default() })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Program { command, serve, standalone } = Program::parse();
    start_logging(&serve);
    let cluster = Cluster::default();
    let kinds = |namespace: &str| Kinds::new().kind(definitions::kind(&cluster, namespace));
    if let Some(Command::Manifests(options)) = command {
        let manifests = ApiServer::new("apps", kinds("apps")).manifests(&options)?;
        print!("{manifests}---\n{}", include_str!("roles.yaml"));
    } else if standalone.standalone {
        // The server is its own cluster.
        let server = Standalone::new("apps", kinds("default")).on_start({
            let cluster = Arc::clone(&cluster);
            move |running| follow(running, own_client(running), cluster)
        });
        server.run(&serve, &standalone).await?;
    } else {
        let client = serve.cluster_client().await?;
        let namespace = serve.namespace.as_deref().unwrap_or(client.default_namespace());
        let server = ApiServer::new("apps", kinds(namespace));
        let running = server.bind(&serve).await?.start().await?;
        follow(&running, client, cluster);
        running.run(serve.shutdown_delay_duration).await?;
    }
    Ok(())
}
