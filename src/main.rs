//! farm-operator: serves llamas and farm pods behind kube-apiserver, or without a cluster.

use std::sync::LazyLock;

use aggregated_apiserver::{
    BackupOptions, DoctorOptions, ManifestOptions, ServeArgs, TransferOptions, start_logging,
};
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use standalone_apiserver::{Standalone, StandaloneArgs};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The output of `--version`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    farm_operator::COMMIT.map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
});

#[derive(Parser)]
#[command(version = VERSION.as_str(), about = "Serves llamas and farm pods behind kube-apiserver")]
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
    /// Check an installation in a cluster, and print problems with their remedies
    Doctor(DoctorOptions),
    /// Copy the database of a running server
    Backup(BackupOptions),
    /// Print all stored objects, one in each line
    Export(TransferOptions),
    /// Store the objects of an export, which is read from standard input
    Import(TransferOptions),
    /// Rewrite stored objects with the current encryption key and in the current storage version
    Migrate(TransferOptions),
}

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
