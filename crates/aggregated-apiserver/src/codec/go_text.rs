//! Strings in JSON with the rules of Go: bytes that are not UTF-8, and unpaired surrogates, do not make a document
//! invalid. Each becomes U+FFFD.

/// The replacement character as a JSON escape.
const ESCAPED: &[u8] = b"\\ufffd";
const REPLACEMENT: &str = "\u{fffd}";

/// The document with U+FFFD in place of invalid characters; `None` if the document is valid.
pub fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let utf8 = utf8(bytes);
    let mended = surrogates(utf8.as_deref().unwrap_or(bytes));
    mended.or(utf8)
}

/// Replaces each byte that is not part of a UTF-8 character.
fn utf8(bytes: &[u8]) -> Option<Vec<u8>> {
    if std::str::from_utf8(bytes).is_ok() {
        return None;
    }
    let mut mended = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    for chunk in bytes.utf8_chunks() {
        mended.extend_from_slice(chunk.valid().as_bytes());
        for _ in chunk.invalid() {
            mended.extend_from_slice(REPLACEMENT.as_bytes());
        }
    }
    Some(mended)
}

/// Replaces the escapes of unpaired surrogates.
fn surrogates(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut mended: Option<Vec<u8>> = None;
    // The document is copied up to `copied`.
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        let start = at + found;
        // The character after the backslash of another escape cannot start an escape.
        at = (start + 2).min(bytes.len());
        let Some(unit) = unit(&bytes[start..]) else { continue };
        at = start + ESCAPED.len();
        let is_pair =
            is_leading(unit) && bytes.get(at..).and_then(self::unit).is_some_and(is_trailing);
        if is_pair {
            at += ESCAPED.len();
        } else if is_leading(unit) || is_trailing(unit) {
            let mended = mended.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            mended.extend_from_slice(&bytes[copied..start]);
            mended.extend_from_slice(ESCAPED);
            copied = at;
        }
    }
    if let Some(mended) = &mut mended {
        mended.extend_from_slice(&bytes[copied..]);
    }
    mended
}

/// The UTF-16 code unit at the start of the bytes, if they start with `\\u` and four hexadecimal digits.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn is_leading(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_trailing(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf8_and_lone_surrogates_become_replacement_characters() {
        for (text, expected) in [
            (&b"\xff"[..], "\u{fffd}"),
            // Go replaces each byte separately.
            (b"a\xe2\x82z", "a\u{fffd}\u{fffd}z"),
            (br"\ud800", r"\ufffd"),
            (br"\ud800\ud800\udc00x", r"\ufffd\ud800\udc00x"),
            (br"\udc00\n", r"\ufffd\n"),
            (br"a\\\udc00", r"a\\\ufffd"),
            (b"\\ud800\xff", "\\ufffd\u{fffd}"),
        ] {
            let mended = mended(text).unwrap();
            assert_eq!(String::from_utf8(mended).unwrap(), expected);
        }
        for text in [r"\ud83d\ude00", r"a\\ud800", r"\ud8", r"\", "", r"\u00e9 é"] {
            assert_eq!(mended(text.as_bytes()), None, "{text}");
        }
    }
}
