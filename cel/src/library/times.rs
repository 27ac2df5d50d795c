//! Parts of times and durations.

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use super::Native;
use crate::value::{Failure, Outcome, Value};

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "getFullYear" => |_, all| part(all, |at| i64::from(at.year())),
        "getMonth" => |_, all| part(all, |at| i64::from(at.month()) - 1),
        "getDayOfYear" => |_, all| part(all, |at| i64::from(at.day_of_year()) - 1),
        "getDayOfMonth" => |_, all| part(all, |at| i64::from(at.day()) - 1),
        "getDate" => |_, all| part(all, |at| i64::from(at.day())),
        "getDayOfWeek" => |_, all| part(all, |at| i64::from(at.weekday().to_sunday_zero_offset())),
        "getHours" => |_, all| whole_or_part(all, 3_600_000_000_000, |at| i64::from(at.hour())),
        "getMinutes" => |_, all| whole_or_part(all, 60_000_000_000, |at| i64::from(at.minute())),
        "getSeconds" => |_, all| whole_or_part(all, 1_000_000_000, |at| i64::from(at.second())),
        "getMilliseconds" => {
            |_, all| whole_or_part(all, 1_000_000, |at| i64::from(at.millisecond()))
        }
        _ => return None,
    })
}

/// How often a unit fits into a duration, or the part of a time.
fn whole_or_part<'v>(all: &[Value<'v>], unit: i64, of: fn(&Zoned) -> i64) -> Outcome<'v> {
    match all {
        [Value::Duration(nanoseconds)] => Ok(Value::Int(nanoseconds / unit)),
        _ => part(all, of),
    }
}

fn part<'v>(all: &[Value<'v>], of: fn(&Zoned) -> i64) -> Outcome<'v> {
    let zoned = match all {
        [Value::Timestamp(at)] => at.to_zoned(TimeZone::UTC),
        [Value::Timestamp(at), Value::String(zone)] => in_zone(*at, zone.as_str())?,
        _ => return Err(Failure::no_such_overload()),
    };
    Ok(Value::Int(of(&zoned)))
}

/// A time in a zone: one by its name, or `+01:30`.
fn in_zone(at: Timestamp, zone: &str) -> Result<Zoned, Failure> {
    let unknown = || Failure::new(format!("unknown time zone {zone}"));
    let Some((hours, minutes)) = zone.split_once(':') else {
        let zone = match zone {
            "" | "UTC" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|_| unknown())?,
        };
        return Ok(at.to_zoned(zone));
    };
    let (sign, hours) = match hours.strip_prefix('-') {
        Some(hours) => (-1, hours),
        None => (1, hours.strip_prefix('+').unwrap_or(hours)),
    };
    let number = |text: &str| text.parse::<i32>().map_err(|_| unknown());
    let seconds = sign * (number(hours)? * 3_600 + number(minutes)? * 60);
    let offset = Offset::from_seconds(seconds).map_err(|_| unknown())?;
    Ok(at.to_zoned(offset.to_time_zone()))
}
