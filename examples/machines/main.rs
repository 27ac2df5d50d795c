//! Serves machines, which are stored objects, and subresources that start them, follow their logs, open their consoles,
//! execute commands, forward ports and upload images. The machines are simulated in this process.

mod device;
mod subresources;

use aggregated_apiserver::{ApiServer, ServeArgs, start_logging};
use clap::Parser;
use standalone_apiserver::{Standalone, StandaloneArgs};
use subresources::kinds;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    if program.standalone.standalone {
        Standalone::new("machines", kinds()).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("machines", kinds()).run(&program.serve).await?;
    }
    Ok(())
}
