//! The `--help` output: each flag is in a group, and has a description with its default.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::process::Command;

/// The flags of `--help`: the group, the syntax, and the description.
fn flags() -> Vec<(String, String, String)> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    let output = program.arg("--help").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let (mut group, mut flags) = (String::new(), Vec::<(String, String, String)>::new());
    for line in printed.lines() {
        let text = line.trim_start();
        if !line.starts_with(' ') && line.ends_with(':') {
            group = line.trim_end_matches(':').to_owned();
        } else if text.starts_with('-') && line.len() - text.len() <= 6 {
            flags.push((group.clone(), text.to_owned(), String::new()));
        } else if let Some((_, _, said)) = flags.last_mut() {
            *said += text;
        }
    }
    flags
}

#[test]
fn every_flag_is_in_a_group() {
    let flags = flags();
    assert!(flags.len() > 40, "{flags:?}");
    let alone: Vec<&str> = flags
        .iter()
        .filter(|(group, ..)| group == "Options")
        .map(|(_, flag, _)| flag.as_str())
        .collect();
    assert_eq!(alone, ["-h, --help", "-V, --version"]);
}

#[test]
fn help_of_flags_with_a_unit_documents_the_default() {
    let is_measured = |flag: &str| {
        ["<MIB>", "<COUNT>", "<PERCENT>", "<DURATION>", "<LEVEL>"]
            .iter()
            .any(|unit| flag.contains(unit))
    };
    let flags = flags();
    let measured: Vec<_> = flags.iter().filter(|(_, flag, _)| is_measured(flag)).collect();
    assert!(measured.len() >= 9, "{measured:?}");
    for (_, flag, said) in measured {
        assert!(said.contains("[default: ") || said.contains("By default"), "{flag}: {said}");
    }
}

#[test]
fn the_program_in_the_readme_is_an_example_that_compiles() {
    let example = include_str!("../crates/aggregated-apiserver/examples/stored.rs");
    let program = example.split_once("\n\n").unwrap().1;
    let readme = include_str!("../README.md");
    assert!(readme.contains(&format!("```rust\n{program}```\n")), "expected:\n{program}");
}
