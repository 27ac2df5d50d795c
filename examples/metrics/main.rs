//! Serves `metrics.k8s.io` from a function in Rust: `kubectl top` shows the memory and the processor time of this program.

mod definitions;
mod usage;

use std::sync::Arc;

use aggregated_apiserver::backend::DirectKind;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::Parser;
use standalone_apiserver::{Standalone, StandaloneArgs};
use usage::{Measured, NodeUsage, PodUsage, this_program};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

/// The kinds of `metrics.k8s.io`. `measure` is called for every request.
fn kinds(measure: impl Fn() -> Vec<Measured> + Send + Sync + 'static) -> Kinds {
    let measure = Arc::new(measure);
    let pods = Arc::new(PodUsage(measure.clone()));
    let nodes = Arc::new(NodeUsage(measure));
    Kinds::new()
        .kind(DirectKind::new(definitions::pods(), pods))
        .kind(DirectKind::new(definitions::nodes(), nodes))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let kinds = kinds(|| vec![this_program()]);
    if program.standalone.standalone {
        Standalone::new("metrics", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("metrics", kinds).run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
