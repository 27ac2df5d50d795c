//! Annotations that admission adds to the audit event of a request.

use std::fmt;

use super::AdmissionRequest;
use crate::object::names;

/// The audit event of a request, as far as admission adds annotations to it.
pub trait AuditAnnotations: fmt::Debug + Send + Sync {
    /// Whether the event holds bodies: its level is `Request` or `RequestResponse`.
    fn holds_bodies(&self) -> bool;

    /// Adds an annotation. A second value of a key is ignored.
    fn add(&self, key: &str, value: &str);
}

impl AdmissionRequest<'_> {
    /// Whether the request has an audit event.
    pub fn is_audited(&self) -> bool {
        self.audit().is_some()
    }

    /// Adds an annotation to the audit event of the request, if it has one. A second value of a key is ignored. A key is a
    /// qualified name with a prefix, as `example.com/reason`; the annotation of another key is omitted.
    pub fn annotate(&self, key: &str, value: &str) {
        let Some(audit) = self.audit() else { return };
        if !is_annotation_key(key) {
            tracing::debug!(key, "omitted an audit annotation with an invalid key");
            return;
        }
        audit.add(key, value);
    }

    /// Adds an annotation that quotes the body of the request: only an event of the level `Request` or
    /// `RequestResponse` holds it. `value` is called for such an event alone.
    pub fn annotate_with_body(&self, key: &str, value: impl FnOnce() -> Option<String>) {
        if self.audit().is_some_and(AuditAnnotations::holds_bodies)
            && let Some(value) = value()
        {
            self.annotate(key, &value);
        }
    }
}

fn is_annotation_key(key: &str) -> bool {
    key.split('/').count() == 2 && names::check_label_key(key).is_empty()
}

/// Removes white space between the tokens of JSON, and escapes the characters in strings that Go escapes.
pub(super) fn go_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut is_string, mut is_escaped) = (false, false);
    for character in json.chars() {
        match character {
            ' ' | '\n' | '\r' | '\t' if !is_string => continue,
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
        is_string ^= character == '"' && !is_escaped;
        is_escaped = is_string && character == '\\' && !is_escaped;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_qualified_names_with_a_prefix() {
        for (key, is_valid) in [
            ("example.com/reason", true),
            ("a.example.com/a_b.c-d", true),
            ("a_b.example.com/a", false),
            ("reason", false),
            ("/reason", false),
            ("example.com/", false),
            ("example.com/a/b", false),
            ("Example.com/a", false),
            ("example.com/a b", false),
        ] {
            assert_eq!(is_annotation_key(key), is_valid, "{key}");
        }
    }

    #[test]
    fn json_is_compact_and_escaped_as_in_go() {
        for (json, expected) in [
            ("{ \"a\" : [ 1,\t2 ] }", "{\"a\":[1,2]}"),
            (r#"{"a b":"c  d"}"#, r#"{"a b":"c  d"}"#),
            (r#""a\" b \\" "#, r#""a\" b \\""#),
            (r#""<&>\/""#, r#""\u003c\u0026\u003e\/""#),
            ("\"\u{2028}\u{2029}\"", r#""\u2028\u2029""#),
        ] {
            assert_eq!(go_json(json), expected, "{json}");
        }
    }
}
