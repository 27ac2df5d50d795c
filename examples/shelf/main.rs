//! Serves the rows of a SQLite table as objects. Other programs may change the table, too.

mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs, start_logging};
use clap::Parser;
use kube::CustomResourceExt;
use standalone_apiserver::{Standalone, StandaloneArgs};
use table::{Book, Table};

/// The interval at which changes of other programs are looked for.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Program {
    /// The SQLite database with the table `books`
    #[arg(long, value_name = "FILE", default_value = "shelf.sqlite")]
    database: PathBuf,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

/// The kind whose objects are the rows of this database.
fn kinds(database: &Path) -> rusqlite::Result<Kinds> {
    let table = Arc::new(Table::open(database)?);
    let books = VirtualKind::polled(Book::crd(), table, INTERVAL).create().update().delete();
    Ok(Kinds::new().kind(books))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    start_logging(&program.serve);
    let kinds = kinds(&program.database)?;
    if program.standalone.standalone {
        Standalone::new("shelf", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        ApiServer::new("shelf", kinds).run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
