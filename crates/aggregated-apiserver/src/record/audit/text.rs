//! A JSON writer that appends values to a line without intermediate copies.

use std::cell::Cell;
use std::fmt::Display;
use std::io::Write;

use http::HeaderValue;
use jiff::Timestamp;
use jiff::tz::Offset;

/// A line to which JSON values are appended.
pub(super) trait Json {
    /// Appends a string with its quotes.
    fn text(&mut self, text: &str);
    /// Appends a header value as a string. Invalid UTF-8 is replaced.
    fn header(&mut self, value: &HeaderValue);
    /// Appends bytes that need no escaping, with quotes around them.
    fn quote(&mut self, plain: &[u8]);
    /// Appends JSON.
    fn raw(&mut self, json: &str);
    /// Appends a value whose text needs no escaping, with quotes around it.
    fn quoted(&mut self, value: impl Display);
    /// Appends a number.
    fn number(&mut self, number: u16);
    /// Appends strings as a list.
    fn texts(&mut self, texts: &[String]);
    /// Appends a time with microseconds, in the format of Kubernetes.
    fn micro_time(&mut self, time: Timestamp);
}

impl Json for Vec<u8> {
    fn text(&mut self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.quote(text.as_bytes());
        } else {
            // A string can always be encoded, and a vector accepts all of it.
            let _ = serde_json::to_writer(self, text);
        }
    }

    fn header(&mut self, value: &HeaderValue) {
        let bytes = value.as_bytes();
        if is_plain(bytes) && bytes.is_ascii() {
            self.quote(bytes);
        } else {
            self.text(&String::from_utf8_lossy(bytes));
        }
    }

    #[inline]
    fn quote(&mut self, plain: &[u8]) {
        self.reserve(plain.len() + 2);
        self.push(b'"');
        self.extend_from_slice(plain);
        self.push(b'"');
    }

    // Inlined, because the length of the argument is mostly known at the call.
    #[inline]
    fn raw(&mut self, json: &str) {
        self.extend_from_slice(json.as_bytes());
    }

    fn quoted(&mut self, value: impl Display) {
        let _ = write!(self, "\"{value}\"");
    }

    fn number(&mut self, number: u16) {
        // A number can always be encoded.
        let _ = serde_json::to_writer(self, &number);
    }

    fn texts(&mut self, texts: &[String]) {
        self.push(b'[');
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                self.push(b',');
            }
            self.text(text);
        }
        self.push(b']');
    }

    fn micro_time(&mut self, time: Timestamp) {
        // Before 1970, the seconds and their fraction are both negative. Events are never that old.
        let (second, nanosecond) = (time.as_second(), time.subsec_nanosecond());
        let Ok(microsecond) = u32::try_from(nanosecond / 1_000) else {
            self.quoted(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"));
            return;
        };
        let known = SECOND.get().filter(|(known, _)| *known == second);
        let Some((_, text)) = known.or_else(|| second_of(time).map(|text| (second, text))) else {
            self.quoted(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"));
            return;
        };
        if known.is_none() {
            SECOND.set(Some((second, text)));
        }
        self.extend_from_slice(&text);
        let [a, b] = pair(microsecond / 10_000);
        let [c, d] = pair(microsecond / 100);
        let [e, f] = pair(microsecond);
        self.extend_from_slice(&[a, b, c, d, e, f, b'Z', b'"']);
    }
}

/// The part of a time up to its seconds, with the leading quote and the trailing point.
type SecondText = [u8; 21];

thread_local! {
    /// The second that was formatted last. Most times lie within it.
    static SECOND: Cell<Option<(i64, SecondText)>> = const { Cell::new(None) };
}

/// Formats the part that is the same in all times of a second. Returns `None` if the year does not have four digits.
fn second_of(time: Timestamp) -> Option<SecondText> {
    let time = Offset::UTC.to_datetime(time);
    let part = |part: i8| pair(u32::try_from(part).unwrap_or_default());
    let year = u32::try_from(time.year()).ok().filter(|year| *year <= 9_999)?;
    let ([y0, y1], [y2, y3]) = (pair(year / 100), pair(year));
    let ([m0, m1], [d0, d1]) = (part(time.month()), part(time.day()));
    let ([h0, h1], [i0, i1], [s0, s1]) =
        (part(time.hour()), part(time.minute()), part(time.second()));
    Some([
        b'"', y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', i0, i1, b':', s0, s1,
        b'.',
    ])
}

/// The last two digits of a number.
fn pair(number: u32) -> [u8; 2] {
    let digit = |number: u32| b'0' + u8::try_from(number % 10).unwrap_or_default();
    [digit(number / 10), digit(number)]
}

/// Whether a string needs no escaping in JSON. It is checked eight bytes at a time; the last eight bytes can overlap
/// the ones before.
fn is_plain(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else {
        return !text.iter().any(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'));
    };
    let (chunks, _) = text.as_chunks();
    let are_plain = |eight: &[u8; 8]| are_plain(u64::from_ne_bytes(*eight));
    chunks.iter().all(are_plain) && are_plain(last)
}

/// Whether eight bytes need no escaping. The highest bit of a byte of `below(of, …)` is set if that byte is below the
/// limit. The bit is exact as long as no less significant byte is below the limit.
fn are_plain(eight: u64) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let below = |of: u64, limit: u8| of.wrapping_sub(EACH * u64::from(limit)) & !of;
    let is = |byte: u8| below(eight ^ (EACH * u64::from(byte)), 1);
    (below(eight, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(make: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut line = Vec::new();
        make(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn audit_strings_are_encoded_as_by_serde_json() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"", "\\", "\n", "\u{7f}", "é\u{2028}", "a<b>&", all.as_str()] {
            assert_eq!(made(|line| line.text(text)), serde_json::to_string(text).unwrap());
        }
        for (length, odd) in (1..20)
            .flat_map(|length| ["\u{1f}", "\"", "\\", "!", "\u{7f}", "é"].map(|odd| (length, odd)))
        {
            for at in 0..length {
                let text = format!("{}{odd}{}", "x".repeat(at), "x".repeat(length - at - 1));
                assert_eq!(made(|line| line.text(&text)), serde_json::to_string(&text).unwrap());
            }
        }
        let header = HeaderValue::from_bytes(b"a\xffb\"").unwrap();
        assert_eq!(made(|line| line.header(&header)), "\"a\u{fffd}b\\\"\"");
        let list = ["a".to_owned(), "b\"".to_owned()];
        assert_eq!(made(|line| line.texts(&list)), serde_json::to_string(&list).unwrap());
        assert_eq!(made(|line| line.texts(&[])), "[]");
    }

    #[test]
    fn audit_times_have_six_fractional_digits() {
        for text in [
            "2026-01-02T03:04:05.000006Z",
            "1970-01-01T00:00:00.000000Z",
            "1969-12-31T23:59:59.999999Z",
            "2024-02-29T23:59:59.123456Z",
            "9999-12-30T22:00:00.999999Z",
            "0000-01-01T00:00:00.000001Z",
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(made(|line| line.micro_time(time)), format!("\"{text}\""));
        }
        // Fractions of a microsecond are truncated.
        let time: Timestamp = "2026-01-02T03:04:05.999999999Z".parse().unwrap();
        assert_eq!(made(|line| line.micro_time(time)), "\"2026-01-02T03:04:05.999999Z\"");
        let before: Timestamp = "-000001-01-01T00:00:00Z".parse().unwrap();
        assert!(made(|line| line.micro_time(before)).ends_with(":00.000000Z\""));
    }
}
