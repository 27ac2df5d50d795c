//! Log lines that clients can cause: of each sort at most one or a few a minute, and cut.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::quote;

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
    left_out: u64,
}

impl Default for Occasionally {
    fn default() -> Self {
        Self::at_most(1)
    }
}

impl Occasionally {
    /// So many lines a minute.
    pub const fn at_most(most: u32) -> Self {
        Self { most, lines: Mutex::new(Lines { since: None, logged: 0, left_out: 0 }) }
    }

    /// Logs a line, unless as many of its sort as may be were logged within a minute. `log` is
    /// told how many were left out since the last one.
    pub fn log(&self, log: impl FnOnce(u64)) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| since.elapsed() >= EVERY) {
            lines.since = Some(Instant::now());
            lines.logged = 0;
        }
        if lines.logged >= self.most {
            lines.left_out += 1;
            return;
        }
        lines.logged += 1;
        let left_out = std::mem::take(&mut lines.left_out);
        drop(lines);
        log(left_out);
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
            line.log(|left_out| logged.push(left_out));
        }
        assert_eq!(logged, [0]);
        line.lines.lock().unwrap().since = Instant::now().checked_sub(EVERY);
        line.log(|left_out| logged.push(left_out));
        assert_eq!(logged, [0, 2]);
    }

    #[test]
    fn what_a_stranger_sent_is_cut() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        let long = shown("é".repeat(1_000));
        assert_eq!(long.chars().count(), SHOWN + 3);
    }
}
