//! Links in Markdown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The links of a page that lead to a missing file or heading, as `page: target`.
pub fn broken(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let is_broken = |target: &&str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = resolve(page, file);
        if !path.exists() {
            return true;
        }
        !heading.is_empty() && !headings(&path).contains(heading)
    };
    let describe = |target: &str| format!("{}: {target}", page.display());
    links(&text).iter().copied().filter(is_broken).map(describe).collect()
}

/// The files that a page links to.
pub fn targets(page: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(page).unwrap();
    links(&text).iter().map(|target| resolve(page, target)).collect()
}

/// The targets of the links within the repository.
fn links(text: &str) -> Vec<&str> {
    let prose = prose(text);
    let targets = prose.flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of the headings, as GitHub and mdBook build them.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn resolve(page: &Path, target: &str) -> PathBuf {
    if target.is_empty() {
        return page.to_owned();
    }
    let mut path = page.parent().unwrap().to_owned();
    for part in target.split('/') {
        match part {
            ".." => {
                path.pop();
            }
            "." | "" => {}
            part => path.push(part),
        }
    }
    path
}
