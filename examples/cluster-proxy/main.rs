//! Forwards requests to other clusters, as the user that sends them. kubectl reaches a cluster with a kubeconfig whose
//! server is `https://SERVER/apis/proxy.example.com/v1/clusters/NAME/proxy`.

mod remote;

use std::path::PathBuf;

use aggregated_apiserver::subresource::{Caller, Error, ParentKey, SubPath, Subresource, forward};
use aggregated_apiserver::{ApiServer, Kind, Kinds, ServeArgs, Stored, start_logging};
use axum::extract::Request;
use axum::response::Response;
use clap::Parser;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use standalone_apiserver::{Standalone, StandaloneArgs};

use remote::Kubeconfigs;

/// A cluster that requests are forwarded to. Its name is that of its kubeconfig.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "proxy.example.com", version = "v1", kind = "Cluster")]
struct ClusterSpec {
    /// The purpose of the cluster.
    #[serde(default)]
    description: String,
}

impl Stored for Cluster {}

#[derive(Parser)]
struct Program {
    /// The directory with the kubeconfig of each cluster, `NAME.yaml`
    #[arg(long, value_name = "DIRECTORY")]
    kubeconfigs: PathBuf,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

/// The kind of the clusters, whose requests are forwarded with these kubeconfigs.
fn kinds(kubeconfigs: &Kubeconfigs) -> Kinds {
    let kubeconfigs = kubeconfigs.clone();
    let proxy = async move |key: ParentKey, path: SubPath, caller: Caller, request: Request| {
        forward_to_cluster(&kubeconfigs, (key, path), &caller, request).await
    };
    let proxy = Subresource::new("proxy").proxy(proxy);
    Kinds::new().kind(Kind::stored::<Cluster>().subresource(proxy))
}

async fn forward_to_cluster(
    kubeconfigs: &Kubeconfigs,
    (ParentKey(key), SubPath(path)): (ParentKey, SubPath),
    caller: &Caller,
    mut request: Request,
) -> Result<Response, Error> {
    let remote = kubeconfigs.read(key.name()).await?;
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    *request.uri_mut() = format!("/{path}{query}").parse().map_err(Error::internal)?;
    remote.authenticate(request.headers_mut(), caller)?;
    forward(request, remote.connect().await?).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let kinds = kinds(&Kubeconfigs::new(&program.kubeconfigs));
    if program.standalone.standalone {
        Standalone::new("cluster-proxy", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("cluster-proxy", kinds).run(&program.serve).await?;
    }
    Ok(())
}
