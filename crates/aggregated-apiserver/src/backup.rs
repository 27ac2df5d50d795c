//! The command `backup`: copies the database of a server while the server runs.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use crate::error::StartError;
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
    /// Copies the objects as they are at one moment, whether a server runs or not. Every row was read
    /// again, and the copy is on the disk, when this returns. It is restored by putting it into an
    /// empty folder as `objects.db`, and starting a server there. Answers with a line that says what
    /// was copied.
    ///
    /// # Errors
    /// When the folder holds no objects, they are damaged, or the file cannot be written.
    pub fn run(&self) -> Result<String, StartError> {
        let copied = if self.file == Path::new("-") {
            if io::stdout().is_terminal() {
                let why = "the standard output is a terminal, and a copy is no text";
                return Err(StartError::Backup(why.to_owned()));
            }
            storage::back_up_to(&self.data_dir, io::stdout().lock())
        } else {
            storage::back_up(&self.data_dir, &self.file)
        };
        let copied = copied.map_err(StartError::Backup)?;
        let (rows, newest) = (copied.rows, copied.newest);
        Ok(format!("{rows} objects and changes of the last minutes, up to revision {newest}"))
    }
}
