//! Reserved disk space for writes that free memory, such as removals. These writes need disk space, too.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

const FILE: &str = "ballast";
/// The size of the reserved space, in bytes. It is more than thousands of single deletions need, including the log of
/// SQLite.
pub(super) const BYTES: u64 = 32 << 20;

/// Disk space that an empty file reserves.
pub(super) struct ReservedSpace(PathBuf);

impl ReservedSpace {
    /// Creates the handle of the reserved space in a directory. It reserves nothing yet.
    pub fn in_folder(folder: &Path) -> Self {
        Self(folder.join(FILE))
    }

    /// Reserves the space, if it is not reserved already.
    ///
    /// # Errors
    /// If the disk has too little space. Then no space is reserved.
    pub fn take(&self) -> io::Result<()> {
        let taken = self.hold();
        match taken {
            // A file system that cannot reserve space is used without reserved space.
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
        // `blocks` counts blocks of 512 bytes on every file system.
        if file.metadata()?.blocks() * 512 >= BYTES {
            return Ok(());
        }
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }

    /// Releases the space. Returns whether some was reserved.
    pub fn give_up(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_disk_space_is_created_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let reserved_space = ReservedSpace::in_folder(folder.path());
        assert!(!reserved_space.give_up());
        for _ in 0..2 {
            reserved_space.take().unwrap();
            assert!(fs::metadata(folder.path().join(FILE)).is_ok());
        }
        assert!(reserved_space.give_up());
        assert!(!reserved_space.give_up());
        assert!(ReservedSpace::in_folder(&folder.path().join("absent")).take().is_err());
    }
}
