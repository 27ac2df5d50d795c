//! Printed text, compared with the text on the page.

/// Whether the printed text is the expected one. An empty expectation allows any text. Ages, spaces and empty
/// lines may differ.
pub fn is_alike(expected: &str, printed: &str) -> bool {
    expected.trim().is_empty() || lines(expected) == lines(printed)
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

fn line(line: &str) -> String {
    let words = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a word is an age in seconds or days, such as `3s` or `(326d`.
fn is_age(word: &str) -> bool {
    let number = word.trim_start_matches('(').trim_end_matches(['s', 'd']);
    number.len() < word.trim_start_matches('(').len() && number.parse::<u32>().is_ok()
}
