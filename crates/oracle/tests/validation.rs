//! Checks the lists of kube-apiserver's validation rules, each with the row that compares it.
//!
//! A file in `validation/` lists the rules of a kind, one a line: `RULE => TOPIC: TITLE`, or `RULE => not built:
//! REASON`. `[FUNCTION]` begins the rules of a function of kube-apiserver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use oracle::each;
use oracle::row::{BUILT_IN, parse};

/// Returns the titles of the rows of built-in kinds, by file name.
fn titles() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut titles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (topic, text) in texts("rows", "requests")? {
        let rows = titles.entry(topic.clone()).or_default();
        for text in each::texts(&text)? {
            rows.extend(parse(&topic, &text)?.into_iter().map(|row| row.title));
        }
    }
    Ok(titles)
}

/// Returns the names without extension and the contents of the files of a directory.
fn texts(directory: &str, ending: &str) -> Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = match directory {
        "rows" => root.join("rows").join(BUILT_IN),
        other => root.join(other),
    };
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending) {
            let name = path.file_stem().context("a file has a name")?;
            let text = std::fs::read_to_string(&path)?;
            texts.push((name.to_string_lossy().into_owned(), text));
        }
    }
    Ok(texts)
}

/// Checks a list of rules against the titles of rows, and returns how many rules it has.
fn check(text: &str, titles: &BTreeMap<String, BTreeSet<String>>) -> Result<usize> {
    let mut rules = BTreeSet::new();
    let mut section = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = || format!("line {}: {line}", index + 1);
        if let Some(function) = line.strip_prefix('[') {
            section = Some(function.strip_suffix(']').with_context(at)?);
            continue;
        }
        let (rule, row) = line.split_once(" => ").with_context(at)?;
        let section = section.with_context(|| format!("{}: no section yet", at()))?;
        ensure!(rules.insert((section, rule.trim())), "{}: listed twice", at());
        let (topic, title) = row.split_once(": ").with_context(at)?;
        ensure!(!title.trim().is_empty(), "{}: no row and no reason", at());
        if topic != "not built" {
            let of_topic = titles.get(topic).with_context(|| format!("{}: no such file", at()))?;
            ensure!(of_topic.contains(title), "{}: no such row", at());
        }
    }
    ensure!(!rules.is_empty(), "no rules");
    Ok(rules.len())
}

#[test]
fn every_rule_has_a_row_or_a_reason() -> Result<()> {
    let titles = titles()?;
    for (kind, text) in texts("validation", "txt")? {
        check(&text, &titles).with_context(|| format!("validation/{kind}.txt"))?;
    }
    Ok(())
}

#[test]
fn malformed_lists_are_refused() {
    let titles = BTreeMap::from([("pods".to_owned(), BTreeSet::from(["ports".to_owned()]))]);
    assert_eq!(check("[f]\na: b => pods: ports\nc => not built: x\n", &titles).unwrap(), 2);
    for list in [
        "",
        "[f]\na: b\n",
        "a => pods: ports\n",
        "[f\na => pods: ports\n",
        "[f]\na => pods: none\n",
        "[f]\na => none: ports\n",
        "[f]\na => not built: \n",
        "[f]\na => pods: ports\na => pods: ports\n",
    ] {
        assert!(check(list, &titles).is_err(), "{list}");
    }
}
