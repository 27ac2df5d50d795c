//! Conversions between values, and their string forms.

use jiff::SignedDuration;

use crate::moment::Moment;
use crate::value::{Failure, Outcome, Value};

/// `int(value)`
pub(crate) fn to_int<'v>(value: &Value<'v>) -> Outcome<'v> {
    let overflow = || Failure::new("integer overflow");
    Ok(Value::Int(match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).map_err(|_| overflow())?,
        // The largest double below 2^63 is the largest value that fits.
        Value::Double(number) if number.abs() < 9.223_372_036_854_775e18 => *number as i64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => {
            parse_int(text.as_str()).ok_or_else(|| no_conversion(value, "int"))?
        }
        Value::Duration(nanoseconds) => *nanoseconds,
        Value::Timestamp(at) => at.seconds(),
        other => return Err(no_conversion(other, "int")),
    }))
}

fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// `uint(value)`
pub(crate) fn to_uint<'v>(value: &Value<'v>) -> Outcome<'v> {
    let overflow = || Failure::new("unsigned integer overflow");
    Ok(Value::Uint(match value {
        Value::Uint(number) => *number,
        Value::Int(number) => u64::try_from(*number).map_err(|_| overflow())?,
        Value::Double(number) if *number >= 0.0 && *number < 1.844_674_407_370_955_2e19 => {
            *number as u64
        }
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.as_str().parse().map_err(|_| no_conversion(value, "uint"))?,
        other => return Err(no_conversion(other, "uint")),
    }))
}

/// `double(value)`
pub(crate) fn to_double<'v>(value: &Value<'v>) -> Outcome<'v> {
    Ok(Value::Double(match value {
        Value::Double(number) => *number,
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::String(text) => {
            let number: f64 = text.as_str().parse().map_err(|_| no_conversion(value, "double"))?;
            // A number in digits that is too large is an error, not infinity.
            let is_too_large =
                number.is_infinite() && text.as_str().contains(|c: char| c.is_ascii_digit());
            if is_too_large { Err(no_conversion(value, "double"))? } else { number }
        }
        other => return Err(no_conversion(other, "double")),
    }))
}

/// `bool(value)`
pub(crate) fn to_bool<'v>(value: &Value<'v>) -> Outcome<'v> {
    Ok(Value::Bool(match value {
        Value::Bool(flag) => *flag,
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => true,
            "0" | "f" | "F" | "FALSE" | "false" | "False" => false,
            _ => return Err(no_conversion(value, "bool")),
        },
        other => return Err(no_conversion(other, "bool")),
    }))
}

/// `bytes(value)`
pub(crate) fn to_bytes<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::Bytes(_) => Ok(value.clone()),
        Value::String(text) => Ok(Value::Bytes(text.as_str().as_bytes().into())),
        other => Err(no_conversion(other, "bytes")),
    }
}

/// `string(value)`
pub(crate) fn to_string<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Timestamp(_)
        | Value::Duration(_) => Ok(Value::text(value.to_string())),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => Err(Failure::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Extension(of) => match of.text() {
            Some(text) => Ok(Value::text(text)),
            None => Err(no_conversion(value, "string")),
        },
        other => Err(no_conversion(other, "string")),
    }
}

/// `duration(value)`
pub(crate) fn to_duration<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::String(text) => parse_duration(text.as_str())
            .map(Value::Duration)
            .ok_or_else(|| no_conversion(value, "google.protobuf.Duration")),
        other => Err(no_conversion(other, "google.protobuf.Duration")),
    }
}

/// `timestamp(value)`
pub(crate) fn to_timestamp<'v>(value: &Value<'v>) -> Outcome<'v> {
    match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => Moment::new(i128::from(*seconds) * 1_000_000_000, 0)
            .map(Value::Timestamp)
            .ok_or_else(|| Failure::new("timestamp overflow")),
        Value::String(text) => Moment::parse(text.as_str())
            .map(Value::Timestamp)
            .ok_or_else(|| no_conversion(value, "google.protobuf.Timestamp")),
        other => Err(no_conversion(other, "google.protobuf.Timestamp")),
    }
}

fn no_conversion(value: &Value<'_>, to: &str) -> Failure {
    let from = value.type_name();
    Failure::new(format!("type conversion error from '{from}' to '{to}'"))
}

/// A duration in Go's format: `1h30m`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end =
            after.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        // Digits beyond the precision of nanoseconds are ignored.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let scale = 10_i128.pow(fraction.len() as u32);
            total = total.checked_add(fraction.parse::<i128>().ok()? * unit / scale)?;
        }
        rest = next;
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// A duration of the format `duration`: in Go's format, or in words, such as `3 weeks`.
pub(crate) fn parse_schema_duration(text: &str) -> Option<i64> {
    if let Some(nanoseconds) = parse_duration(text) {
        return Some(nanoseconds);
    }
    const SECOND: i64 = 1_000_000_000;
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        rest = &rest[start..];
        let end = rest.find(|char: char| !char.is_ascii_digit())?;
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find(|char: char| !char.is_alphabetic()).unwrap_or(after.len());
        let unit = after[..end].to_lowercase();
        let unit = match unit.as_str() {
            "ns" | "nano" | "nanosecond" | "nanoseconds" => 1,
            "us" | "\u{b5}s" | "micro" | "microsecond" | "microseconds" => 1_000,
            "ms" | "milli" | "millisecond" | "milliseconds" => 1_000_000,
            "s" | "sec" | "second" | "seconds" => SECOND,
            "m" | "min" | "minute" | "minutes" => 60 * SECOND,
            "h" | "hr" | "hour" | "hours" => 3_600 * SECOND,
            "d" | "day" | "days" => 86_400 * SECOND,
            "w" | "wk" | "week" | "weeks" => 604_800 * SECOND,
            _ => return total,
        };
        let part = number.parse::<i64>().ok()?.checked_mul(unit)?;
        total = Some(total.unwrap_or_default().checked_add(part)?);
        rest = &after[end..];
    }
    total
}

/// A duration as a string in seconds: `90s`, `1.5s`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let seconds = SignedDuration::from_nanos(nanoseconds).as_secs_f64();
    format!("{seconds}s")
}

/// A number in Go's shortest format: `1.5`, `1e+06`.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go's `%g` uses an exponent outside of this range.
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}
