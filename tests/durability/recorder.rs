//! Records the file operations of the program step by step, and reconstructs the files after a power failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use test_cluster::preloaded_library;

/// The page size of the system, in bytes. Pages reach a disk one by one.
const PAGE: usize = 4_096;
/// The sector size of a disk, in bytes. A sector is written atomically.
const SECTOR: usize = 512;

/// A library that records the file operations of a process.
pub struct Recorder(PathBuf);

/// The options of a recording.
pub struct Recording<'a> {
    /// The directory of objects.
    pub folder: &'a Path,
    /// The file that receives the record.
    pub record: &'a Path,
    /// The number of the first step that fails, together with all later ones, and the error number.
    pub failure: Option<(usize, i32)>,
}

impl Recorder {
    /// Builds the library in a directory.
    pub fn build(folder: &Path) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/recorder.c");
        Ok(Self(preloaded_library(&source, folder)?))
    }

    /// Configures a command so that its process is recorded.
    pub fn watch(&self, command: &mut Command, recording: &Recording<'_>) {
        command.env("LD_PRELOAD", &self.0);
        command.env("RECORDED_FOLDER", recording.folder).env("RECORD", recording.record);
        if let Some((step, error)) = recording.failure {
            command.env("FAIL_STEP", step.to_string()).env("FAIL_ERROR", error.to_string());
        }
    }
}

/// A file operation.
enum Step {
    Write { offset: usize, content: Vec<u8> },
    Cut { length: usize },
    Sync,
    Remove,
}

/// The file operations of a process.
pub struct Record {
    /// Each step with its file, and the position in the record at which it ends.
    steps: Vec<(u64, String, Step)>,
}

/// The current length of the record.
pub fn length(record: &Path) -> Result<u64> {
    Ok(std::fs::metadata(record)?.len())
}

impl Record {
    pub fn read(record: &Path) -> Result<Self> {
        let noted = std::fs::read(record)?;
        let (mut rest, mut steps) = (&noted[..], Vec::new());
        while let Some((head, after)) = rest.split_first_chunk::<32>() {
            let number = |index: usize| -> Result<usize> {
                let bytes: [u8; 8] = head[8 * index..8 * index + 8].try_into()?;
                Ok(usize::try_from(u64::from_ne_bytes(bytes))?)
            };
            let (offset, length) = (number(2)?, number(3)?);
            // The process may have been killed while it wrote the record.
            let Some((name, after)) = after.split_at_checked(number(1)?) else { break };
            let Some((content, after)) = after.split_at_checked(length) else { break };
            let step = match head[0] {
                b'w' => Step::Write { offset, content: content.to_vec() },
                b't' => Step::Cut { length: offset },
                b's' => Step::Sync,
                _ => Step::Remove,
            };
            rest = after;
            let end = (noted.len() - rest.len()) as u64;
            steps.push((end, String::from_utf8(name.to_vec())?, step));
        }
        Ok(Self { steps })
    }

    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// The position at which a step ends.
    pub fn end_of(&self, step: usize) -> u64 {
        self.steps[step].0
    }

    /// Writes the files as they may be after a power failure behind a step. Synced data is complete; of the rest, any
    /// pages may be missing, and some may be torn. The disk may have lied about the last `lies` steps, in which case it
    /// has synced none of them.
    pub fn lose_power(
        &self,
        step: usize,
        random: &mut Random,
        lies: usize,
        folder: &Path,
    ) -> Result<()> {
        let mut files: BTreeMap<&str, File> = BTreeMap::new();
        let until = step.saturating_sub(lies);
        for (index, (_, name, step)) in self.steps[..=step].iter().enumerate() {
            let file = files.entry(name).or_default();
            match step {
                Step::Sync if index > until => {}
                Step::Sync => file.sync(),
                Step::Remove => *file = File { is_removed: true, ..File::default() },
                step => {
                    file.is_removed = false;
                    file.unsynced.push(step);
                }
            }
        }
        std::fs::create_dir_all(folder).context("a folder")?;
        for (name, file) in files {
            if !file.is_removed {
                std::fs::write(folder.join(name), file.lose_power(random))?;
            }
        }
        Ok(())
    }
}

/// A file: its contents on the disk, and the operations since the last sync.
#[derive(Default)]
struct File<'a> {
    synced: Vec<u8>,
    unsynced: Vec<&'a Step>,
    is_removed: bool,
}

impl File<'_> {
    fn sync(&mut self) {
        for step in std::mem::take(&mut self.unsynced) {
            apply(&mut self.synced, step);
        }
    }

    fn lose_power(mut self, random: &mut Random) -> Vec<u8> {
        for step in std::mem::take(&mut self.unsynced) {
            let Step::Write { offset, content } = step else {
                if random.below(2) == 0 {
                    apply(&mut self.synced, step);
                }
                continue;
            };
            let (mut offset, mut content) = (*offset, &content[..]);
            while !content.is_empty() {
                let length = (PAGE - offset % PAGE).min(content.len());
                let (page, after) = content.split_at(length);
                match random.below(8) {
                    0 => page.chunks(SECTOR).enumerate().for_each(|(index, sector)| {
                        if random.below(2) == 0 {
                            put(&mut self.synced, offset + index * SECTOR, sector);
                        }
                    }),
                    1..=4 => put(&mut self.synced, offset, page),
                    _ => {}
                }
                (offset, content) = (offset + length, after);
            }
        }
        self.synced
    }
}

fn apply(content: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { offset, content: written } => put(content, *offset, written),
        Step::Cut { length } => content.resize(*length, 0),
        Step::Sync | Step::Remove => {}
    }
}

fn put(content: &mut Vec<u8>, offset: usize, written: &[u8]) {
    let end = offset + written.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(written);
}

/// Reproducible random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    /// A random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
