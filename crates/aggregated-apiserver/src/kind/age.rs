//! Ages in kubectl's format.

use jiff::Timestamp;

/// The age of a time in kubectl's format: `5m`, `3d2h`; `<invalid>` for a time in the future.
pub fn age(time: Timestamp, now: Timestamp) -> String {
    text(now.as_second() - time.as_second())
}

/// The age of an RFC 3339 time.
pub(super) fn of_text(text: &str, now: Timestamp) -> String {
    if text.is_empty() || text == "0001-01-01T00:00:00Z" {
        return "<unknown>".to_owned();
    }
    match text.parse::<Timestamp>() {
        Ok(time) if is_rfc_3339(text) => age(time, now),
        _ => "<invalid>".to_owned(),
    }
}

/// Whether Go accepts a time: `2026-01-01T00:00:00Z`, optionally with a fraction or an offset, and nothing else.
fn is_rfc_3339(text: &str) -> bool {
    let Some((clock, zone)) = text.split_at_checked(19) else { return false };
    let shape = |text: &str, shape: &str| {
        text.len() == shape.len()
            && text.bytes().zip(shape.bytes()).all(|(found, wanted)| match wanted {
                b'0' => found.is_ascii_digit(),
                other => found == other,
            })
    };
    let zone = match zone.strip_prefix(['.', ',']) {
        None => zone,
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if rest.len() == fraction.len() {
                return false;
            }
            rest
        }
    };
    shape(clock, "0000-00-00T00:00:00")
        && (zone == "Z" || shape(zone, "+00:00") || shape(zone, "-00:00"))
}

fn text(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, 'm', s % MINUTE, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, 'h', s % HOUR / MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, 'd', s % DAY / HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, 'y', s % YEAR / DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_times_are_recognized_as_in_go() {
        for good in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T02:00:00+02:00"]
        {
            assert!(is_rfc_3339(good), "{good}");
        }
        for bad in [
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00z",
            "20260101T000000Z",
            "2026-01-01T00:00:00Z[UTC]",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "",
            "ä",
        ] {
            assert!(!is_rfc_3339(bad), "{bad}");
        }
    }

    #[test]
    fn ages() {
        let rows = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (730 * 86400, "2y"),
            (8 * 365 * 86400, "8y"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(text(seconds), expected, "{seconds}");
        }
    }
}
