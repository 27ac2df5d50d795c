//! Log lines that clients can cause: at most one or a few of each sort in a minute, with strings that are cut.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::quote;

/// The target of lines that are logged with `-v 2` and above: details of a start and of what follows it.
pub const DETAILS: &str = "details";

/// How long so many lines are enough.
const EVERY: Duration = Duration::from_secs(60);
/// At most this many characters of what a stranger sent are logged.
const SHOWN: usize = 200;

/// One sort of line.
pub struct Occasionally {
    /// How many are logged in a minute.
    most: u32,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    since: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Default for Occasionally {
    fn default() -> Self {
        Self::at_most(1)
    }
}

impl Occasionally {
    /// So many lines a minute.
    pub const fn at_most(most: u32) -> Self {
        Self { most, lines: Mutex::new(Lines { since: None, logged: 0, suppressed: 0 }) }
    }

    /// Logs a line, unless the lines of its sort have reached their number within the last minute. `log` receives the number
    /// of lines that were suppressed since the last one; `None`, which is no field of a line, if there were none.
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

/// What a stranger sent, in quotes and cut.
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
        let line = Occasionally::default();
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
    fn what_a_stranger_sent_is_cut() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        let long = shown("é".repeat(1_000));
        assert_eq!(long.chars().count(), SHOWN + 3);
    }
}
