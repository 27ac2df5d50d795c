//! Scalars of YAML 1.1, with the rules of go-yaml v2: `yes` is a boolean, `0644` is octal, `1_000` is a number, `1:30`
//! and timestamps are strings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const PREFIX: &str = "tag:yaml.org,2002:";

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// A number beyond `i64`.
    Uint(u64),
    Float(f64),
    Text(String),
}

/// The tags that determine the type of a scalar; a scalar with another tag is a string.
const RESOLVED: [&str; 6] = ["str", "bool", "int", "float", "null", "timestamp"];

/// Resolves a scalar that is plain or has a tag. An empty tag means that the scalar has none.
///
/// # Errors
/// The message of go-yaml, if the text does not match the tag.
pub fn resolve(tag: &str, text: &str) -> Result<Scalar, String> {
    let short = tag.strip_prefix(PREFIX);
    if short == Some("binary") {
        let bare: String = text.chars().filter(|c| !['\r', '\n'].contains(c)).collect();
        let bytes = STANDARD.decode(bare);
        let bytes = bytes.map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
        return Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()));
    }
    let wanted = match (tag, short) {
        ("", _) => return Ok(untagged(text, "").0),
        (_, Some(short)) if RESOLVED.contains(&short) => short,
        _ => return Ok(Scalar::Text(text.to_owned())),
    };
    if wanted == "str" {
        return Ok(Scalar::Text(text.to_owned()));
    }
    match untagged(text, wanted) {
        (scalar, found) if found == wanted => Ok(scalar),
        (Scalar::Int(number), _) if wanted == "float" => Ok(Scalar::Float(number as f64)),
        (_, found) => Err(format!("cannot decode !!{found} `{text}` as a !!{wanted}")),
    }
}

/// The value of a text, and its type. The tag determines whether it may be a timestamp.
fn untagged(text: &str, tag: &str) -> (Scalar, &'static str) {
    if let Some(known) = known(text) {
        return known;
    }
    match text.as_bytes().first() {
        Some(b'.') => match float(text) {
            Some(number) => return (Scalar::Float(number), "float"),
            None => return (Scalar::Text(text.to_owned()), "str"),
        },
        Some(b'+' | b'-' | b'0'..=b'9') => {}
        _ => return (Scalar::Text(text.to_owned()), "str"),
    }
    // A timestamp remains a string.
    if ["", "timestamp"].contains(&tag) && is_timestamp(text) {
        return (Scalar::Text(text.to_owned()), "timestamp");
    }
    match number(&text.replace('_', "")) {
        Some(number @ Scalar::Float(_)) => (number, "float"),
        Some(number) => (number, "int"),
        None => (Scalar::Text(text.to_owned()), "str"),
    }
}

/// Words with a special meaning.
fn known(text: &str) -> Option<(Scalar, &'static str)> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            (Scalar::Bool(true), "bool")
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            (Scalar::Bool(false), "bool")
        }
        "" | "~" | "null" | "Null" | "NULL" => (Scalar::Null, "null"),
        ".nan" | ".NaN" | ".NAN" => (Scalar::Float(f64::NAN), "float"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            (Scalar::Float(f64::INFINITY), "float")
        }
        "-.inf" | "-.Inf" | "-.INF" => (Scalar::Float(f64::NEG_INFINITY), "float"),
        _ => return None,
    })
}

/// A number without underscores.
fn number(plain: &str) -> Option<Scalar> {
    if let Some(number) = integer(plain) {
        return Some(number);
    }
    if let Some(number) = decimal(plain) {
        return Some(Scalar::Float(number));
    }
    // Here the sign may follow the prefix.
    match (plain.strip_prefix("0b"), plain.strip_prefix("-0b")) {
        (Some(digits), _) => of_radix(digits, 2),
        (_, Some(digits)) => i64::from_str_radix(&format!("-{digits}"), 2).ok().map(Scalar::Int),
        _ => None,
    }
}

/// An integer with the prefix of its radix; a leading `0` alone is the prefix of octal numbers.
fn integer(plain: &str) -> Option<Scalar> {
    let (sign, unsigned) = match plain.as_bytes().first()? {
        b'+' => ("+", &plain[1..]),
        b'-' => ("-", &plain[1..]),
        _ => ("", plain),
    };
    let lower = unsigned.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        Some(two) if two.starts_with('0') => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !digits.starts_with(|digit: char| digit.is_ascii_hexdigit()) {
        return None;
    }
    match of_radix(&format!("{sign}{digits}"), radix) {
        // An unsigned number has no sign.
        Some(Scalar::Uint(_)) if !sign.is_empty() => None,
        number => number,
    }
}

fn of_radix(digits: &str, radix: u32) -> Option<Scalar> {
    match i64::from_str_radix(digits, radix) {
        Ok(number) => Some(Scalar::Int(number)),
        Err(_) => u64::from_str_radix(digits, radix).ok().map(Scalar::Uint),
    }
}

/// A number of decimal digits, with an optional fraction and exponent.
fn decimal(plain: &str) -> Option<f64> {
    let is_decimal = plain.bytes().all(|byte| b"+-.eE0123456789".contains(&byte));
    if is_decimal { float(plain) } else { None }
}

fn float(text: &str) -> Option<f64> {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    if !text.bytes().any(is_digit)
        || text.bytes().any(|byte| byte.is_ascii_alphabetic() && !b"eE".contains(&byte))
    {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a text is a date, or a date and a time, in one of the forms of go-yaml.
fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let date = digits(&mut rest, 4, 4).is_some()
        && skip(&mut rest, "-")
        && within(&mut rest, 1, 12)
        && skip(&mut rest, "-");
    if !date {
        return false;
    }
    let month: u32 = text[5..].split('-').next().and_then(|month| month.parse().ok()).unwrap_or(0);
    let year: i16 = text[..4].parse().unwrap_or(0);
    let last = i8::try_from(month)
        .ok()
        .and_then(|month| jiff::civil::Date::new(year, month, 1).ok())
        .map_or(31, jiff::civil::Date::days_in_month);
    if !within(&mut rest, 1, u32::from(last.unsigned_abs())) {
        return false;
    }
    if rest.is_empty() {
        return true;
    }
    let has_zone = rest.starts_with(['T', 't']);
    if !(has_zone || rest.starts_with(' ')) {
        return false;
    }
    rest = &rest[1..];
    if !has_zone {
        rest = rest.trim_start_matches(' ');
    }
    let time = within(&mut rest, 0, 23)
        && skip(&mut rest, ":")
        && within(&mut rest, 0, 59)
        && skip(&mut rest, ":")
        && within(&mut rest, 0, 59);
    if !time {
        return false;
    }
    if rest.starts_with(['.', ',']) {
        let fraction = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        if fraction == 0 {
            return false;
        }
        rest = &rest[1 + fraction..];
    }
    if !has_zone {
        return rest.is_empty();
    }
    if rest == "Z" {
        return true;
    }
    let is_offset = rest.starts_with(['+', '-']);
    rest = rest.get(1..).unwrap_or_default();
    is_offset
        && digits(&mut rest, 2, 2).is_some_and(|hours| hours <= 24)
        && skip(&mut rest, ":")
        && digits(&mut rest, 2, 2).is_some_and(|minutes| minutes <= 60)
        && rest.is_empty()
}

fn skip(rest: &mut &str, text: &str) -> bool {
    match rest.strip_prefix(text) {
        Some(left) => {
            *rest = left;
            true
        }
        None => false,
    }
}

/// Parses a number of one or two digits within bounds.
fn within(rest: &mut &str, least: u32, most: u32) -> bool {
    digits(rest, 1, 2).is_some_and(|number| (least..=most).contains(&number))
}

fn digits(rest: &mut &str, least: usize, most: usize) -> Option<u32> {
    let count = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count < least {
        return None;
    }
    let (number, left) = rest.split_at(count);
    *rest = left;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars() {
        let text = |text: &str| Scalar::Text(text.to_owned());
        for (plain, expected) in [
            ("0644", Scalar::Int(420)),
            ("-0644", Scalar::Int(-420)),
            ("0o14", Scalar::Int(12)),
            ("0x1F", Scalar::Int(31)),
            ("0b101", Scalar::Int(5)),
            ("-0b101", Scalar::Int(-5)),
            ("0b-1", Scalar::Int(-1)),
            ("1_000", Scalar::Int(1_000)),
            ("+5", Scalar::Int(5)),
            ("08", Scalar::Float(8.0)),
            ("0.5", Scalar::Float(0.5)),
            (".5", Scalar::Float(0.5)),
            ("5.", Scalar::Float(5.0)),
            ("1e1", Scalar::Float(10.0)),
            ("1e400", text("1e400")),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("18446744073709551616", Scalar::Float(18_446_744_073_709_551_616.0)),
            ("+18446744073709551615", Scalar::Float(18_446_744_073_709_551_615.0)),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
            ("1:30", text("1:30")),
            ("190:20:30", text("190:20:30")),
            ("2020-01-01", text("2020-01-01")),
            ("yes", Scalar::Bool(true)),
            ("yEs", text("yEs")),
            ("OFF", Scalar::Bool(false)),
            ("~", Scalar::Null),
            (".", text(".")),
            ("-", text("-")),
            ("0x", text("0x")),
            ("0x_1", Scalar::Int(1)),
            ("<<", text("<<")),
            ("é", text("é")),
        ] {
            assert_eq!(resolve("", plain), Ok(expected), "{plain}");
        }
        assert_eq!(resolve("", "-.INF"), Ok(Scalar::Float(f64::NEG_INFINITY)));
    }

    #[test]
    fn tagged_scalars() {
        let of = |short: &str, text: &str| resolve(&format!("{PREFIX}{short}"), text);
        assert_eq!(of("str", "5"), Ok(Scalar::Text("5".into())));
        assert_eq!(of("float", "5"), Ok(Scalar::Float(5.0)));
        assert_eq!(of("binary", "aGk="), Ok(Scalar::Text("hi".into())));
        assert_eq!(of("set", "5"), Ok(Scalar::Text("5".into())));
        assert_eq!(resolve("!mine", "5"), Ok(Scalar::Text("5".into())));
        assert_eq!(
            of("timestamp", "2020-1-2 3:4:5.6"),
            Ok(Scalar::Text("2020-1-2 3:4:5.6".into()))
        );
        for (short, text, expected) in [
            ("int", "5.0", "cannot decode !!float `5.0` as a !!int"),
            ("bool", "1", "cannot decode !!int `1` as a !!bool"),
            ("null", "x", "cannot decode !!str `x` as a !!null"),
            ("int", "", "cannot decode !!null `` as a !!int"),
            ("int", "2020-01-01", "cannot decode !!str `2020-01-01` as a !!int"),
            ("timestamp", "2020-02-30", "cannot decode !!str `2020-02-30` as a !!timestamp"),
            ("binary", "a", "!!binary value contains invalid base64 data"),
        ] {
            assert_eq!(of(short, text), Err(expected.to_owned()), "{short} {text}");
        }
    }
}
