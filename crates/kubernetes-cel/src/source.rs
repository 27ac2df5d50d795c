//! The source of an expression, and errors with a position in it.

/// The largest number of errors that are reported for one expression. Further errors are only counted.
const REPORTED: usize = 100;
/// The longest line that is shown with an error, in bytes.
const LONGEST_EXCERPT: usize = 16_384;

/// A position: a line, which counts from 1, and a column in characters, which counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    line: i64,
    column: i64,
}

impl Place {
    /// The position of an error without a position.
    pub(crate) const NOWHERE: Self = Self { line: -1, column: -1 };
    /// The position of an error in an empty expression.
    pub(crate) const FIRST: Self = Self { line: 1, column: -1 };
}

/// The source of an expression, as characters.
#[derive(Debug)]
pub(crate) struct Source {
    pub chars: Vec<char>,
    /// The offset of the start of each line.
    lines: Vec<usize>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let ends = chars.iter().enumerate().filter(|(_, char)| **char == '\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { chars, lines }
    }

    /// The position of the character at an offset.
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

/// The errors of one expression.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<(Place, String)>,
    count: usize,
}

impl Faults {
    /// Adds an error.
    pub(crate) fn push(&mut self, place: Place, message: String) {
        self.count += 1;
        if self.count <= REPORTED {
            self.found.push((place, message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All errors, each with its line and a mark below it.
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
    // Characters of more than one byte have a wide mark.
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
