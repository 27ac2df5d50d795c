//! Dates, times and durations.

use std::sync::LazyLock;

use regex::Regex;

static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    Regex::new(form).ok()
});

/// The names of the units of a duration. A name that begins with the last name of a row is a name of that unit too.
const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

/// Whether a text is a date such as `2020-02-29`.
pub fn is_date(text: &str) -> bool {
    let is_plain = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_plain && text.parse::<jiff::civil::Date>().is_ok()
}

/// Whether a text is a time such as `2020-02-29T00:00:00.5+01:00`.
pub fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    // The text after another `t` is ignored.
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.as_ref().and_then(|form| form.captures(time)) else { return false };
    let at_most = |index: usize, most: &str| found.get(index).is_some_and(|m| m.as_str() <= most);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// Whether a text is a duration of Go such as `1h30m`, or contains a number with a unit, such as `3 weeks`.
pub fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_unit(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut nanoseconds = 0.0;
    let is_empty = rest.is_empty();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let has_digits = number.bytes().any(|byte| byte.is_ascii_digit());
        if !has_digits || number.matches('.').count() > 1 {
            return false;
        }
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let length = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            _ => return false,
        };
        nanoseconds += number.parse::<f64>().unwrap_or(0.0) * length;
        rest = behind;
    }
    // The nanoseconds must fit in 63 bits.
    !is_empty && nanoseconds < 9_223_372_036_854_775_807.0
}

/// Whether a text contains a number with a unit. A number that is too large makes the whole text invalid.
fn has_unit(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == 'µ';
    let mut rest = text;
    let mut is_found = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        rest = behind;
        let unit = behind.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let end = unit.find(|c| !is_letter(c)).unwrap_or(unit.len());
        if end == 0 {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let name = unit[..end].to_lowercase();
        rest = &unit[end..];
        is_found |= UNITS.iter().any(|names| {
            let last = names.last();
            names.contains(&name.as_str()) || last.is_some_and(|last| name.starts_with(last))
        });
    }
    is_found
}
