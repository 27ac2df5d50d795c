//! Patterns of texts: written for RE2, matched by a library that speaks nearly
//! the same language.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// How large a pattern may become when it is compiled, in bytes.
const SIZE_LIMIT: usize = 1 << 20;

/// A pattern that a text must match somewhere.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; nothing if it says what is not understood here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let translated = translate(text)?;
        let regex = RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).build().ok()?;
        Some(Self { text: text.to_owned(), regex })
    }

    /// Whether a text matches somewhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The same pattern for this library: the classes of RE2 are of ASCII, and a
/// class in it holds no classes and no operators.
fn translate(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut in_class = false;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(escaped) = rest.strip_prefix('\\') {
            let name = escaped.chars().next()?;
            let ascii = match (name, in_class) {
                ('d', false) => Some("[0-9]"),
                ('d', true) => Some("0-9"),
                ('D', _) => Some("[^0-9]"),
                ('w', false) => Some("[0-9A-Za-z_]"),
                ('w', true) => Some("0-9A-Za-z_"),
                ('W', _) => Some("[^0-9A-Za-z_]"),
                ('s', false) => Some("[\\t\\n\\f\\r ]"),
                ('s', true) => Some("\\t\\n\\f\\r "),
                ('S', _) => Some("[^\\t\\n\\f\\r ]"),
                ('b', false) => Some("(?-u:\\b)"),
                _ => None,
            };
            match ascii {
                Some(ascii) => out.push_str(ascii),
                None => {
                    out.push('\\');
                    out.push(name);
                }
            }
            rest = &escaped[name.len_utf8()..];
            continue;
        }
        if in_class {
            if ["&&", "--", "~~"].iter().any(|operator| rest.starts_with(operator)) {
                return None;
            }
            if let Some(end) = rest.strip_prefix("[:").and_then(|rest| rest.find(":]")) {
                out.push_str(&rest[..end + 4]);
                rest = &rest[end + 4..];
                continue;
            }
            match character {
                '[' => out.push_str("\\["),
                ']' => {
                    in_class = false;
                    out.push(']');
                }
                other => out.push(other),
            }
            rest = &rest[character.len_utf8()..];
            continue;
        }
        out.push(character);
        rest = &rest[character.len_utf8()..];
        if character == '[' {
            in_class = true;
            // What stands first may be the end, and is none there.
            for first in ["^", "]"] {
                if let Some(behind) = rest.strip_prefix(first) {
                    out.push_str(if first == "]" { "\\]" } else { first });
                    rest = behind;
                }
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_re2_reads_them() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("^[a-z]+$", &["abc"], &["Abc", ""]),
            ("^\\d+$", &["123"], &["٣", "a"]),
            ("^[\\d-]+$", &["1-2"], &["٣"]),
            ("^\\w\\W\\s\\S$", &["a- b"], &["a-bb", "éé x"]),
            ("^[^\\s]+$", &["a"], &["a b"]),
            ("^[[]$", &["["], &["]"]),
            ("^[]a]+$", &["]a"], &["b"]),
            ("^[^]a]+$", &["b"], &["]"]),
            ("^[[:alpha:]_]+$", &["a_"], &["1"]),
            ("\\bcat\\b", &["a cat sat"], &["concat"]),
            ("^a\\.b\\[c\\]$", &["a.b[c]"], &["axb[c]"]),
        ];
        for (text, good, bad) in rows {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), *text);
            good.iter().for_each(|good| assert!(pattern.is_match(good), "{text} {good}"));
            bad.iter().for_each(|bad| assert!(!pattern.is_match(bad), "{text} {bad}"));
        }
        for other in ["(?=a)", "[a&&b]", "[a--b]", "(", "\\"] {
            assert!(Pattern::parse(other).is_none(), "{other}");
        }
    }
}
