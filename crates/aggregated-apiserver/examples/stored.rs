//! A stored kind, as a whole program: the one that the README of the repository shows.

use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, Stored};
use clap::{Args, FromArgMatches};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An alpaca of the farm.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "farm.example.com", version = "v1", kind = "Alpaca", namespaced)]
#[kube(printcolumn(name = "Weight", type_ = "number", json_path = ".spec.weight"))]
struct AlpacaSpec {
    /// The weight in kilograms.
    #[schemars(range(min = 1.0))]
    weight: f64,
}

impl Stored for Alpaca {}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = ServeArgs::augment_args(clap::Command::new("alpacas")).get_matches();
    let server = ApiServer::new("alpacas", Kinds::new().stored::<Alpaca>());
    Ok(server.run(&ServeArgs::from_arg_matches(&flags)?).await?)
}
