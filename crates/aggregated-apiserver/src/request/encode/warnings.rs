//! The `Warning` headers of a response.

use std::collections::HashSet;

use axum::body::Body;
use http::Response;
use http::header::{HeaderName, HeaderValue};

const WARNING: HeaderName = HeaderName::from_static("warning");
/// The maximum total length of the warnings of a response, in bytes. If they are longer, each warning is cut to
/// `WARNING_LIMIT`. Same as in kube-apiserver.
const WARNINGS_LIMIT: usize = 4_096;
const WARNING_LIMIT: usize = 256;

/// Adds warnings in front of the existing warnings of a response.
pub(in crate::request) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let headers = response.headers_mut();
    let others: Vec<HeaderValue> = headers.get_all(WARNING).iter().cloned().collect();
    headers.remove(WARNING);
    for header in warning_headers(warnings).into_iter().chain(others) {
        headers.append(WARNING, header);
    }
}

/// Returns the headers `299 - "text"`, one for each distinct text, within the limits.
fn warning_headers(warnings: &[String]) -> Vec<HeaderValue> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut texts: Vec<&str> = Vec::new();
    for warning in warnings {
        let is_sent = !warning.chars().any(char::is_control);
        if is_sent && seen.insert(warning) {
            texts.push(warning);
        }
    }
    let is_over = texts.iter().map(|text| text.len()).sum::<usize>() > WARNINGS_LIMIT;
    let mut left = WARNINGS_LIMIT;
    let mut headers = Vec::new();
    for text in texts {
        let mut end = if is_over { text.len().min(WARNING_LIMIT) } else { text.len() };
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let Some(rest) = left.checked_sub(end) else { break };
        left = rest;
        let escaped = text[..end].replace('\\', "\\\\").replace('"', "\\\"");
        headers.extend(HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded() {
        let warnings = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            warning_headers(&texts)
        };
        let headers = warnings(&["unknown field \"a\"", "unknown field \"a\"", "b\nc", "é"]);
        let expected: [&[u8]; 2] = [br#"299 - "unknown field \"a\"""#, "299 - \"é\"".as_bytes()];
        assert_eq!(headers.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>(), expected);
        let many: Vec<String> = (0..1_000).map(|n| format!("{n}{}", "x".repeat(1_000))).collect();
        let headers = warning_headers(&many);
        assert_eq!(headers.len(), WARNINGS_LIMIT / WARNING_LIMIT);
    }
}
