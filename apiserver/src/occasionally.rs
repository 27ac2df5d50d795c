//! Log lines that strangers can cause: each sort at most once a minute, and cut.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::quote;

/// The log says a thing at most this often.
const EVERY: Duration = Duration::from_secs(60);
/// At most this many characters of what a stranger sent are logged.
const SHOWN: usize = 200;

/// One sort of line.
#[derive(Default)]
pub struct Occasionally(Mutex<Line>);

#[derive(Default)]
struct Line {
    last: Option<Instant>,
    left_out: u64,
}

impl Occasionally {
    /// Logs a line, unless one of its sort was logged within the last minute. `log` is told
    /// how many were left out since.
    pub fn log(&self, log: impl FnOnce(u64)) {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if line.last.is_some_and(|last| last.elapsed() < EVERY) {
            line.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut line.left_out);
        line.last = Some(Instant::now());
        drop(line);
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
        line.0.lock().unwrap().last = Instant::now().checked_sub(EVERY);
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
