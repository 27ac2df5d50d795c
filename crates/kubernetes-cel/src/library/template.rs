//! `format`: templates with clauses, which are replaced by values.

use super::Invocation;
use super::texts::quote;
use crate::convert::duration_text;
use crate::cost::Meter;
use crate::value::{Failure, Outcome, Value};

/// A piece of a template.
enum Piece<'a> {
    Text(&'a str),
    /// A clause: its verb, and its precision in digits.
    Clause(char, Option<usize>),
}

/// The largest number of digits after the decimal point.
const PRECISION: usize = 1_000;

/// The error of a template that ends after the `%` of a clause.
pub(crate) const UNEXPECTED_END: &str = "unexpected end of string";

/// The clauses of a template, in order. If a clause is invalid, its error is the last entry.
pub(crate) fn clauses(template: &str) -> Vec<Result<char, String>> {
    let (pieces, fault) = pieces(template);
    let verbs = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Text(_) => None,
        Piece::Clause(verb, _) => Some(Ok(verb)),
    });
    verbs.chain(fault.map(Err)).collect()
}

/// The error of a clause whose value has this type.
pub(crate) fn misfit(verb: char, given: &str) -> String {
    let fits = match verb {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => "octal clause can only be used on integers",
    };
    format!("error during formatting: {fits}, was given {given}")
}

/// The pieces of a template up to the first error, and this error.
fn pieces(template: &str) -> (Vec<Piece<'_>>, Option<String>) {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Text(&rest[..at]));
        let clause = &rest[at + 1..];
        if let Some(after) = clause.strip_prefix('%') {
            pieces.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        match clause_of(clause) {
            Ok((verb, precision, after)) => {
                pieces.push(Piece::Clause(verb, precision));
                rest = after;
            }
            Err(why) => return (pieces, Some(why)),
        }
    }
    pieces.push(Piece::Text(rest));
    (pieces, None)
}

/// The verb and the precision of a clause behind its `%`, and the rest of the template.
fn clause_of(clause: &str) -> Result<(char, Option<usize>, &str), String> {
    let (precision, clause) = precision(clause)?;
    let Some(verb) = clause.chars().next() else {
        return Err(UNEXPECTED_END.to_owned());
    };
    match "sdfebxXo".contains(verb) {
        true => Ok((verb, precision, &clause[1..])),
        false => Err(format!(
            "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
        )),
    }
}

fn precision(clause: &str) -> Result<(Option<usize>, &str), String> {
    let Some(after) = clause.strip_prefix('.') else { return Ok((None, clause)) };
    let end = after.find(|char: char| !char.is_ascii_digit()).unwrap_or(after.len());
    if end == 0 {
        let why = "error while converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax";
        return Err(format!(
            "could not parse formatting clause: error while parsing precision: {why}"
        ));
    }
    let precision = after[..end].parse::<usize>().ok().filter(|given| *given <= PRECISION);
    match precision {
        Some(precision) => Ok((Some(precision), &after[end..])),
        None => Err("could not parse formatting clause: invalid precision".to_owned()),
    }
}

pub(super) fn format<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::String(template), Value::List(values)] = all else {
        return Err(Failure::no_such_overload());
    };
    let mut written = String::new();
    let mut next = 0;
    let out_of_range = |at: usize| Failure::new(format!("index {at} out of range"));
    let (pieces, fault) = pieces(template.as_str());
    for piece in pieces {
        match piece {
            Piece::Text(text) => written.push_str(text),
            Piece::Clause(verb, precision) => {
                let value = values.get(next).ok_or_else(|| out_of_range(next))??;
                next += 1;
                let text =
                    clause(verb, precision, &value, call.meter).map_err(|unfit| match unfit {
                        Unfit::Type(given) => Failure::new(misfit(verb, given)),
                        Unfit::Limit => Failure::Limit,
                    })?;
                // Costs do not count the size of the result.
                call.meter.make(text.len())?;
                written.push_str(&text);
            }
        }
    }
    match fault {
        // A missing value is reported before an invalid clause.
        Some(why) => {
            values.get(next).ok_or_else(|| out_of_range(next))??;
            Err(Failure::new(why))
        }
        None => Ok(Value::text(written)),
    }
}

/// The reason why a value cannot be formatted.
enum Unfit {
    /// The clause does not support values of this type.
    Type(&'static str),
    /// The result exceeds the limit.
    Limit,
}

impl From<Failure> for Unfit {
    fn from(_: Failure) -> Self {
        Self::Limit
    }
}

/// Formats a value for a clause.
///
/// # Errors
/// The type of the value if it does not fit, or that the limit is exceeded.
fn clause(
    verb: char,
    precision: Option<usize>,
    value: &Value<'_>,
    meter: &mut Meter,
) -> Result<String, Unfit> {
    let radix = |negative: fn(u64) -> String| match value {
        Value::Int(number) if *number < 0 => Some(format!("-{}", negative(number.unsigned_abs()))),
        Value::Int(number) => Some(negative(number.unsigned_abs())),
        Value::Uint(number) => Some(negative(*number)),
        _ => None,
    };
    let precision = precision.unwrap_or(6);
    let written = match (verb, value) {
        ('s', _) => return as_text(value, meter),
        ('d', Value::Int(_) | Value::Uint(_)) => Some(value.to_string()),
        ('f', Value::Double(number)) => Some(grouped(&format!("{number:.precision$}"))),
        ('e', Value::Double(number)) => Some(scientific(*number, precision)),
        ('f' | 'e', Value::String(text))
            if ["NaN", "Infinity", "-Infinity"].contains(&text.as_str()) =>
        {
            Some(text.as_str().to_owned())
        }
        ('b', Value::Bool(flag)) => Some(u8::from(*flag).to_string()),
        ('b', _) => radix(|number| format!("{number:b}")),
        ('o', _) => radix(|number| format!("{number:o}")),
        ('x', Value::String(text)) => Some(hex(text.as_str().as_bytes())),
        ('X', Value::String(text)) => Some(hex(text.as_str().as_bytes()).to_uppercase()),
        ('x', Value::Bytes(bytes)) => Some(hex(bytes)),
        ('X', Value::Bytes(bytes)) => Some(hex(bytes).to_uppercase()),
        ('x', _) => radix(|number| format!("{number:x}")),
        ('X', _) => radix(|number| format!("{number:X}")),
        _ => None,
    };
    written.ok_or(Unfit::Type(value.type_name()))
}

/// A number in English format, with a comma between groups of three digits.
fn grouped(number: &str) -> String {
    let end = number.find('.').unwrap_or(number.len());
    let (whole, fraction) = number.split_at(end);
    let mut grouped = String::with_capacity(number.len() + whole.len() / 3);
    for (at, char) in whole.char_indices() {
        let left = whole.len() - at;
        if char.is_ascii_digit() && left % 3 == 0 && grouped.ends_with(|c: char| c.is_ascii_digit())
        {
            grouped.push(',');
        }
        grouped.push(char);
    }
    grouped + fraction
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number in scientific notation, in English format.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("\u{207b}", exponent),
        None => ("", exponent),
    };
    let raised = format!("{exponent:0>2}");
    let raised = raised.chars().map(|digit| match digit {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or_default()).unwrap_or(digit),
    });
    format!("{digits}\u{d7}10{sign}{}", raised.collect::<String>())
}

fn as_text(value: &Value<'_>, meter: &mut Meter) -> Result<String, Unfit> {
    meter.look_at(value)?;
    let text = match value {
        Value::String(text) => text.as_str().to_owned(),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Null | Value::Type(_) => {
            value.to_string()
        }
        Value::Double(number) => number.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanoseconds) => duration_text(*nanoseconds),
        Value::Timestamp(at) => at.to_string(),
        Value::List(list) => {
            let mut items = Vec::new();
            for item in list.iter() {
                items.push(within(&item.map_err(|_| Unfit::Type("error"))?, meter)?);
            }
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                let value = map.find(&key).ok().flatten().unwrap_or(Value::Null);
                entries.push(format!("{}:{}", within(&key, meter)?, within(&value, meter)?));
            }
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => return Err(Unfit::Type(other.type_name())),
    };
    // Nested values are counted at each level.
    meter.make(text.len())?;
    Ok(text)
}

/// A value inside of a list or a map. Strings are quoted.
fn within(value: &Value<'_>, meter: &mut Meter) -> Result<String, Unfit> {
    match value {
        Value::String(text) => {
            meter.make(text.as_str().len())?;
            Ok(quote(text.as_str()))
        }
        Value::Timestamp(at) => Ok(format!("timestamp(\"{at}\")")),
        Value::Duration(nanoseconds) => {
            Ok(format!("duration(\"{}\")", duration_text(*nanoseconds)))
        }
        Value::Bytes(bytes) => {
            meter.make(bytes.len())?;
            Ok(format!("b\"{}\"", String::from_utf8_lossy(bytes)))
        }
        other => as_text(other, meter),
    }
}
