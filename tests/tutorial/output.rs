//! Printed text, compared with the text on the page.

/// Whether the printed text is the expected one. An empty expectation allows any text. The names of temporary
/// directories and the port may differ, and so may the number of spaces.
pub fn is_alike(expected: &str, printed: &str) -> bool {
    expected.trim().is_empty() || lines(expected) == lines(printed)
}

fn lines(text: &str) -> Vec<String> {
    text.trim().lines().map(line).collect()
}

fn line(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.split_once("/standalone-") {
        Some((before, _)) if before.ends_with("/tmp") => "KUBECONFIG=…",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}
