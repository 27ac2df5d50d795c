//! Parts of error messages, in Go's format.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The name of a resource with its group, such as `llamas.farm.example.com`. The core group has no suffix. A long name
/// is truncated.
pub fn qualified(group: &str, resource: &str) -> String {
    let (group, resource) = (beginning(group), beginning(resource));
    if group.is_empty() { resource.into_owned() } else { format!("{resource}.{group}") }
}

/// The largest number of bytes of a client's input that an error message contains. More is of no use to a reader, and
/// escapes can increase the size six times.
const SHOWN: usize = 4 << 10;

/// The string, truncated if it is long.
pub fn beginning(text: &str) -> Cow<'_, str> {
    if text.len() <= SHOWN {
        return text.into();
    }
    let end = (0..=SHOWN).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    format!("{}...", &text[..end]).into()
}

/// The string in double quotes, escaped same as Go's `%q`, and truncated if it is long.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().min(SHOWN) + 2);
    quoted.push('"');
    for character in beginning(text).chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{b}' => quoted.push_str("\\v"),
            control if (control as u32) < 0x80 && control.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", control as u32);
            }
            odd if !is_printed(odd) && (odd as u32) < 0x1_0000 => {
                let _ = write!(quoted, "\\u{:04x}", odd as u32);
            }
            odd if !is_printed(odd) => {
                let _ = write!(quoted, "\\U{:08x}", odd as u32);
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a character is printable, same as Go's `unicode.IsPrint`.
pub fn is_printed(character: char) -> bool {
    static PRINTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").ok());
    if character.is_ascii() {
        return character == ' ' || character.is_ascii_graphic();
    }
    let text = character.encode_utf8(&mut [0; 4]).to_owned();
    PRINTED.as_ref().is_some_and(|printed| printed.is_match(&text))
}

/// A float in Go's format: `1e+10`, and `1000` without an exponent.
pub fn go_float(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(-4..21) if number.abs() < 1e6 => number.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Err(_) => text,
    }
}

/// A JSON value in the format of Go's `%v`. Long lists and objects are truncated.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(is) => is.to_string(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => go_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(go_value), " ")),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, member)| format!("{name}:{}", go_value(member)));
            format!("map[{}]", joined(members, " "))
        }
    }
}

/// Joins strings until the result is as long as an error message can show.
pub fn joined(texts: impl Iterator<Item = String>, separator: &str) -> String {
    let mut joined = String::new();
    for (index, text) in texts.enumerate() {
        if joined.len() > SHOWN {
            break;
        }
        joined.push_str(if index == 0 { "" } else { separator });
        joined.push_str(&text);
    }
    joined
}

/// Go's name of a JSON type.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's error for a document that is not an object, when Go reads its kind.
pub fn no_object(found: &Value) -> String {
    let found = go_type(found);
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_in_errors_are_quoted_as_in_go() {
        let rows =
            [("a", "\"a\""), ("a\"b\\", r#""a\"b\\""#), ("\n\u{1}\u{7f}", r#""\n\x01\x7f""#)];
        for (text, expected) in rows {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn long_strings_in_errors_are_truncated() {
        let long = format!("a{}", "é".repeat(SHOWN));
        let shown = beginning(&long);
        assert!(shown.ends_with("é...") && shown.len() <= SHOWN + 3);
        assert_eq!(quote(&long).len(), shown.len() + 2);
        assert_eq!(beginning("short"), "short");
    }
}
