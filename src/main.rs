//! farm-operator: serves llamas and farm pods behind kube-apiserver, or without a cluster.

use aggregated_apiserver::start_logging;
use clap::{CommandFactory, Parser};
use farm_operator::{Command, Program};
use mimalloc::MiMalloc;
use standalone_apiserver::Standalone;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    match program.command {
        Some(Command::Manifests(options)) => {
            print!("{}", farm_operator::server().manifests(&options)?);
        }
        Some(Command::Doctor(options)) => {
            let (diagnosis, exit_code) = options.run(&farm_operator::server()).await?;
            print!("{diagnosis}");
            std::process::exit(exit_code);
        }
        Some(Command::Backup(options)) => eprintln!("copied {}", options.run()?),
        Some(Command::Export(options)) => {
            let exported = options.export(farm_operator::NAME, std::io::stdout().lock()).await?;
            eprintln!("exported {exported}");
        }
        Some(Command::Import(options)) => {
            let imported = options.import(farm_operator::NAME, std::io::stdin().lock()).await?;
            eprintln!("imported {imported}");
        }
        Some(Command::Migrate(options)) => {
            eprintln!("written again: {}", options.migrate(&farm_operator::server()).await?);
        }
        Some(Command::Completions(options)) => {
            let mut script = Vec::new();
            let mut command = Program::command();
            clap_complete::generate(options.shell, &mut command, farm_operator::NAME, &mut script);
            print!("{}", String::from_utf8(script)?);
        }
        Some(Command::Man) => {
            clap_mangen::Man::new(Program::command()).render(&mut std::io::stdout())?;
        }
        None if program.standalone.standalone => {
            start_logging(&program.serve);
            let server = Standalone::new(farm_operator::NAME, farm_operator::kinds());
            server.run(&program.serve, &program.standalone).await?;
        }
        None => {
            start_logging(&program.serve);
            farm_operator::server().run(&program.serve).await?;
        }
    }
    Ok(())
}
