//! JSON in the format of Go's encoder.

use std::io;

use serde_json::Value;
use serde_json::ser::Formatter;

/// A value as JSON, with numbers in Go's format.
pub fn to_json(value: &Value) -> String {
    let mut json = Vec::new();
    write_json(&mut json, value);
    String::from_utf8(json).unwrap_or_default()
}

/// A value as JSON, with the characters escaped that HTML and JavaScript interpret, same as Go's encoder.
pub fn to_html_json(value: &Value) -> String {
    to_json(value)
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Appends a value as JSON, with its fields in their order and numbers in Go's format.
pub fn write_json<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    // Strings, numbers and trees with string keys always encode.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(json, GoNumbers));
}

/// Writes numbers in Go's format: `1` without a fraction, and an exponent only below 1e-6 and from 1e21 on.
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        #[allow(clippy::cast_precision_loss)] // Go decodes an integer outside i64 as a float
        match i64::try_from(value) {
            Ok(value) => write!(writer, "{value}"),
            Err(_) => self.write_f64(writer, value as f64),
        }
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 {
            return writer.write_all(b"0");
        }
        if (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(writer, "{digits}e+{exponent}")
            }
            _ => writer.write_all(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_go() {
        let rows = [
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("-0.0", "0"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.5e-6", "0.0000015"),
            ("1.5e-7", "1.5e-7"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("123456789012345678901234567890", "1.2345678901234568e+29"),
            ("0.1", "0.1"),
        ];
        for (given, expected) in rows {
            let value: Value = serde_json::from_str(given).unwrap();
            let mut json = Vec::new();
            write_json(&mut json, &value);
            assert_eq!(String::from_utf8(json).unwrap(), expected);
        }
    }
}
