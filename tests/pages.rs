//! The pages of `docs/`: their links lead somewhere, the table of contents has all of them, and the pages of the
//! reference are equal to what the program and the chart contain.
//!
//! `BLESS=1 cargo test --test pages` writes the generated pages.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "pages/chart.rs"]
mod chart;
#[path = "pages/flags.rs"]
mod flags;
#[path = "pages/links.rs"]
mod links;
#[path = "pages/recording.rs"]
mod recording;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kubernetes_objects::error::Reason;

/// The directory of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files with Markdown text: of the root, of `docs/`, and the README of each crate.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut directories = vec![root().to_owned(), root().join("docs"), root().join("crates")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && directory != root() && path.file_name().unwrap() != "src" {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Compares a generated page with the file, or writes the file if `BLESS` is set.
fn assert_generated(file: &str, expected: &str) {
    let path = root().join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{file} is out of date: BLESS=1 cargo test --test pages");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let broken: Vec<String> = pages().iter().flat_map(|page| links::broken(page)).collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_table_of_contents_has_every_page_of_the_book() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links::targets(&summary).into_iter().collect();
    let is_page = |page: &PathBuf| page.starts_with(&docs) && *page != summary;
    let existing: BTreeSet<PathBuf> = pages().into_iter().filter(is_page).collect();
    assert_eq!(listed, existing);
}

#[test]
fn the_page_of_flags_is_generated_from_the_program() {
    assert_generated("docs/reference/flags.md", &flags::page());
}

#[test]
fn the_page_of_chart_values_is_generated_from_the_chart() {
    assert_generated("docs/reference/chart.md", &chart::page());
}

#[test]
fn the_page_of_errors_has_every_reason_with_its_code() {
    let page = include_str!("../docs/reference/errors.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let code: u16 = cells.next()?.parse().ok()?;
        Some((code, cells.next()?.trim_matches('`')))
    });
    let expected = Reason::ALL.map(|reason| (reason.code(), reason.word()));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn the_recording_is_the_transcript_of_the_readme() {
    let readme = include_str!("../README.md");
    assert_generated("docs/images/kubectl.svg", &recording::svg(readme));
}
