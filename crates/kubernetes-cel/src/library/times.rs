//! Parts of times and durations.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::Native;
use crate::moment::Moment;
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

/// The number of whole units in a duration, or a part of a time.
fn whole_or_part<'v>(all: &[Value<'v>], unit: i64, of: fn(&DateTime) -> i64) -> Outcome<'v> {
    match all {
        [Value::Duration(nanoseconds)] => Ok(Value::Int(nanoseconds / unit)),
        _ => part(all, of),
    }
}

fn part<'v>(all: &[Value<'v>], of: fn(&DateTime) -> i64) -> Outcome<'v> {
    let civil = match all {
        [Value::Timestamp(at)] => at.civil(0),
        [Value::Timestamp(at), Value::String(zone)] => at.civil(offset(*at, zone.as_str())?),
        _ => return Err(Failure::no_such_overload()),
    };
    Ok(Value::Int(of(&civil)))
}

/// The offset of a time zone at a time, in seconds. The zone is a name, or an offset such as `+01:30`.
fn offset(at: Moment, zone: &str) -> Result<i32, Failure> {
    let unknown = || Failure::new(format!("unknown time zone {zone}"));
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(0),
            name if name.contains("..") || name.starts_with(['/', '\\']) => {
                Err(Failure::new("time: invalid location name"))
            }
            name => {
                let zone = TimeZone::get(name).map_err(|_| unknown())?;
                Ok(zone.to_offset(at.timestamp()).seconds())
            }
        };
    };
    let (sign, hours) = match hours.strip_prefix('-') {
        Some(hours) => (-1, hours),
        None => (1, hours.strip_prefix('+').unwrap_or(hours)),
    };
    /// The limit of the hours in an offset; an offset must be smaller.
    const AWAY: i32 = 100;
    let number = |text: &str| match text.parse::<i32>() {
        Ok(number) if number.abs() < AWAY => Ok(number),
        Ok(_) => Err(unknown()),
        Err(_) => {
            let text = crate::library::texts::quote(text);
            Err(Failure::new(format!("strconv.Atoi: parsing {text}: invalid syntax")))
        }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    Ok(sign * (hours * 3_600 + minutes * 60))
}
