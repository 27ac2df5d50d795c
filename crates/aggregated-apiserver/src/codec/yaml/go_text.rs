//! Values in the format of Go's `%#v`, for messages.

use std::fmt::Write as _;

use serde_json::Value;

use super::tree::Key;

/// The largest size of a value in a message, in bytes.
const LIMIT: usize = 1 << 10;

/// Formats a key.
pub fn of_key(key: &Key) -> String {
    match key {
        Key::Null => "<nil>".to_owned(),
        Key::Bool(is_true) => is_true.to_string(),
        Key::Int(number) => number.to_string(),
        Key::Uint(number) => format!("{number:#x}"),
        Key::Float(number) => float(*number, &format!("{:e}", number.abs())),
        Key::Text(text) => quoted(text),
    }
}

/// Formats a value.
pub fn of_value(value: &Value) -> String {
    let mut shown = String::new();
    write(value, &mut shown);
    shown
}

fn write(value: &Value, shown: &mut String) {
    if shown.len() > LIMIT {
        return;
    }
    match value {
        Value::Null => shown.push_str("interface {}(nil)"),
        Value::Bool(is_true) => shown.push_str(if *is_true { "true" } else { "false" }),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => drop(write!(shown, "{number}")),
            (_, Some(number), _) => drop(write!(shown, "{number:#x}")),
            (.., Some(number)) => {
                shown.push_str(&float(number, &format!("{:e}", number.abs())));
            }
            _ => {}
        },
        Value::String(text) => shown.push_str(&quoted(text)),
        Value::Array(items) => {
            shown.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                shown.push_str(if index > 0 { ", " } else { "" });
                write(item, shown);
            }
            shown.push('}');
        }
        Value::Object(members) => {
            shown.push_str("map[interface {}]interface {}{");
            for (index, (name, member)) in members.iter().enumerate() {
                shown.push_str(if index > 0 { ", " } else { "" });
                shown.push_str(&quoted(name));
                shown.push(':');
                write(member, shown);
            }
            shown.push('}');
        }
    }
}

fn quoted(text: &str) -> String {
    crate::error::quote(text)
}

/// The shortest digits from which a 32-bit number can be parsed again: `%g`.
pub fn float_32(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    let short = number as f32;
    if short.is_infinite() {
        return if short > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    float(number, &format!("{:e}", short.abs()))
}

/// Formats a number from its shortest digits and exponent: `1.5e0`.
fn float(number: f64, shortest: &str) -> String {
    /// The exponents of numbers that are written without an exponent.
    const PLAIN: std::ops::RangeInclusive<i32> = -4..=5;
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number.is_nan() || number.is_infinite() {
        return if number.is_nan() {
            "NaN".to_owned()
        } else {
            format!("{}Inf", if sign.is_empty() { "+" } else { sign })
        };
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !PLAIN.contains(&exponent) {
        let sign_of_exponent = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{sign_of_exponent}{:02}", exponent.abs());
    }
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let plain = if point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else if point >= count {
        format!("{digits}{}", zeros(point - count))
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{whole}.{fraction}")
    };
    format!("{sign}{plain}")
}
