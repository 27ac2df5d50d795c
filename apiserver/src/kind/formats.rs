//! Formats of texts, as kube-apiserver checks them.

use std::sync::LazyLock;

use regex::Regex;

type Check = fn(&str) -> bool;

/// The formats that are checked, and how.
const CHECKED: [(&str, Check); 13] = [
    ("byte", |text| BASE64.as_ref().is_some_and(|form| form.is_match(text))),
    ("cidr", is_cidr),
    ("date", is_date),
    ("date-time", is_date_time),
    ("datetime", is_date_time),
    ("double", |_| true),
    ("ipv4", |text| is_ip(text) && text.contains('.')),
    ("ipv6", |text| is_ip(text) && text.contains(':')),
    ("password", |_| true),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some('3'))),
    ("uuid4", |text| is_uuid(text, Some('4'))),
    ("uuid5", |text| is_uuid(text, Some('5'))),
];

static BASE64: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
    Regex::new(form).ok()
});
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    Regex::new(form).ok()
});

/// Whether a format is checked; any other binds nothing, or is not checked yet.
pub(super) fn is_checked(format: &str) -> bool {
    CHECKED.iter().any(|(name, _)| *name == format)
}

/// Whether a text is of a format.
pub fn is_of_format(format: &str, text: &str) -> bool {
    CHECKED.iter().find(|(name, _)| *name == format).is_none_or(|(_, check)| check(text))
}

fn is_date(text: &str) -> bool {
    let is_plain = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_plain && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let Some((date, time)) = text.split_once('t') else { return false };
    let Some(found) = TIME.as_ref().and_then(|form| form.captures(time)) else { return false };
    let at_most = |index: usize, most: &str| found.get(index).is_some_and(|m| m.as_str() <= most);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// An address; in those of four numbers zeros may lead.
fn is_ip(text: &str) -> bool {
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.trim_start_matches('0').len() <= 3
            && part.parse::<u32>().is_ok_and(|number| number <= 255)
    };
    if !text.contains(':') {
        return text.split('.').count() == 4 && text.split('.').all(is_number);
    }
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = if address.contains(':') { 128 } else { 32 };
    let is_plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    is_ip(address) && is_plain && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// With dashes or without; of a version if one is asked for.
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
    fn texts() {
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
            ("unknown", &["", "anything"], &[]),
        ];
        for (format, good, bad) in rows {
            good.iter().for_each(|text| assert!(is_of_format(format, text), "{format} {text}"));
            bad.iter().for_each(|text| assert!(!is_of_format(format, text), "{format} {text}"));
        }
    }
}
