//! Email addresses, as RFC 5322 defines them for headers and Go parses them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Whether a text is an email address, such as `jo@example.com` or `Jo <jo@example.com>`.
pub fn is_email(text: &str) -> bool {
    address(text).is_some_and(|rest| comments(rest) == Some(""))
}

// Each of these functions parses an element at the beginning of a text, and returns the rest of the text. They return
// `None` if the element is missing.

fn address(text: &str) -> Option<&str> {
    let text = blanks(text);
    if let Some(rest) = plain_address(text) {
        let rest = blanks(rest);
        return if rest.starts_with('(') { comment(rest) } else { Some(rest) };
    }
    let named = if text.starts_with('<') { text } else { phrase(text)? };
    let named = blanks(named);
    match named.strip_prefix(':') {
        Some(members) => group(members),
        None => plain_address(named.strip_prefix('<')?)?.strip_prefix('>'),
    }
}

/// Parses a group of one address, after its name and the colon.
fn group(text: &str) -> Option<&str> {
    let rest = comments(blanks(text))?;
    let rest = comments(address(rest)?)?;
    rest.strip_prefix(';').and_then(comments)
}

fn plain_address(text: &str) -> Option<&str> {
    let text = blanks(text);
    let at = match text.strip_prefix('"') {
        Some("") => return None,
        Some(inner) if inner.starts_with('"') => return None,
        Some(inner) => quoted(inner)?,
        None => atom(text, false)?,
    };
    let domain = blanks(at.strip_prefix('@')?);
    match domain.strip_prefix('[') {
        Some(inner) => {
            let (address, rest) = inner.split_once(']')?;
            address.parse::<std::net::IpAddr>().is_ok().then_some(rest)
        }
        None => atom(domain, false),
    }
}

/// Parses the words before an address.
fn phrase(text: &str) -> Option<&str> {
    let mut rest = text;
    let mut count = 0;
    loop {
        if count > 0 {
            rest = comments(rest)?;
        }
        let word = blanks(rest);
        let behind = match word.strip_prefix('"') {
            Some(inner) => quoted(inner),
            None => atom(word, true).filter(|rest| is_readable(&word[..word.len() - rest.len()])),
        };
        match behind {
            Some(behind) => rest = behind,
            None if count == 0 => return None,
            None => return Some(word),
        }
        count += 1;
    }
}

/// Whether a word is plain, or is encoded (RFC 2047) in a known character set.
fn is_readable(word: &str) -> bool {
    let inner = word.strip_prefix("=?").and_then(|word| word.strip_suffix("?="));
    let parts: Vec<&str> = inner.map(|inner| inner.splitn(4, '?').collect()).unwrap_or_default();
    let [alphabet, encoding, text] = parts[..] else { return true };
    let is_encoded = match encoding {
        "b" | "B" => STANDARD.decode(text).is_ok(),
        "q" | "Q" => is_quoted_printable(text),
        _ => false,
    };
    let is_known = |known: &str| alphabet.eq_ignore_ascii_case(known);
    let is_decoded = ["utf-8", "iso-8859-1", "us-ascii"].into_iter().any(is_known);
    !is_encoded || alphabet.is_empty() || (is_decoded && !text.is_empty())
}

fn is_quoted_printable(text: &str) -> bool {
    let is_escape = |part: &str| part.get(..2).is_some_and(super::is_hex);
    text.is_ascii() && text.split('=').skip(1).all(is_escape)
}

/// Parses a word with dots. In a phrase, dots can be anywhere.
fn atom(text: &str, is_permissive: bool) -> Option<&str> {
    let is_part = |c: char| !"()[];@\\,<>\":".contains(c) && is_visible(c);
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let is_dotted_well = word.split('.').all(|part| !part.is_empty());
    (!word.is_empty() && (is_permissive || is_dotted_well)).then_some(rest)
}

/// Parses a quoted string, after its first quotation mark.
fn quoted(text: &str) -> Option<&str> {
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some(characters.as_str()),
            '\\' => {
                let escaped = characters.next()?;
                if !is_visible(escaped) && !is_blank(escaped) {
                    return None;
                }
            }
            other if is_visible(other) || is_blank(other) => {}
            _ => return None,
        }
    }
}

/// Parses blanks and comments.
fn comments(text: &str) -> Option<&str> {
    let mut rest = blanks(text);
    while rest.starts_with('(') {
        rest = blanks(comment(rest)?);
    }
    Some(rest)
}

/// Parses a comment, which can contain other comments.
fn comment(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' => {
                characters.next()?;
            }
            _ => {}
        }
        if depth == 0 {
            return Some(characters.as_str());
        }
    }
}

fn blanks(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn is_visible(c: char) -> bool {
    ('!'..='~').contains(&c) || !c.is_ascii()
}
