//! The text of an expression, and faults that point into it.

/// At most this many faults of one expression are told; the others are counted.
const REPORTED: usize = 100;
/// Of longer lines no excerpt is shown.
const LONGEST_EXCERPT: usize = 16_384;

/// Where something stands: a line from 1 on, and a column, in characters, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    line: i64,
    column: i64,
}

impl Place {
    /// Of a fault that is nowhere.
    pub(crate) const NOWHERE: Self = Self { line: -1, column: -1 };
    /// Of a fault in an empty text.
    pub(crate) const FIRST: Self = Self { line: 1, column: -1 };
}

/// The text of an expression, by characters.
#[derive(Debug)]
pub(crate) struct Source {
    pub chars: Vec<char>,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let ends = chars.iter().enumerate().filter(|(_, char)| **char == '\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { chars, lines }
    }

    /// Where the character of this number stands.
    pub(crate) fn place(&self, offset: usize) -> Place {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        Place { line: line as i64, column: (offset - start) as i64 }
    }

    fn line(&self, line: i64) -> Option<&[char]> {
        let line = usize::try_from(line).ok()?.checked_sub(1)?;
        if self.chars.is_empty() {
            return None;
        }
        let start = *self.lines.get(line)?;
        let end = self.lines.get(line + 1).map_or(self.chars.len(), |next| next - 1);
        self.chars.get(start..end)
    }
}

/// Faults of one expression.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<(Place, String)>,
    count: usize,
}

impl Faults {
    /// Tells of one more.
    pub(crate) fn push(&mut self, place: Place, message: String) {
        self.count += 1;
        if self.count <= REPORTED {
            self.found.push((place, message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, each with the line it is in and a mark below it.
    pub(crate) fn show(mut self, source: &Source) -> String {
        self.found.sort_by_key(|(place, _)| *place);
        let mut lines: Vec<String> =
            self.found.iter().map(|(place, message)| show(*place, message, source)).collect();
        if self.count > REPORTED {
            lines.push(format!("{} more errors were truncated", self.count - REPORTED));
        }
        lines.join("\n")
    }
}

fn show(place: Place, message: &str, source: &Source) -> String {
    let mut text = format!("ERROR: <input>:{}:{}: {message}", place.line, place.column + 1);
    let Some(line) = source.line(place.line) else { return text };
    let excerpt: String = line.iter().map(|char| if *char == '\t' { ' ' } else { *char }).collect();
    if excerpt.len() > LONGEST_EXCERPT {
        return text;
    }
    // Characters of more than one byte are shown as wide.
    let is_wide = |char: &char| char.len_utf8() > 1;
    let column = usize::try_from(place.column).unwrap_or_default();
    let dots = line.iter().take(column).map(|char| if is_wide(char) { '\u{ff0e}' } else { '.' });
    let mark = if line.get(column).is_some_and(is_wide) { '\u{ff3e}' } else { '^' };
    text.push_str("\n | ");
    text.push_str(&excerpt);
    text.push_str("\n | ");
    text.extend(dots);
    text.push(mark);
    text
}
