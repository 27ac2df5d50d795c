//! The command line of farm-operator.

use std::sync::LazyLock;

use aggregated_apiserver::ServeArgs;
use aggregated_apiserver::commands::{
    BackupOptions, DoctorOptions, ManifestOptions, TransferOptions,
};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use standalone_apiserver::StandaloneArgs;

use crate::COMMIT;

/// The output of `--version`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    COMMIT.map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
});

/// The flags and commands of farm-operator. Without a command, the program serves.
#[derive(Parser)]
#[command(
    name = "farm-operator",
    version = VERSION.as_str(),
    about = "Serves llamas and farm pods behind kube-apiserver"
)]
pub struct Program {
    /// The command; `None` serves.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of every server.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// The flags of a server without a cluster.
    #[command(flatten)]
    pub standalone: StandaloneArgs,
}

/// The commands other than serving.
#[derive(Subcommand)]
pub enum Command {
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
    /// Print a script that completes flags and commands in a shell
    Completions(CompletionOptions),
    /// Print the manual page, for `man -l -`
    Man,
}

/// The arguments of `completions`.
#[derive(Args)]
pub struct CompletionOptions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
