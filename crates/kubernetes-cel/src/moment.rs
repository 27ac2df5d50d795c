//! Times with the time zone that they were parsed with.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

/// The range of seconds of valid times: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i128> = -62_135_596_800..=253_402_300_799;
/// The number of nanoseconds in a second.
const SECOND: i128 = 1_000_000_000;

/// A time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The nanoseconds since 1970-01-01T00:00:00 UTC.
    nanoseconds: i128,
    /// The offset of the time zone that the time was parsed with, in seconds.
    offset: i32,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.nanoseconds == other.nanoseconds
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanoseconds.cmp(&other.nanoseconds)
    }
}

impl Moment {
    /// The time at this number of nanoseconds after 1970 began, if it is in the valid range.
    pub(crate) fn new(nanoseconds: i128, offset: i32) -> Option<Self> {
        SECONDS.contains(&nanoseconds.div_euclid(SECOND)).then_some(Self { nanoseconds, offset })
    }

    /// Whether it is the first valid time, which is Go's zero value.
    pub(crate) fn is_first(&self) -> bool {
        self.nanoseconds == SECONDS.start() * SECOND
    }

    /// Parses a time in the format of RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (at, zone) = text.split_at_checked(19)?;
        let bytes = at.as_bytes();
        let is_form = bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            10 => *byte == b'T',
            13 | 16 => *byte == b':',
            _ => byte.is_ascii_digit(),
        });
        // Go does not accept leap seconds.
        if !is_form || &bytes[17..] == b"60" {
            return None;
        }
        let civil: DateTime = at.parse().ok()?;
        let (fraction, zone) = match zone.strip_prefix('.') {
            Some(rest) => {
                let end = rest.find(|char: char| !char.is_ascii_digit())?;
                (&rest[..end], &rest[end..])
            }
            None => ("", zone),
        };
        if fraction.is_empty() && text.as_bytes().get(19) == Some(&b'.') {
            return None;
        }
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let offset = offset(zone)?;
        let since = civil.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
        let seconds = i128::from(since.as_secs()) - i128::from(offset);
        Self::new(seconds * SECOND + digits.parse::<i128>().ok()?, offset)
    }

    /// The nanoseconds since 1970 began.
    pub(crate) fn nanoseconds(self) -> i128 {
        self.nanoseconds
    }

    /// The whole seconds since 1970 began, rounded down.
    pub(crate) fn seconds(self) -> i64 {
        self.nanoseconds.div_euclid(SECOND) as i64
    }

    /// The time this number of nanoseconds later, if it is in the valid range.
    pub(crate) fn plus(self, nanoseconds: i128) -> Option<Self> {
        Self::new(self.nanoseconds + nanoseconds, self.offset)
    }

    /// The date and the clock time in a time zone with this offset, in seconds.
    pub(crate) fn civil(self, offset: i32) -> DateTime {
        let shifted = self.nanoseconds + i128::from(offset) * SECOND;
        let seconds = shifted.div_euclid(SECOND) as i64;
        let since = SignedDuration::new(seconds, shifted.rem_euclid(SECOND) as i32);
        let start = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        start.checked_add(since).unwrap_or(DateTime::MAX)
    }

    /// The time as a [`Timestamp`], which has time zones. Its range ends some hours before the last valid time.
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_nanosecond(self.nanoseconds).unwrap_or(Timestamp::MAX)
    }
}

/// Parses the offset of a time zone, in seconds: `Z`, `+01:00`.
fn offset(zone: &str) -> Option<i32> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i32>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

impl fmt::Display for Moment {
    /// Formats the time as in RFC 3339, with as many digits of a second as necessary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.civil(self.offset))?;
        let minutes = self.offset / 60;
        match minutes {
            0 => f.write_str("Z"),
            minutes => {
                let sign = if minutes < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
        }
    }
}
