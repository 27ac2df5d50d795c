//! The strings in the names of certificates, decoded same as in Go.

use x509_parser::asn1_rs::{Any, Tag};

/// The string of a value.
///
/// # Errors
/// The reason, if the value is not a string of a type that Go decodes, or has invalid characters.
pub(super) fn read(value: &Any<'_>) -> Result<String, String> {
    decode(value.tag(), value.data)
}

fn decode(tag: Tag, bytes: &[u8]) -> Result<String, String> {
    let ascii = |name: &str| match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Ok(text.to_owned()),
        _ => Err(format!("asn1: syntax error: {name} contains invalid character")),
    };
    match tag {
        Tag::NumericString => ascii("NumericString"),
        Tag::PrintableString => ascii("PrintableString"),
        Tag::Ia5String => ascii("IA5String"),
        Tag::Utf8String => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err("asn1: invalid UTF-8 string".to_owned()),
        },
        // Go decodes T.61 as Latin-1, whose bytes are the first code points of Unicode.
        Tag::T61String => Ok(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => decode_bmp(bytes).ok_or_else(|| "invalid BMPString".to_owned()),
        Tag(other) => Err(format!("asn1: structure error: tag {other} is not a supported string")),
    }
}

/// Decodes UCS-2; `None` if it has surrogates, noncharacters or half a code point.
fn decode_bmp(bytes: &[u8]) -> Option<String> {
    let bytes =
        bytes.strip_suffix(&[0, 0]).filter(|_| bytes.len().is_multiple_of(2)).unwrap_or(bytes);
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let decode = |unit: &[u8; 2]| match u16::from_be_bytes(*unit) {
        0xfdd0..=0xfdef | 0xfffe | 0xffff => None,
        unit => char::from_u32(unit.into()),
    };
    units.iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_string_is_decoded() {
        let decoded = |tag, bytes: &[u8]| decode(tag, bytes).ok();
        for tag in [Tag::NumericString, Tag::PrintableString, Tag::Ia5String, Tag::Utf8String] {
            assert_eq!(decoded(tag, b"17").as_deref(), Some("17"), "{tag}");
            assert_eq!(decoded(tag, b"\xff"), None, "{tag}");
        }
        assert_eq!(decoded(Tag::Utf8String, "\u{e9}".as_bytes()).as_deref(), Some("\u{e9}"));
        assert_eq!(decoded(Tag::T61String, b"a\xe9").as_deref(), Some("a\u{e9}"));
        assert_eq!(decoded(Tag::BmpString, b"\0a\x20\xac").as_deref(), Some("a\u{20ac}"));
        assert_eq!(decoded(Tag::BmpString, b"\0a\0\0").as_deref(), Some("a"));
        for invalid in [&b"\0a\0"[..], b"a\0\0", b"\xd8\0", b"\xff\xfe", b"\xfd\xd0"] {
            assert_eq!(decoded(Tag::BmpString, invalid), None, "{invalid:?}");
        }
        for tag in [Tag::UniversalString, Tag::GeneralString, Tag::Integer, Tag::OctetString] {
            assert_eq!(decoded(tag, b"17"), None, "{tag}");
        }
    }
}
