//! The progress of a command, on standard error if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The interval at which the spinner turns while nothing advances.
const TICK: Duration = Duration::from_millis(120);

const COUNT: &str = "{spinner} {msg} objects: {human_pos} ({per_sec})";
const COUNT_OF_TOTAL: &str = "{bar:30} {msg} objects: {human_pos} of {human_len} ({eta} left)";
const TIME: &str = "{spinner} {msg} for {elapsed}";

/// A line with a count, which is removed when it is dropped. Nothing is printed if standard error is not a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows a count of objects behind this verb, such as `exporting`.
    pub fn counting(verb: &'static str) -> Self {
        Self::shown(ProgressBar::no_length(), verb, COUNT)
    }

    /// Shows a count of objects of a known total.
    pub fn counting_to(total: usize, verb: &'static str) -> Self {
        Self::shown(ProgressBar::new(total as u64), verb, COUNT_OF_TOTAL)
    }

    /// Shows that a command works, whose parts are not counted.
    pub fn working(verb: &'static str) -> Self {
        Self::shown(ProgressBar::no_length(), verb, TIME)
    }

    /// Counts one more object.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    fn shown(bar: ProgressBar, verb: &'static str, template: &str) -> Self {
        let bar = bar.with_message(verb);
        // A test checks the templates.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        // The ticks need a thread.
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [COUNT, COUNT_OF_TOTAL, TIME] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn objects_are_counted() {
        let progress =
            [Progress::counting("a"), Progress::counting_to(2, "b"), Progress::working("c")];
        for progress in &progress {
            progress.advance();
            assert_eq!(progress.0.position(), 1);
        }
        assert_eq!(progress[1].0.length(), Some(2));
    }
}
