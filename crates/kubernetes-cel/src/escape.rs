//! Escapes for names of fields that are not identifiers in expressions.

use std::borrow::Cow;

use crate::parser::RESERVED;

/// The words of the language that are values or operators.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// The name of a field in expressions; `None` if expressions cannot use the field.
///
/// ```
/// assert_eq!(kubernetes_cel::escape("a-b").as_deref(), Some("a__dash__b"));
/// assert_eq!(kubernetes_cel::escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(kubernetes_cel::escape("a b"), None);
/// ```
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|char: char| char.is_ascii_digit()) {
        return None;
    }
    if WORDS.contains(&name) || RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                escaped.push_str("__underscores__");
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            '_' => escaped.push('_'),
            char if char.is_ascii_alphanumeric() => escaped.push(char),
            _ => return None,
        }
    }
    Some(escaped)
}

/// The name that an escaped name stands for; `None` if an escape is invalid.
pub(crate) fn unescape(escaped: &str) -> Option<Cow<'_, str>> {
    let (mut name, mut rest) = (String::new(), escaped);
    while let Some(start) = rest.find("__") {
        let inner = &rest[start + 2..];
        let end = inner.find('_').filter(|end| *end > 0 && inner[*end..].starts_with("__"));
        let Some(end) = end else {
            name.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        name.push_str(&rest[..start]);
        name.push_str(match &inner[..end] {
            "underscores" => "__",
            "dot" => ".",
            "dash" => "-",
            "slash" => "/",
            word if WORDS.contains(&word) || RESERVED.contains(&word) => {
                if end + 4 != escaped.len() {
                    return None;
                }
                word
            }
            _ => return None,
        });
        rest = &inner[end + 2..];
    }
    if name.is_empty() {
        return Some(Cow::Borrowed(rest));
    }
    name.push_str(rest);
    Some(Cow::Owned(name))
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn names_are_unescaped_as_in_kubernetes() {
        for (escaped, expected) in [
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__b")),
            ("___a", Some("___a")),
            ("a__dot__b__slash__c__dash__d", Some("a.b/c-d")),
            ("__underscores__a", Some("__a")),
            ("___dot__", Some("_.")),
            ("__namespace__", Some("namespace")),
            ("a__in__", None),
            ("__other__", None),
        ] {
            assert_eq!(unescape(escaped).as_deref(), expected, "{escaped}");
        }
    }

    #[test]
    fn names_are_escaped_as_in_kubernetes() {
        for (name, expected) in [
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("___a", Some("__underscores___a")),
            ("a.b/c-d", Some("a__dot__b__slash__c__dash__d")),
            ("in", Some("__in__")),
            ("inner", Some("inner")),
            ("1a", None),
            ("", None),
            ("ä", None),
        ] {
            assert_eq!(escape(name).as_deref(), expected, "{name}");
        }
    }
}
