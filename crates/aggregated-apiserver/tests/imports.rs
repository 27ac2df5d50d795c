//! Checks that the modules of the library use each other only as the table in ARCHITECTURE.md allows.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Uses = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table under this heading: the names in the first cell, and those in the second.
fn rows(heading: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once(&format!("## {heading}\n")).unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let names = |cell: &str| cell.split(", ").map(|name| name.replace('`', "")).collect();
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        (names(cells.next().unwrap()), names(cells.next().unwrap()))
    })
    .collect()
}

/// The allowed dependencies of each module.
fn table() -> Uses {
    let mut table = Uses::new();
    for (modules, uses) in rows("Dependencies between modules") {
        let uses: BTreeSet<String> =
            uses.into_iter().filter(|name| name != "no other module").collect();
        table.extend(modules.into_iter().map(|module| (module, uses.clone())));
    }
    table
}

/// Every file of the library, with its module and its code without tests.
fn files() -> Vec<(String, PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&source, &mut found);
    let is_code = |path: &PathBuf| {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        !is_test && !path.ends_with("tests.rs") && !path.ends_with("suite.rs")
    };
    let files = found.into_iter().filter(is_code).map(|path| {
        let relative = path.strip_prefix(&source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs").to_owned();
        let code = fs::read_to_string(&path).unwrap();
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (module, relative.to_owned(), code)
    });
    files.filter(|(module, ..)| module != "lib").collect()
}

/// The modules named behind `crate::`.
fn used(code: &str) -> BTreeSet<String> {
    let named = code.split("crate::").skip(1);
    let names = named.map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

fn code_lines(code: &str) -> impl Iterator<Item = &str> {
    code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"))
}

#[test]
fn module_imports_match_the_table() {
    let table = table();
    let mut actual = Uses::new();
    for (module, path, code) in files() {
        let allowed = table.get(&module).unwrap_or_else(|| panic!("{module} is not in the table"));
        for name in used(&code).into_iter().filter(|name| *name != module) {
            assert!(allowed.contains(&name), "{} may not use {name}", path.display());
            actual.entry(module.clone()).or_default().insert(name);
        }
    }
    for (module, allowed) in &table {
        let used = actual.remove(module).unwrap_or_default();
        assert_eq!(&used, allowed, "the table allows {module} more than it uses");
    }
}

#[test]
fn the_table_has_no_circles() {
    let mut table = table();
    while !table.is_empty() {
        let names: BTreeSet<String> = table.keys().cloned().collect();
        let bottom = table.iter().find(|(_, uses)| uses.is_disjoint(&names));
        let bottom = bottom.map(|(module, _)| module.clone());
        let bottom = bottom.unwrap_or_else(|| panic!("a circle among {names:?}"));
        table.remove(&bottom);
    }
}

#[test]
fn external_crates_are_used_only_by_their_owner_modules() {
    let owners: Vec<(String, Vec<String>)> = rows("Owners of dependencies")
        .into_iter()
        .flat_map(|(names, owners)| names.into_iter().map(move |name| (name, owners.clone())))
        .collect();
    assert!(!owners.is_empty());
    for (module, path, code) in files() {
        for (name, owners) in &owners {
            let uses = code_lines(&code).any(|line| {
                line.starts_with(&format!("use {name}::")) || line.contains(&format!(" {name}::"))
            });
            let is_owner = owners.contains(&module);
            assert!(!uses || is_owner, "{} may not use {name}", path.display());
        }
        let keeps_client = code_lines(&code).any(|line| line.contains("client: Client,"));
        let is_cluster = module == "cluster";
        let is_parameter = module == "server";
        assert!(!keeps_client || is_cluster || is_parameter, "{} keeps a client", path.display());
    }
}

#[test]
fn pure_files_hold_no_async_functions() {
    for (module, path, code) in files() {
        let is_pure = module == "kind" || path.ends_with("watch_cache/window.rs");
        let waits =
            code_lines(&code).any(|line| line.contains("async fn") || line.contains(".await"));
        assert!(!is_pure || !waits, "{} waits", path.display());
    }
}
