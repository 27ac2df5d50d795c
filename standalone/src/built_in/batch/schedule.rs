//! The syntax of schedules.

use crate::built_in::checks::quote;

/// What is wrong with a schedule.
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
    if schedule.starts_with('@') {
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

/// Whether a text is a duration as Go writes it, such as `1h30m`.
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

/// The numbers and names that a field of a schedule may have.
#[derive(Clone, Copy)]
struct CronField {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

impl CronField {
    fn fault(&self, part: &str) -> Option<String> {
        let (range, step) =
            part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (least, most) = (self.least, self.most);
        let ends: Vec<&str> = range.split('-').collect();
        if ends.len() > 2 {
            return Some(format!("too many hyphens: {part}"));
        }
        let mut numbers = vec![least, most];
        if !["*", "?"].contains(&range) {
            numbers.clear();
            for end in ends {
                match self.number(end) {
                    Ok(number) => numbers.push(number),
                    Err(why) => return Some(why),
                }
            }
        }
        match step.map(number) {
            Some(Err(why)) => return Some(why),
            Some(Ok(0)) => {
                return Some(format!("step of range should be a positive number: {part}"));
            }
            Some(Ok(_)) | None => {}
        }
        let (first, last) = (numbers.first().copied()?, numbers.last().copied()?);
        if first < least {
            return Some(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if last > most {
            return Some(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        (first > last)
            .then(|| format!("beginning of range ({first}) beyond end of range ({last}): {part}"))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text.to_lowercase());
        match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(at + self.least),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        let shown = quote(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {shown}: invalid syntax")
    })
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
        ] {
            assert!(fault_of_schedule(bad).is_some(), "{bad}");
        }
    }
}
