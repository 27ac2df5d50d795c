//! Values of parameters, with the errors of Go's parsers, which kube-apiserver sends to clients.

use std::num::{IntErrorKind, ParseIntError};
use std::ops::Range;

use aggregated_apiserver::subresource::Error;
use jiff::Timestamp;

/// Parses an integer.
///
/// # Errors
/// 400.
pub(super) fn integer(text: &str) -> Result<i64, Error> {
    let why = |error| unparsed("ParseInt", text, &error);
    text.parse().map_err(|error| Error::bad_request(why(error)))
}

/// Parses a list of ports, separated by commas.
///
/// # Errors
/// 400.
pub(super) fn ports(list: &str) -> Result<Vec<u16>, Error> {
    let port = |text: &str| {
        // Go accepts no sign here.
        let digits = if text.starts_with('+') { "" } else { text };
        let why = |error| unparsed("ParseUint", text, &error);
        let port = digits.parse::<u16>().map_err(why);
        port.map_err(|why| Error::bad_request(format!("cannot convert to []int32: {why}")))
    };
    list.split(',').map(port).collect()
}

fn unparsed(function: &str, text: &str, error: &ParseIntError) -> String {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// The name and the range of a number, which Go checks.
type Number = (&'static str, Range<u8>);

/// The parts of a time: their layout, and their numbers.
const PARTS: [(&str, Option<Number>); 11] = [
    ("2006", Some(("year", 0..u8::MAX))),
    ("-", None),
    ("01", Some(("month", 1..13))),
    ("-", None),
    ("02", Some(("day", 0..u8::MAX))),
    ("T", None),
    ("15", Some(("hour", 0..24))),
    (":", None),
    ("04", Some(("minute", 0..60))),
    (":", None),
    ("05", Some(("second", 0..60))),
];

/// Checks a time in RFC 3339.
///
/// # Errors
/// 400.
pub(super) fn check_time(text: &str) -> Result<(), Error> {
    let fail = |why: String| Error::bad_request(format!("parsing time {text:?}{why}"));
    let cannot = |rest: &str, what: &str| {
        let layout = "2006-01-02T15:04:05Z07:00";
        fail(format!(" as {layout:?}: cannot parse {rest:?} as {what:?}"))
    };
    let mut rest = text;
    for (what, number) in PARTS {
        let (part, following) =
            rest.split_at_checked(what.len()).ok_or_else(|| cannot(rest, what))?;
        let is_part = match number {
            Some(_) => part.bytes().all(|byte| byte.is_ascii_digit()),
            None => part == what,
        };
        if !is_part {
            return Err(cannot(rest, what));
        }
        if let (Some((name, range)), Ok(number)) = (number, part.parse())
            && !range.contains(&number)
        {
            return Err(fail(format!(": {name} out of range")));
        }
        rest = following;
    }
    let digits = rest
        .strip_prefix(['.', ','])
        .map(|fraction| fraction.trim_start_matches(|character: char| character.is_ascii_digit()));
    let zone = digits.unwrap_or(rest);
    let is_offset = |offset: &str| {
        let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        offset.starts_with(['+', '-'])
            && offset
                .get(1..)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(hours, minutes)| digits(hours) && digits(minutes))
    };
    let extra = match zone.strip_prefix('Z') {
        Some(extra) => extra,
        None => match zone.split_at_checked(6) {
            Some((offset, extra)) if is_offset(offset) => extra,
            _ => return Err(cannot(zone, "Z07:00")),
        },
    };
    if !extra.is_empty() {
        return Err(fail(format!(": extra text: {extra:?}")));
    }
    match text.replace(',', ".").parse::<Timestamp>() {
        Ok(_) => Ok(()),
        Err(_) => Err(fail(": day out of range".to_owned())),
    }
}
