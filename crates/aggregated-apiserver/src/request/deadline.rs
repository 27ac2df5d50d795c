//! The deadline of requests: the client's `timeout`, limited by the server's `--request-timeout`. Watches have a
//! separate limit.

use std::time::Duration;

use http::request::Parts;

use crate::error::{ApiError, quote};

/// The default of the longest duration of a request that is not a watch; same as in kube-apiserver.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest duration in Go, in seconds: nanoseconds in 63 bits.
const LONGEST: f64 = 9_223_372_036.0;

/// Returns the longest duration of a request, at most `longest`.
///
/// # Errors
/// 400 if the client's `timeout` is not a duration.
pub(super) fn deadline(
    head: &Parts,
    is_watch: bool,
    longest: Duration,
) -> Result<Duration, ApiError> {
    let query = head.uri.query().unwrap_or_default();
    let given = super::query::pairs(query).find(|(key, _)| key == "timeout");
    let Some((_, text)) = given.filter(|(_, text)| !text.is_empty()) else {
        return Ok(longest);
    };
    if is_watch {
        return Ok(longest);
    }
    let seconds = parse_duration(&text).map_err(|why| {
        ApiError::bad_request(format!("invalid timeout specified in the request URL - time: {why}"))
    })?;
    // A negative timeout counts as none.
    let asked = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Ok(if asked.is_zero() { longest } else { asked.min(longest) })
}

/// Parses a duration in Go's format, such as `1m30s`. Returns seconds.
fn parse_duration(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("μs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let invalid = || format!("invalid duration {}", quote(text));
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(0.0);
    }
    let mut rest = unsigned;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let mut end = digits(rest);
        if rest[end..].starts_with('.') {
            end += 1 + digits(&rest[end + 1..]);
        }
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        rest = behind;
        let has_digits = number.bytes().any(|byte| byte.is_ascii_digit());
        let number: f64 =
            if has_digits { number.parse().ok() } else { None }.ok_or_else(invalid)?;
        if unit.is_empty() {
            return Err(format!("missing unit in duration {}", quote(text)));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, factor) = known
            .ok_or_else(|| format!("unknown unit {} in duration {}", quote(unit), quote(text)))?;
        seconds += number * factor;
    }
    if unsigned.is_empty() || seconds > LONGEST {
        return Err(invalid());
    }
    Ok(if text.starts_with('-') { -seconds } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn asked(query: &str) -> Result<Duration, String> {
        asked_of(query, REQUEST_TIMEOUT)
    }

    fn asked_of(query: &str, longest: Duration) -> Result<Duration, String> {
        let request = Request::builder().uri(format!("/x?{query}")).body(()).unwrap();
        deadline(&request.into_parts().0, query.starts_with("watch"), longest)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_timeout_parameter_can_only_shorten_the_server_timeout() {
        let given = Duration::from_secs(90);
        for (query, seconds) in [("", 90), ("timeout=2m", 90), ("timeout=7s", 7), ("timeout=0", 90)]
        {
            assert_eq!(asked_of(query, given), Ok(Duration::from_secs(seconds)), "{query}");
        }
    }

    #[test]
    fn request_timeouts_are_parsed_as_go_durations() {
        let rows = [
            ("", 60_000),
            ("timeout=", 60_000),
            ("timeout=7s", 7_000),
            ("timeout=1m30s", 60_000),
            ("timeout=0.5s", 500),
            ("timeout=1m-", 0),
            ("timeout=250ms", 250),
            ("timeout=0", 60_000),
            ("timeout=-5s", 60_000),
            ("timeout=6m56s", 60_000),
            ("watch=1&timeout=soon", 60_000),
        ];
        for (query, milliseconds) in rows {
            match asked(query) {
                Ok(asked) => assert_eq!(asked, Duration::from_millis(milliseconds), "{query}"),
                Err(_) => assert_eq!(milliseconds, 0, "{query}"),
            }
        }
        let said = |query| asked(query).unwrap_err();
        let start = "invalid timeout specified in the request URL - time: ";
        assert_eq!(said("timeout=soon"), format!("{start}invalid duration \"soon\""));
        assert_eq!(said("timeout=10"), format!("{start}missing unit in duration \"10\""));
        assert_eq!(said("timeout=1x"), format!("{start}unknown unit \"x\" in duration \"1x\""));
        assert_eq!(said("timeout=1.5.5s"), format!("{start}missing unit in duration \"1.5.5s\""));
        assert_eq!(said("timeout=9999999h"), format!("{start}invalid duration \"9999999h\""));
        assert_eq!(said("timeout=%2B"), format!("{start}invalid duration \"+\""));
    }
}
