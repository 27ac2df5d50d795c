//! What the program does to its files, step by step, and what is left of them when the power goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Pages of the system, which reach a disk one by one.
const PAGE: usize = 4_096;
/// A disk writes so many bytes whole.
const SECTOR: usize = 512;

/// A library that notes what a process does to its files.
pub struct Recorder(PathBuf);

/// How a process is watched.
pub struct Recording<'a> {
    /// Its folder for objects.
    pub folder: &'a Path,
    /// Where it is noted.
    pub record: &'a Path,
    /// Which step fails, and all after it, with which error number.
    pub failure: Option<(usize, i32)>,
}

impl Recorder {
    /// Builds it in a folder; nothing where there is no C compiler.
    pub fn build(folder: &Path) -> Result<Option<Self>> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/recorder.c");
        let library = folder.join("recorder.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        let Ok(built) = command.args(["-ldl", "-lpthread"]).output() else { return Ok(None) };
        ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Ok(Some(Self(library)))
    }

    /// Has the process of a command watched.
    pub fn watch(&self, command: &mut Command, recording: &Recording<'_>) {
        command.env("LD_PRELOAD", &self.0);
        command.env("RECORDED_FOLDER", recording.folder).env("RECORD", recording.record);
        if let Some((step, error)) = recording.failure {
            command.env("FAIL_STEP", step.to_string()).env("FAIL_ERROR", error.to_string());
        }
    }
}

/// A step.
enum Step {
    Write { offset: usize, content: Vec<u8> },
    Cut { length: usize },
    Sync,
    Remove,
}

/// What a process has done to its files.
pub struct Record {
    /// Each step with its file, and where it ends in what was noted.
    steps: Vec<(u64, String, Step)>,
}

/// How much of it has been noted until now.
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
            // It may have been killed while it noted something.
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

    /// Where a step ends.
    pub fn end_of(&self, step: usize) -> u64 {
        self.steps[step].0
    }

    /// Makes the files as they may be if the power goes after a step: what was synced is there, and
    /// of the rest any pages, some of them torn. The disk may have lied about the last `lies` steps: it
    /// has synced nothing of them.
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

/// A file: what is on the disk, and what was done since.
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

/// Numbers that are the same for the same seed.
pub struct Random(pub u64);

impl Random {
    /// One below so many.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
