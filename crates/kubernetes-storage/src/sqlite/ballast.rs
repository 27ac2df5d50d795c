//! Ballast: room on the disk that is held for what makes room. To remove an object needs some, too.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

const FILE: &str = "ballast";
/// More than thousands of deletions take that come one by one, and the log that they are written to.
pub(super) const BYTES: u64 = 32 << 20;

/// Room that is held by a file of nothing.
pub(super) struct Ballast(PathBuf);

impl Ballast {
    /// That of a folder, if it has some.
    pub fn in_folder(folder: &Path) -> Self {
        Self(folder.join(FILE))
    }

    /// Takes the room, or goes on holding it.
    ///
    /// # Errors
    /// When there is not so much of it. None is held then.
    pub fn take(&self) -> io::Result<()> {
        let taken = self.hold();
        match taken {
            // Of a file system that cannot promise room none is asked for.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(error) => {
                self.give_up();
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn hold(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(&self.0)?;
        // Blocks are of 512 bytes, whatever the file system has.
        if file.metadata()?.blocks() * 512 >= BYTES {
            return Ok(());
        }
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }

    /// Lets go of the room; whether there was some.
    pub fn give_up(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_and_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let ballast = Ballast::in_folder(folder.path());
        assert!(!ballast.give_up());
        for _ in 0..2 {
            ballast.take().unwrap();
            assert!(fs::metadata(folder.path().join(FILE)).is_ok());
        }
        assert!(ballast.give_up());
        assert!(!ballast.give_up());
        assert!(Ballast::in_folder(&folder.path().join("absent")).take().is_err());
    }
}
