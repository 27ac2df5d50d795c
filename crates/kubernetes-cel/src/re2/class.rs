//! Character classes in brackets.

use super::escape::NOTHING;
use super::{Fault, INVALID_RANGE, Reader, literal};

/// The names of POSIX classes.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

impl Reader<'_> {
    /// Reads a class.
    pub(super) fn class(&mut self) -> Result<(), Fault> {
        let whole = self.rest;
        self.take(1);
        if self.rest.starts_with('^') {
            self.take(1);
        }
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if let Some(named) = self.rest.strip_prefix("[:")
                && let Some(end) = named.find(":]")
            {
                let name = named[..end].strip_prefix('^').unwrap_or(&named[..end]);
                if !NAMED.contains(&name) {
                    return Err(Fault(INVALID_RANGE, self.rest[..end + 4].to_owned()));
                }
                self.take(end + 4);
            } else if let Some(set) = self.set()? {
                self.out.push_str(&set);
            } else {
                self.range(whole)?;
            }
        }
        self.take(1);
        self.atom();
        Ok(())
    }

    /// Reads a character, or a range of characters.
    fn range(&mut self, whole: &str) -> Result<(), Fault> {
        let range = self.rest;
        let low = self.class_char(whole)?;
        let has_high =
            self.rest.len() > 1 && self.rest.starts_with('-') && !self.rest.starts_with("-]");
        if !has_high {
            self.out.push_str(&char::from_u32(low).map_or(NOTHING.to_owned(), literal));
            return Ok(());
        }
        self.rest = &self.rest[1..];
        let high = self.class_char(whole)?;
        if high < low {
            let range = &range[..range.len() - self.rest.len()];
            return Err(Fault(INVALID_RANGE, range.to_owned()));
        }
        // Surrogates are code points, but not characters of a string.
        let low = char::from_u32(low).unwrap_or('\u{e000}');
        let high = char::from_u32(high).unwrap_or('\u{d7ff}');
        self.out.push_str(&match low <= high {
            true => format!("{}-{}", literal(low), literal(high)),
            false => NOTHING.to_owned(),
        });
        Ok(())
    }

    /// Reads a code point of a class.
    fn class_char(&mut self, whole: &str) -> Result<u32, Fault> {
        match self.rest.chars().next() {
            None => Err(Fault("missing closing ]", whole.to_owned())),
            Some('\\') => self.escaped(),
            Some(char) => {
                self.rest = &self.rest[char.len_utf8()..];
                Ok(u32::from(char))
            }
        }
    }
}
