//! Paths of fields: `spec.parts[0].name`.
//!
//! A path is formatted only when there is an error to report. Long names are truncated, because a hundred fields below
//! a name may repeat it.

use std::fmt::{self, Write as _};

/// The longest path that is shown, in bytes.
const LIMIT: usize = 2_048;

/// The position of a value in an object.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The object itself.
    Root,
    /// A field: `spec.name`.
    Member(&'a Path<'a>, &'a str),
    /// The value of a key: `spec.map[key]`.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list: `spec.parts[0]`.
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn write(&self, out: &mut Beginning) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Path::Root, name) => out.write_str(name),
            Self::Member(parent, name) => {
                parent.write(out)?;
                out.write_str(".")?;
                out.write_str(name)
            }
            Self::Key(parent, key) => {
                parent.write(out)?;
                out.write_str("[")?;
                out.write_str(key)?;
                out.write_str("]")
            }
            Self::Item(parent, index) => {
                parent.write(out)?;
                write!(out, "[{index}]")
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Beginning::default();
        // Writing fails when the path is as long as the limit; the path is truncated then.
        let _ = self.write(&mut text);
        f.write_str(&text.0)
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

/// The beginning of a string, truncated to `LIMIT` bytes.
#[derive(Default)]
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(LIMIT.saturating_sub(self.0.len()));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_truncated() {
        let spec = Path::Member(&Path::Root, "spec");
        let map = Path::Member(&spec, "map");
        let value = Path::Key(&map, "a");
        assert_eq!(Path::Item(&value, 7).to_string(), "spec.map[a][7]");
        let long = "\u{e9}".repeat(1_000_000);
        let named = Path::Member(&Path::Member(&spec, &long), &long).to_string();
        assert!(named.starts_with("spec.\u{e9}") && named.len() <= LIMIT, "{}", named.len());
    }
}
