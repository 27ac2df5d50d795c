//! Serves the three metrics APIs from functions in Rust: `kubectl top` shows the memory and the processor time of this
//! program, and HorizontalPodAutoscalers read its open files and the load of the machine.

mod autoscaling;
mod definitions;
mod usage;

use std::sync::Arc;

use aggregated_apiserver::backend::DirectKind;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::Parser;
use standalone_apiserver::{Standalone, StandaloneArgs};
use usage::{Measure, Measured, Usage, this_program};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

/// The metrics APIs. `measure` and `load` are called for every request.
fn kinds(
    measure: impl Fn() -> Vec<Measured> + Send + Sync + 'static,
    load: impl Fn() -> Vec<f64> + Send + Sync + 'static,
) -> serde_json::Result<Kinds> {
    let measure: Measure = Arc::new(measure);
    let pods = Arc::new(Usage::of_pods(measure.clone()));
    let nodes = Arc::new(Usage::of_nodes(measure.clone()));
    let kinds = Kinds::new()
        .kind(DirectKind::new(definitions::pods()?, pods))
        .kind(DirectKind::new(definitions::nodes()?, nodes))
        .group_versions(autoscaling::open_files(measure))
        .group_version(autoscaling::load_average(load));
    Ok(kinds)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let kinds = kinds(|| vec![this_program()], autoscaling::this_machine)?;
    if program.standalone.standalone {
        Standalone::new("metrics", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("metrics", kinds).run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
