//! A file that is begun anew when it is large: what was written is kept under another name for a
//! while, as kube-apiserver does it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

/// When a file is begun anew, and which old ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file.
    pub size: u64,
    /// How long old ones are kept, by the time in their names; `None` for ever.
    pub age: Option<Duration>,
    /// How many old ones are kept; `None` all.
    pub count: Option<usize>,
}

/// A file that is begun anew when it is large.
#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

/// The time in the names of old files, as kube-apiserver writes it.
const FORMAT: &str = "%Y-%m-%dT%H-%M-%S";

impl RotatedFile {
    /// Opens a file, or makes it, to go on at its end.
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, rotation, file, size })
    }

    /// Keeps what was written under another name, and begins anew.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        self.file.flush()?;
        let mut name = old_name(&self.path, now);
        // Two of one millisecond.
        while name.exists() {
            name.as_mut_os_string().push("~");
        }
        fs::rename(&self.path, name)?;
        self.file = open(&self.path)?;
        self.size = 0;
        // What cannot be removed now may be the next time.
        let _ = self.remove_old(now);
        Ok(())
    }

    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let mut old = self.old_files()?;
        old.sort_by(|one, other| other.cmp(one));
        let too_many = self.rotation.count.unwrap_or(usize::MAX);
        let too_old = self.rotation.age.and_then(|age| now.checked_sub(age).ok());
        let too_old = too_old.map(|time| time.strftime(FORMAT).to_string());
        for (index, (time, path)) in old.into_iter().enumerate() {
            if index >= too_many || too_old.as_ref().is_some_and(|too_old| time < *too_old) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
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

impl Write for RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size + line.len() as u64 > self.rotation.size {
            self.rotate(Timestamp::now())?;
        }
        // A line is written whole or not: nothing is buffered.
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Only its owner may read it: there may be secrets in it.
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name of a file before its extension, and the extension with its dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let extension = text(path.extension());
    let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
    (text(path.file_stem()), extension)
}

/// `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.
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
    fn old_files_are_kept_by_count_and_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(folder.path().join("audit-other.log"), "mine").unwrap();
        let rotation = Rotation { size: 10, age: Some(Duration::from_secs(60)), count: Some(2) };
        let mut file = RotatedFile::open(path.clone(), rotation).unwrap();
        file.write_all(b"first\n").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (second, line) in [(1, "b\n"), (2, "c\n"), (3, "d\n")] {
            file.rotate(at(&format!("2026-01-02T03:04:0{second}.5Z"))).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        let second = "audit-2026-01-02T03-04-02.500.log";
        let third = "audit-2026-01-02T03-04-03.500.log";
        assert_eq!(names(folder.path()), [second, third, "audit-other.log", "audit.log"]);
        assert_eq!(fs::read_to_string(folder.path().join(third)).unwrap(), "c\n");
        file.rotate(at("2026-01-02T03:09:00Z")).unwrap();
        let last = "audit-2026-01-02T03-09-00.000.log";
        assert_eq!(names(folder.path()), [last, "audit-other.log", "audit.log"]);
        // What is there already counts.
        file.write_all(b"123456\n").unwrap();
        drop(file);
        let mut file = RotatedFile::open(path.clone(), rotation).unwrap();
        file.write_all(b"7890\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "7890\n");
    }
}
