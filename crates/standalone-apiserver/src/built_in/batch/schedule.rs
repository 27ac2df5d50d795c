//! The syntax of schedules.

use crate::built_in::checks::quote;

/// Returns the error of a schedule, if it is invalid.
pub(crate) fn fault_of_schedule(schedule: &str) -> Option<String> {
    const NAMES: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    const MONTHS: &[&str] =
        &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    const FIELDS: [CronField; 5] = [
        CronField { least: 0, most: 59, names: &[] },
        CronField { least: 0, most: 23, names: &[] },
        CronField { least: 1, most: 31, names: &[] },
        CronField { least: 1, most: 12, names: MONTHS },
        CronField { least: 0, most: 6, names: DAYS },
    ];
    let mut schedule = schedule;
    if let Some(zone) = ["TZ=", "CRON_TZ="].iter().find_map(|name| schedule.strip_prefix(name)) {
        // Without a space after the zone, the parser of Go panics.
        let Some((zone, rest)) = zone.split_once(' ') else {
            return Some(
                "invalid schedule format: runtime error: slice bounds out of range [:-1]"
                    .to_owned(),
            );
        };
        if !is_zone(zone) {
            return Some(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        schedule = rest.trim();
    }
    if schedule.starts_with('@') {
        if let Some(period) = schedule.strip_prefix("@every ").filter(|period| !is_duration(period))
        {
            let why = format!("time: invalid duration {}", quote(period));
            return Some(format!("failed to parse duration {schedule}: {why}"));
        }
        let is_known =
            NAMES.contains(&schedule) || schedule.strip_prefix("@every ").is_some_and(is_duration);
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let found = fields.join(" ");
        return Some(format!("expected exactly 5 fields, found {}: [{found}]", fields.len()));
    }
    let mut parts = fields.iter().zip(FIELDS).flat_map(|(field, of)| {
        field.split(',').filter(|part| !part.is_empty()).map(move |part| (part, of))
    });
    parts.find_map(|(part, of)| of.fault(part))
}

/// Whether a time zone is known.
pub(crate) fn is_zone(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || jiff::tz::TimeZone::get(name).is_ok()
}

/// Whether a string is a duration in the format of Go, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let units = ["ns", "us", "ms", "s", "m", "h"];
        let Some(unit) = units.into_iter().find(|unit| behind.starts_with(unit)) else {
            return false;
        };
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = &behind[unit.len()..];
    }
    !text.is_empty()
}

/// The valid numbers and names of a field of a schedule.
#[derive(Clone, Copy)]
struct CronField {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

impl CronField {
    fn fault(&self, part: &str) -> Option<String> {
        self.check(part).err()
    }

    fn check(&self, part: &str) -> Result<(), String> {
        let (least, most) = (self.least, self.most);
        let halves: Vec<&str> = part.split('/').collect();
        let ends: Vec<&str> = halves.first().copied().unwrap_or_default().split('-').collect();
        let (first, mut last) = match ends.as_slice() {
            ["*" | "?", ..] => (least, most),
            [one] => (self.number(one)?, self.number(one)?),
            [first, last] => (self.number(first)?, self.number(last)?),
            [first, ..] => {
                self.number(first)?;
                return Err(format!("too many hyphens: {part}"));
            }
            [] => return Ok(()),
        };
        let step = match halves.as_slice() {
            [_, step] => {
                if ends.len() == 1 {
                    last = most;
                }
                number(step)?
            }
            [_] => 1,
            _ => return Err(format!("too many slashes: {part}")),
        };
        if first < least {
            return Err(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if last > most {
            return Err(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        if first > last {
            return Err(format!(
                "beginning of range ({first}) beyond end of range ({last}): {part}"
            ));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        Ok(())
    }

    fn number(&self, text: &str) -> Result<u64, String> {
        let named = self.names.iter().position(|name| *name == text.to_lowercase());
        match named.and_then(|at| u64::try_from(at).ok()) {
            Some(at) => Ok(at + self.least),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => {
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            let shown = quote(text);
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {shown}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "*/5 0-6 1,15 jan-MAR mon",
            "0 0 ? * 0",
            "0,30, * * * *",
            "@daily",
            "@every 1h30m",
            "TZ=UTC * * * * *",
        ] {
            assert_eq!(fault_of_schedule(good), None, "{good}");
        }
        for bad in [
            "60 * * * *",
            "30-10 * * * *",
            "1-2-3 * * * *",
            "mon * * * *",
            "* * 0 * *",
            "*/0 * * * *",
            "@never",
            "@every x",
            "* * * *",
            "*/1/2 * * * *",
            "TZ=Mars/Base * * * * *",
            "TZ=UTC",
        ] {
            assert!(fault_of_schedule(bad).is_some(), "{bad}");
        }
    }
}
