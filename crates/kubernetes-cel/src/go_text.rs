//! Strings as Go prints and decodes them.

use std::fmt::Write as _;

/// A string in double quotes, in the format of `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{b}' => quoted.push_str("\\v"),
            ' '..='~' => quoted.push(char),
            '\0'..='\u{7f}' => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(char));
            }
            odd if !is_printed(odd) && u32::from(odd) < 0x1_0000 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(odd));
            }
            odd if !is_printed(odd) => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(odd));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// Bytes that may not be UTF-8 in double quotes, in the format of `strconv.Quote`.
pub(crate) fn quote_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        let valid = quote(chunk.valid());
        quoted.push_str(&valid[1..valid.len() - 1]);
        for byte in chunk.invalid() {
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('"');
    quoted
}

/// Bytes as a string. Go reads each byte that is not UTF-8 as one replacement character.
pub(crate) fn decode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Whether Go prints a character outside ASCII without an escape.
fn is_printed(char: char) -> bool {
    // Rust escapes combining marks only at the start of a string. Go never does.
    let behind_another: String = ['a', char].iter().collect();
    behind_another.escape_debug().nth(1) != Some('\\')
}

#[cfg(test)]
mod tests {
    use super::{decode, quote};

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, expected) in [
            ("a\"\\\n\0\u{7f}", r#""a\"\\\n\x00\x7f""#),
            ("é\u{301}€😀", "\"é\u{301}€😀\""),
            ("\u{85}\u{a0}\u{200b}\u{ffff}\u{10ffff}", r#""\u0085\u00a0\u200b\uffff\U0010ffff""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn each_invalid_byte_is_one_replacement_character() {
        assert_eq!(decode(b"a\xe2\x82b\xff"), "a\u{fffd}\u{fffd}b\u{fffd}");
    }
}
