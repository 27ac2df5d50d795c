//! Formats of strings, as kube-apiserver checks them.

mod addresses;
mod email;
mod numbers;
mod times;
mod unrecognized;

pub use unrecognized::{is_recognized, unrecognized_formats};

use std::sync::LazyLock;

use kubernetes_cel::check_url;
use regex::Regex;

use crate::object::names::{check_dns_1123_label, check_dns_1123_subdomain};

type Check = fn(&str) -> bool;

/// The formats that are checked, with their checks. Other formats have no effect.
const CHECKED: [(&str, Check); 26] = [
    ("bsonobjectid", |text| text.len() == 24 && is_hex(text)),
    ("byte", |text| BASE64.as_ref().is_some_and(|form| form.is_match(text))),
    ("cidr", addresses::is_cidr),
    ("creditcard", numbers::is_credit_card),
    ("date", times::is_date),
    ("date-time", times::is_date_time),
    ("datetime", times::is_date_time),
    ("duration", times::is_duration),
    ("email", email::is_email),
    ("hexcolor", is_hex_color),
    ("hostname", addresses::is_hostname),
    ("ipv4", |text| addresses::is_ip(text) && text.contains('.')),
    ("ipv6", |text| addresses::is_ip(text) && text.contains(':')),
    ("isbn", |text| numbers::is_isbn_10(text) || numbers::is_isbn_13(text)),
    ("isbn10", numbers::is_isbn_10),
    ("isbn13", numbers::is_isbn_13),
    ("k8s-long-name", |text| check_dns_1123_subdomain(text).is_empty()),
    ("k8s-short-name", |text| check_dns_1123_label(text).is_empty()),
    ("mac", addresses::is_mac),
    ("rgbcolor", is_rgb_color),
    ("ssn", numbers::is_social_security_number),
    ("uri", |text| check_url(text).is_ok()),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some('3'))),
    ("uuid4", |text| is_uuid(text, Some('4'))),
    ("uuid5", |text| is_uuid(text, Some('5'))),
];

static BASE64: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
    Regex::new(form).ok()
});

/// Whether a text matches a format.
pub fn is_of_format(format: &str, text: &str) -> bool {
    CHECKED.iter().find(|(name, _)| *name == format).is_none_or(|(_, check)| check(text))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a text is a color such as `#0af` or `00aaff`.
fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    [3, 6].contains(&digits.len()) && is_hex(digits)
}

/// Whether a text is a color such as `rgb(0, 170, 255)`.
fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let is_part = |part: &str| {
        let part = part.trim_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let is_short = part == "0" || !part.starts_with('0');
        let is_plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_plain && is_short && part.parse::<u8>().is_ok()
    };
    inner.is_some_and(|inner| inner.split(',').count() == 3 && inner.split(',').all(is_part))
}

/// Whether a text is a UUID, with or without dashes. If a version is given, the UUID must have it.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::new();
    let mut rest = text;
    for (index, count) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(part) = rest.get(..count) else { return false };
        digits.push_str(part);
        rest = &rest[count..];
    }
    let is_variant = version.is_none_or(|version| version == '3')
        || digits.get(16..17).is_some_and(|digit| "89abAB".contains(digit));
    rest.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
        && is_variant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_formats_accept_and_reject_values() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("date", &["2020-02-29"], &["2021-02-29", "2020-1-1", "", "2020-02-29 "]),
            (
                "date-time",
                &["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00", "2020-01-01T23:59:59z"],
                &["2020-01-01 00:00:00Z", "2020-01-01T00:00:00", "2020-01-01T24:00:00Z", "x"],
            ),
            ("byte", &["QQ==", "QUJD"], &["", "QQ", "Q===", "*"]),
            ("ipv4", &["1.2.3.4", "001.2.3.4"], &["1.2.3", "1.2.3.256", "::1", "a"]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g", "1:2"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/"]),
            (
                "uuid",
                &["0a1b2c3d-0000-4000-8000-000000000000", "0A1B2C3D000040008000000000000000"],
                &["", "0a1b2c3d", "0a1b2c3d-0000-4000-8000-00000000000g"],
            ),
            (
                "uuid4",
                &["0a1b2c3d-0000-4000-8000-000000000000"],
                &["0a1b2c3d-0000-3000-8000-000000000000", "0a1b2c3d-0000-4000-7000-000000000000"],
            ),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23", "01:23-45:67:89:ab", ""]),
            ("hostname", &["localhost", "a-", "a.bc"], &["a.b", "1.2.3.4", "-a", "a..bc", "a b"]),
            (
                "duration",
                &["1h30m", "-1.5s", "0", "1 day", "3 weeks", "P1D", "2 minutes"],
                &["", "1", "h", "1 x", "99999999999999999999d"],
            ),
            (
                "email",
                &["a@b", "A <a@b.c>", "\"x y\"@b", "a@[1.2.3.4]", "all: a@b;"],
                &[
                    "a",
                    "a@",
                    "@b",
                    "a@b@c",
                    ".a@b",
                    "A a@b",
                    "<a@b",
                    "a@b,c@d",
                    "=?x?q?A?= <a@b>",
                    "all: a@b, c@d;",
                ],
            ),
            (
                "uri",
                &["/a", "http://a", "mailto:x", "//a b", "*", "http://[::1]:80/", "a:b c"],
                &[
                    "",
                    "a",
                    "http://a b",
                    "http://a:x",
                    "http://[::1",
                    "%",
                    "/%z",
                    ":a",
                    "http://%41",
                ],
            ),
            ("isbn10", &["0-306-40615-2", "080442957X"], &["0306406153", "X", ""]),
            ("isbn13", &["978-0-306-40615-7"], &["9780306406158"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111111111111112", "0", ""]),
            ("ssn", &["123-45-6789", "123-45 6789"], &["123456789", "1234-5-6789"]),
            ("hexcolor", &["#0af", "00AAFF"], &["#0", "#00aafg"]),
            ("rgbcolor", &["rgb(0, 170,255 )"], &["rgb(0,0)", "rgb(0,0,256)", "rgb(00,0,0)"]),
            ("bsonobjectid", &["0123456789abcdef01234567"], &["0123456789abcdef0123456"]),
            ("k8s-short-name", &["a-b"], &["a.b", ""]),
            ("k8s-long-name", &["a-b.c"], &["a_b", ""]),
            ("unknown", &["", "anything"], &[]),
        ];
        for (format, good, bad) in rows {
            good.iter().for_each(|text| assert!(is_of_format(format, text), "{format} {text}"));
            bad.iter().for_each(|text| assert!(!is_of_format(format, text), "{format} {text}"));
        }
    }
}
