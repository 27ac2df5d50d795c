//! The command `backup`: copies the database of a server while the server runs.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use crate::error::StartError;
use crate::progress::Progress;
use crate::storage;

/// The options of the command `backup`.
#[derive(Clone, Debug, clap::Args)]
pub struct BackupOptions {
    /// File to write, which must not exist; - is standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Directory of the server's database
    #[arg(long, value_name = "DIR", env = "DATA_DIR")]
    pub data_dir: PathBuf,
}

impl BackupOptions {
    /// Copies the objects as of one moment, whether a server runs or not. Returns when every row was read back and the
    /// copy is on disk. To restore the copy, put it into an empty directory as `objects.db`, and start a server with
    /// that directory. Returns a line that describes the copy.
    ///
    /// # Errors
    /// The reason, if the directory contains no objects, if they are damaged, or if the file cannot be written.
    pub fn run(&self) -> Result<String, StartError> {
        let progress = Progress::working("copying");
        let copied = if self.file == Path::new("-") {
            if io::stdout().is_terminal() {
                let why =
                    "standard output is a terminal and the backup is binary; redirect it to a file";
                return Err(StartError::Backup(why.to_owned()));
            }
            storage::back_up_to(&self.data_dir, io::stdout().lock())
        } else {
            storage::back_up(&self.data_dir, &self.file)
        };
        drop(progress);
        let copied = copied.map_err(StartError::Backup)?;
        let (rows, newest) = (copied.rows, copied.newest);
        Ok(format!("{rows} objects and changes of the last minutes, up to revision {newest}"))
    }
}
