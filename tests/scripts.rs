//! Scripts: requests and their exact responses, in this process and without sockets.
//!
//! Each file in `tests/scripts` is a test. It starts with its purpose, then come the steps; see
//! `tests/scripts/script.rs`. Clock, uids and the tag of revisions are fixed, so every response is exact, to the byte.
//! After an intended change, `BLESS=1 cargo test --test scripts` updates the responses.

#[path = "scripts/fake_cluster.rs"]
mod fake_cluster;
#[path = "scripts/script.rs"]
mod script;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let files = fs::read_dir(&folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "script"));
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", folder.display());
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || run(&file))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn run(file: &Path) -> Result<(), Failed> {
    let expected = fs::read_to_string(file)?;
    let played = script::play(&expected)?;
    if played == expected {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, played)?;
        return Ok(());
    }
    let lines = expected.lines().zip(played.lines()).enumerate();
    let first = lines.clone().find(|(_, (expected, played))| expected != played);
    let difference = match first {
        Some((index, (expected, played))) => {
            format!("line {}\nexpected: {expected}\nanswered: {played}", index + 1)
        }
        None => "one is longer than the other".to_owned(),
    };
    Err(format!("{}: {difference}", file.display()).into())
}
