//! Escape sequences.

use super::{Fault, INVALID_ESCAPE, INVALID_RANGE, Reader, literal, names};

/// A class that matches nothing.
pub(super) const NOTHING: &str = "[^\\x{0}-\\x{10ffff}]";

impl<'a> Reader<'a> {
    /// Reads a backslash outside of classes.
    pub(super) fn escape(&mut self) -> Result<(), Fault> {
        let text = self.rest;
        let written = match text[1..].chars().next() {
            Some('A' | 'z') => text[..2].to_owned(),
            Some(boundary @ ('b' | 'B')) => format!("(?-u:\\{boundary})"),
            Some('C') => return Err(Fault(INVALID_ESCAPE, text[..2].to_owned())),
            Some('Q') => {
                let (quoted, rest) = text[2..].split_once("\\E").unwrap_or((&text[2..], ""));
                self.out.extend(quoted.chars().map(literal));
                self.rest = rest;
                if !quoted.is_empty() {
                    self.atom();
                }
                return Ok(());
            }
            _ => {
                let written = match self.set()? {
                    Some(set) => format!("[{set}]"),
                    // A surrogate is a code point, but not a character of a string.
                    None => char::from_u32(self.escaped()?).map_or(NOTHING.to_owned(), literal),
                };
                self.out.push_str(&written);
                self.atom();
                return Ok(());
            }
        };
        self.out.push_str(&written);
        self.rest = &text[2..];
        self.atom();
        Ok(())
    }

    /// Reads a Perl or Unicode class, if there is one at this position. The result is valid inside of brackets.
    pub(super) fn set(&mut self) -> Result<Option<String>, Fault> {
        let text = self.rest;
        let ascii = match text.as_bytes().get(..2) {
            Some(b"\\d") => "0-9",
            Some(b"\\D") => "[^0-9]",
            Some(b"\\w") => "0-9A-Za-z_",
            Some(b"\\W") => "[^0-9A-Za-z_]",
            Some(b"\\s") => "\\t\\n\\f\\r ",
            Some(b"\\S") => "[^\\t\\n\\f\\r ]",
            Some(b"\\p" | b"\\P") => return self.unicode(text).map(Some),
            _ => return Ok(None),
        };
        self.rest = &text[2..];
        Ok(Some(ascii.to_owned()))
    }

    fn unicode(&mut self, text: &'a str) -> Result<String, Fault> {
        let invalid = |of: &str| Fault(INVALID_RANGE, of.to_owned());
        let (name, length) = match text[2..].chars().next() {
            // Go reads a character here even at the end of the pattern.
            None => ("", text.len()),
            Some('{') => {
                let end = text.find('}').ok_or_else(|| invalid(text))?;
                (&text[3..end], end + 1)
            }
            Some(char) => (&text[2..2 + char.len_utf8()], 2 + char.len_utf8()),
        };
        let (is_negated, name) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let known = names::known(name).ok_or_else(|| invalid(&text[..length]))?;
        let is_negated = is_negated != text.starts_with("\\P");
        self.rest = &text[length..];
        Ok(match (known.as_str(), is_negated) {
            ("cs" | "surrogate", true) => "\\x{0}-\\x{10ffff}".to_owned(),
            ("cs" | "surrogate", false) => NOTHING.to_owned(),
            (known, true) => format!("\\P{{{known}}}"),
            (known, false) => format!("\\p{{{known}}}"),
        })
    }

    /// Reads an escaped code point.
    pub(super) fn escaped(&mut self) -> Result<u32, Fault> {
        let text = self.rest;
        let mut chars = text[1..].chars();
        let Some(first) = chars.next() else {
            return Err(Fault("trailing backslash at end of expression", String::new()));
        };
        let found = match first {
            'a' => Some(0x7),
            'f' => Some(0xc),
            'n' => Some(0xa),
            'r' => Some(0xd),
            't' => Some(0x9),
            'v' => Some(0xb),
            '0'..='7' => {
                let digits = octal(&text[1..]);
                let is_octal = first == '0' || digits.len() > 1;
                chars = text[1 + if is_octal { digits.len() } else { 1 }..].chars();
                u32::from_str_radix(digits, 8).ok().filter(|_| is_octal)
            }
            'x' => hexadecimal(&mut chars),
            char if char.is_ascii() && !char.is_ascii_alphanumeric() => Some(u32::from(char)),
            _ => None,
        };
        let rest = chars.as_str();
        let read = &text[..text.len() - rest.len()];
        self.rest = rest;
        found.ok_or_else(|| Fault(INVALID_ESCAPE, read.to_owned()))
    }
}

/// Up to three octal digits.
fn octal(text: &str) -> &str {
    let count = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    &text[..count]
}

/// The code point of `{1F999}` or `1F`. Invalid digits are also consumed, for the error message.
fn hexadecimal(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let first = chars.next()?;
    if first != '{' {
        // The second digit is consumed even if the first is invalid.
        let second = chars.next()?;
        return Some(first.to_digit(16)? * 16 + second.to_digit(16)?);
    }
    let mut code = None;
    loop {
        match chars.next()? {
            '}' => return code,
            digit => {
                let next = code.unwrap_or(0_u32) * 16 + digit.to_digit(16)?;
                if next > u32::from(char::MAX) {
                    return None;
                }
                code = Some(next);
            }
        }
    }
}
