//! Throttled log lines: lines that clients can cause are limited to a few of each sort per minute, and their strings
//! are truncated.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::quote;

/// The target of lines that are logged with `-v 2` and above: details of a start and of what follows it.
pub const DETAILS: &str = "details";

/// The interval in which the number of lines is limited.
const EVERY: Duration = Duration::from_secs(60);
/// The largest number of characters of untrusted input in a log line.
const SHOWN: usize = 200;

/// A sort of log line.
pub struct LogThrottle {
    /// The largest number of lines per minute.
    most: u32,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    since: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::at_most(1)
    }
}

impl LogThrottle {
    /// Allows this number of lines per minute.
    pub const fn at_most(most: u32) -> Self {
        Self { most, lines: Mutex::new(Lines { since: None, logged: 0, suppressed: 0 }) }
    }

    /// Logs a line, unless the limit of this sort was reached within the last minute. `log` receives the number of
    /// lines that were suppressed since the last one. Without suppressed lines it receives `None`, so that the line has
    /// no such field.
    pub fn log(&self, log: impl FnOnce(Option<u64>)) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| since.elapsed() >= EVERY) {
            lines.since = Some(Instant::now());
            lines.logged = 0;
        }
        if lines.logged >= self.most {
            lines.suppressed += 1;
            return;
        }
        lines.logged += 1;
        let suppressed = std::mem::take(&mut lines.suppressed);
        drop(lines);
        log(Some(suppressed).filter(|suppressed| *suppressed > 0));
    }
}

/// Untrusted input in quotes, truncated.
pub fn shown(text: impl Display) -> String {
    let text = text.to_string();
    let cut: String = text.chars().take(SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    quote(&cut) + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_logged_once_and_then_counted() {
        let line = LogThrottle::default();
        let mut logged = Vec::new();
        for _ in 0..3 {
            line.log(|suppressed| logged.push(suppressed));
        }
        assert_eq!(logged, [None]);
        line.lines.lock().unwrap().since = Instant::now().checked_sub(EVERY);
        line.log(|suppressed| logged.push(suppressed));
        assert_eq!(logged, [None, Some(2)]);
    }

    #[test]
    fn client_input_is_escaped_and_truncated_for_logs() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        let long = shown("é".repeat(1_000));
        assert_eq!(long.chars().count(), SHOWN + 3);
    }
}
