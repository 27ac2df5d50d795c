//! A log file that is rotated when it is large. Old files are renamed and removed later, same as in kube-apiserver.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::sink::{self, Sink};
use crate::log_throttle::LogThrottle;

static FAILED: LogThrottle = LogThrottle::at_most(1);

/// The limits for the size of a file, and for the age and the number of old files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The largest size of a file, in bytes.
    pub size: u64,
    /// The largest age of old files, by the time in their names; `None` for no limit.
    pub age: Option<Duration>,
    /// The largest number of old files; `None` for no limit.
    pub count: Option<usize>,
}

/// A log file that is rotated when it is large.
#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
    /// Whether the file ends within a line. The next line must then start on a line of its own.
    is_broken: bool,
    /// The file size at which a failed rotation is repeated, in bytes.
    again_at: u64,
}

/// The number of bytes that are written after a failed rotation before the next attempt, so that not every line costs
/// an attempt.
const AGAIN: u64 = 64 << 10;

/// The format of the time in the names of old files, same as in kube-apiserver.
const FORMAT: &str = "%Y-%m-%dT%H-%M-%S";

impl RotatedFile {
    /// Opens a file to append to it. Creates the file and its directory if they do not exist.
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        fs::create_dir_all(folder(&path))?;
        let file = open(&path)?;
        let size = file.metadata()?.len();
        let is_broken = size > 0 && !ends_a_line(&path, size);
        let file = Self { path, rotation, file, size, is_broken, again_at: 0 };
        file.remove_old(Timestamp::now());
        Ok(file)
    }

    /// Renames the file and creates a new one. If that fails, the current file stays open.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        if !fs::metadata(&self.path).is_ok_and(|file| !file.is_file()) {
            self.replace(now)?;
        }
        // A path that is not a regular file (a device, a pipe) is never large.
        self.size = 0;
        self.again_at = 0;
        Ok(())
    }

    fn replace(&mut self, now: Timestamp) -> io::Result<()> {
        let mut name = old_name(&self.path, now);
        // Another file was rotated in the same millisecond.
        while name.exists() {
            name.as_mut_os_string().push("~");
        }
        let is_kept = match fs::rename(&self.path, &name) {
            Ok(()) => true,
            // Another program has removed or renamed the file.
            Err(why) if why.kind() == io::ErrorKind::NotFound => false,
            Err(why) => return Err(why),
        };
        match open(&self.path) {
            Ok(file) => self.file = file,
            Err(why) => {
                if is_kept {
                    // Further lines must be written under the usual name.
                    let _ = fs::rename(&name, &self.path);
                }
                return Err(why);
            }
        }
        self.is_broken = false;
        self.remove_old(now);
        Ok(())
    }

    /// Writes lines. If a previous write has left an incomplete line because the disk was full, that part becomes a
    /// line of its own.
    fn append(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if self.is_broken {
            if let (_, Err(why)) = sink::write(&mut self.file, b"\n") {
                return (0, Err(why));
            }
            self.size += 1;
            self.is_broken = false;
        }
        let (taken, result) = sink::write(&mut self.file, lines);
        self.size += taken as u64;
        // A full disk may accept only a part of the lines.
        let last = taken.checked_sub(1).and_then(|last| lines.get(last));
        self.is_broken = last.is_some_and(|last| *last != b'\n');
        (taken, result)
    }

    /// Removes old files that exceed the limits of age and number. Files that cannot be removed now are tried again at
    /// the next rotation.
    fn remove_old(&self, now: Timestamp) {
        let mut old = self.old_files().unwrap_or_default();
        old.sort_by(|one, other| other.cmp(one));
        let too_many = self.rotation.count.unwrap_or(usize::MAX);
        let too_old = self.rotation.age.and_then(|age| now.checked_sub(age).ok());
        let too_old = too_old.map(|time| time.strftime(FORMAT).to_string());
        for (index, (time, path)) in old.into_iter().enumerate() {
            if index >= too_many || too_old.as_ref().is_some_and(|too_old| time < *too_old) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// The old files, with the times in their names.
    fn old_files(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let (stem, extension) = parts(&self.path);
        let folder = folder(&self.path);
        let mut old = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let time = name.strip_prefix(&format!("{stem}-"));
            let time = time.and_then(|rest| rest.trim_end_matches('~').strip_suffix(&extension));
            if let Some(time) = time
                && jiff::civil::DateTime::strptime(format!("{FORMAT}.%f"), time).is_ok()
            {
                old.push((time.to_owned(), path.clone()));
            }
        }
        Ok(old)
    }
}

impl Sink for RotatedFile {
    fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let next = self.size.saturating_add(lines.len() as u64);
        let is_large = self.size > 0 && next > self.rotation.size;
        if is_large
            && self.size >= self.again_at
            && let Err(why) = self.rotate(Timestamp::now())
        {
            // A log that is too large is better than no log.
            self.again_at = self.size.saturating_add(AGAIN);
            FAILED.log(|suppressed| {
                tracing::warn!(
                    suppressed,
                    error = %why,
                    "cannot rotate the audit log; the file grows"
                );
            });
        }
        self.append(lines)
    }
}

/// Whether the last byte of a file ends a line. If the file cannot be read, its last line is assumed to be complete.
fn ends_a_line(path: &Path, size: u64) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(size.saturating_sub(1)))?;
        let mut last = [b'\n'];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    last().map_or(true, |last| last == b'\n')
}

/// Only the owner can read the file, because it can contain secrets.
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Splits the name of a file into its stem, and its extension with the dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let extension = text(path.extension());
    let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
    (text(path.file_stem()), extension)
}

/// Returns the name of an old file: `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.
fn old_name(path: &Path, now: Timestamp) -> PathBuf {
    let (stem, extension) = parts(path);
    let milliseconds = now.subsec_millisecond();
    let time = now.strftime(FORMAT);
    folder(path).join(format!("{stem}-{time}.{milliseconds:03}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn old_audit_files_are_deleted_by_count_and_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(folder.path().join("audit-other.log"), "mine").unwrap();
        let rotation = Rotation { size: 10, age: Some(Duration::from_secs(60)), count: Some(2) };
        let mut file = RotatedFile::open(path.clone(), rotation).unwrap();
        file.put(b"first\n").1.unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (second, line) in [(1, "b\n"), (2, "c\n"), (3, "d\n")] {
            file.rotate(at(&format!("2026-01-02T03:04:0{second}.5Z"))).unwrap();
            file.put(line.as_bytes()).1.unwrap();
        }
        let second = "audit-2026-01-02T03-04-02.500.log";
        let third = "audit-2026-01-02T03-04-03.500.log";
        assert_eq!(names(folder.path()), [second, third, "audit-other.log", "audit.log"]);
        assert_eq!(fs::read_to_string(folder.path().join(third)).unwrap(), "c\n");
        file.rotate(at("2026-01-02T03:09:00Z")).unwrap();
        let last = "audit-2026-01-02T03-09-00.000.log";
        assert_eq!(names(folder.path()), [last, "audit-other.log", "audit.log"]);
        // The existing content counts for the size.
        file.put(b"123456\n").1.unwrap();
        drop(file);
        let mut file = RotatedFile::open(path.clone(), rotation).unwrap();
        file.put(b"7890\n").1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "7890\n");
    }

    fn small(path: &Path) -> RotatedFile {
        let rotation = Rotation { size: 10, age: None, count: None };
        RotatedFile::open(path.to_owned(), rotation).unwrap()
    }

    #[test]
    fn a_deleted_audit_file_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/audit.log");
        let mut file = small(&path);
        file.put(b"first line\n").1.unwrap();
        fs::remove_file(&path).unwrap();
        file.put(b"second line\n").1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second line\n");
    }

    #[test]
    fn a_failed_audit_rotation_loses_no_lines_and_is_retried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log/audit.log");
        let mut file = small(&path);
        file.put(b"first line\n").1.unwrap();
        // Neither renaming nor creating the file is possible, because its directory is replaced by a file.
        let aside = folder.path().join("aside");
        fs::rename(folder.path().join("log"), &aside).unwrap();
        fs::write(folder.path().join("log"), "no folder").unwrap();
        file.put(b"second line\n").1.unwrap();
        let kept = aside.join("audit.log");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "first line\nsecond line\n");
        fs::remove_file(folder.path().join("log")).unwrap();
        fs::rename(&aside, folder.path().join("log")).unwrap();
        file.again_at = 0;
        file.put(b"third line\n").1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third line\n");
        assert_eq!(names(&folder.path().join("log")).len(), 2);
    }

    #[test]
    fn an_audit_log_on_a_device_is_not_rotated() {
        let rotation = Rotation { size: 10, age: None, count: None };
        let mut file = RotatedFile::open(PathBuf::from("/dev/null"), rotation).unwrap();
        for _ in 0..3 {
            file.put(b"a long line\n").1.unwrap();
        }
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn half_a_line_stays_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, "half").unwrap();
        let rotation = Rotation { size: 100, age: None, count: None };
        let mut file = RotatedFile::open(path.clone(), rotation).unwrap();
        file.put(b"whole\n").1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "half\nwhole\n");
    }
}
