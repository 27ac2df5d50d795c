//! The page of the chart's values.

use std::fmt::Write;

/// The page, as Markdown: a row for each value, with the comment above it in `values.yaml`.
pub fn page() -> String {
    let values = include_str!("../../chart/values.yaml");
    let mut page = "# Values of the chart\n\n\
        This page lists the values of the Helm chart in `chart/`, with their defaults.\n\n\
        | value | default | description |\n|---|---|---|\n"
        .to_owned();
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut comment = String::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(words) = text.strip_prefix("# ") {
            comment.push_str(if comment.is_empty() { "" } else { " " });
            comment.push_str(words);
        } else if let Some((key, default)) = text.split_once(':') {
            path.retain(|(outer, _)| *outer < indent);
            path.push((indent, key));
            let name = path.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
            let default = default.trim();
            if !default.is_empty() || !comment.is_empty() {
                let default =
                    if default.is_empty() { String::new() } else { format!("`{default}`") };
                let description = comment.replace('|', "\\|");
                writeln!(page, "| `{name}` | {default} | {description} |").unwrap();
            }
            comment.clear();
        } else {
            comment.clear();
        }
    }
    page
}
