//! The writer of audit events. It appends lines to a file that is rotated, or to standard output. A thread of its own
//! writes, so that no request waits for a disk. Events that exceed the limit of the queue are dropped, counted, and
//! reported in the log.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::rotation::{RotatedFile, Rotation};
use super::sink::{Plain, Sink};
use crate::log_throttle::LogThrottle;

/// The largest size of events that wait to be written, in bytes. Some thousands of usual events fit, more than
/// accumulate within seconds on a slow disk. The events of one user can use at most a quarter.
pub(super) const WAITING: usize = 16 << 20;
/// The largest memory of the queue, in bytes.
pub(super) const MEMORY: usize = Queue::memory(WAITING);
/// The time that an event waits for others. Waking the thread for each event would cost more than writing all of them.
const GATHER: Duration = Duration::from_millis(50);
/// The time that dropping the log waits for the last events, if it was not flushed before.
const LAST: Duration = Duration::from_secs(5);
/// The interval at which dropped events are reported in the log.
const SAY_EVERY: Duration = Duration::from_secs(60);

static FAILED: LogThrottle = LogThrottle::at_most(1);

/// The destination of events.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Standard output.
    StandardOutput,
    /// A file, and its rotation.
    File(PathBuf, Rotation),
}

/// Counters of events.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The events that were created.
    pub events: AtomicU64,
    /// The events that were dropped because the queue was full.
    pub dropped: AtomicU64,
    /// The events that could not be written.
    pub failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Whether the writer waits for a line.
    is_idle: bool,
    /// The number of callers that wait until all lines are written.
    flushes: usize,
    /// Whether a flush has timed out. Dropping the log then does not wait again.
    is_given_up: bool,
    is_closed: bool,
    is_done: bool,
    /// The events that were dropped since the last report.
    dropped: u64,
    said: Option<Instant>,
}

impl State {
    /// Returns the number of events that were dropped since the last report, if the next report is due.
    fn untold(&mut self) -> Option<u64> {
        let is_time = self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY);
        if self.dropped == 0 || !(is_time || self.is_closed) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.dropped))
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            queue: Queue::of(WAITING),
            is_idle: false,
            flushes: 0,
            is_given_up: false,
            is_closed: false,
            is_done: false,
            dropped: 0,
            said: None,
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    counts: Counts,
}

/// Writes lines in a thread of its own. Dropping the log writes the last lines.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the file, if the destination is one, and starts the writer.
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(super) fn open(destination: Destination) -> io::Result<Self> {
        let sink: Box<dyn Sink> = match destination {
            Destination::StandardOutput => Box::new(Plain(io::stdout())),
            Destination::File(path, rotation) => Box::new(RotatedFile::open(path, rotation)?),
        };
        Self::to(sink)
    }

    fn to(mut sink: Box<dyn Sink>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writing = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writing.write(&mut *sink))?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// The counters of events.
    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Adds a line about a request of this user, with its line break, if there is capacity for it.
    pub(super) fn take(&self, line: &[u8], user: &str) {
        let counts = &self.shared.counts;
        counts.events.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.lock();
        let had_batch = state.queue.has_batch();
        if state.queue.take(line, user) {
            let is_full = !had_batch && state.queue.has_batch();
            let wakes = std::mem::take(&mut state.is_idle) || is_full;
            drop(state);
            if wakes {
                self.shared.changed.notify_all();
            }
            return;
        }
        counts.dropped.fetch_add(1, Ordering::Relaxed);
        state.dropped += 1;
        let untold = state.untold();
        drop(state);
        tell(untold);
    }

    /// Waits until all lines are written, or until the timeout. After a timeout, a warning contains the number of lines
    /// that were not written.
    pub(super) fn flush(&self, longest: Duration) {
        self.shared.lock().flushes += 1;
        self.shared.changed.notify_all();
        let is_written = self.shared.wait(longest, |state| state.queue.is_empty());
        let mut state = self.shared.lock();
        state.flushes -= 1;
        state.is_given_up |= !is_written;
    }
}

/// Reports dropped events in the log.
fn tell(dropped: Option<u64>) {
    if let Some(dropped) = dropped {
        tracing::warn!(dropped, "dropped audit events: they arrive faster than they are written");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a condition is true, or until the timeout. Returns whether the condition is true.
    fn wait(&self, longest: Duration, is_there: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + longest;
        let mut state = self.lock();
        while !is_there(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lost = state.queue.lines();
                drop(state);
                tracing::warn!(lost, "audit events were not written before the exit");
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns the next lines; `None` if the log is closed and empty.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            // Dropped events are also reported if no further event arrives.
            if let Some(untold) = state.untold() {
                drop(state);
                tell(Some(untold));
                state = self.lock();
            }
            if state.queue.is_waiting() {
                let gathers = |state: &mut State| {
                    !state.queue.has_batch() && state.flushes == 0 && !state.is_closed
                };
                let waited = self.changed.wait_timeout_while(state, GATHER, gathers);
                return waited.unwrap_or_else(PoisonError::into_inner).0.queue.batch();
            }
            if state.is_closed {
                return None;
            }
            state.is_idle = true;
            let waited = self.changed.wait_timeout(state, SAY_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_idle = false;
        }
    }

    /// Writes lines until the log is closed and empty.
    fn write(&self, sink: &mut dyn Sink) {
        while let Some(text) = self.next() {
            let (taken, result) = sink.put(&text);
            let whole = || {
                let written = text.get(..taken).unwrap_or_default();
                written.iter().filter(|byte| **byte == b'\n').count() as u64
            };
            let whole = if result.is_err() { Some(whole()) } else { None };
            // The lines use their capacity until they are written.
            let mut state = self.lock();
            let lines = state.queue.written(text);
            let failed = whole.map_or(0, |whole| lines.saturating_sub(whole));
            self.counts.failed.fetch_add(failed, Ordering::Relaxed);
            let is_empty = state.queue.is_empty();
            drop(state);
            if let Err(why) = result {
                FAILED.log(|suppressed| {
                    tracing::error!(suppressed, error = %why, "cannot write audit events");
                });
            }
            if is_empty {
                self.changed.notify_all();
            }
        }
        self.lock().is_done = true;
        self.changed.notify_all();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let longest = {
            let mut state = self.shared.lock();
            state.is_closed = true;
            if state.is_given_up { Duration::ZERO } else { LAST }
        };
        self.shared.changed.notify_all();
        if self.shared.wait(longest, |state| state.is_done)
            && let Some(writer) = self.writer.take()
        {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A disk that writes only after the test allows it.
    struct Slow(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Sink for Slow {
        fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
            let _ = self.0.recv();
            self.1.send(lines.to_owned()).unwrap();
            (lines.len(), Ok(()))
        }
    }

    /// A disk of which this number of bytes is free.
    struct Full(usize);

    impl Sink for Full {
        fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
            let taken = lines.len().min(self.0);
            self.0 -= taken;
            let is_full = taken < lines.len();
            (taken, if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) })
        }
    }

    #[test]
    fn incompletely_written_audit_lines_count_as_failed() {
        let log = Log::to(Box::new(Full(25))).unwrap();
        for _ in 0..5 {
            log.take(b"123456789\n", "jane");
        }
        log.flush(LAST);
        assert_eq!(log.counts().failed.load(Ordering::Relaxed), 3, "two are whole, and a half");
    }

    #[test]
    fn the_audit_log_waits_only_once_for_a_hung_disk() {
        const SHORT: Duration = Duration::from_millis(50);
        let (go, going) = mpsc::channel();
        let (written, _lines) = mpsc::channel();
        let log = Log::to(Box::new(Slow(going, written))).unwrap();
        log.take(b"line\n", "jane");
        log.flush(SHORT);
        assert!(log.shared.lock().is_given_up);
        let began = Instant::now();
        drop(log);
        assert!(began.elapsed() < LAST, "its end waits no more");
        drop(go);
    }

    #[test]
    fn a_slow_disk_blocks_no_request_and_its_audit_backlog_is_limited() {
        let (go, going) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let log = Log::to(Box::new(Slow(going, written))).unwrap();
        // With the record of its user, a line has a mebibyte at most.
        let line = vec![b'x'; (1 << 20) - 1_024];
        let began = Instant::now();
        for number in 0..100 {
            log.take(&line, &format!("user-{}", number % 10));
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let counts = log.counts();
        assert_eq!(counts.events.load(Ordering::Relaxed), 100);
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 100 - (WAITING >> 20) as u64);
        drop(go);
        drop(log);
        assert_eq!(lines.into_iter().count(), WAITING >> 20, "the last ones are written");
    }

    #[test]
    fn one_user_can_use_at_most_a_quarter_of_the_audit_backlog() {
        let (go, going) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let log = Log::to(Box::new(Slow(going, written))).unwrap();
        for _ in 0..100 {
            log.take(&[b'l'; (1 << 20) - 1_024], "loud");
        }
        log.take(&[b'q'; 1 << 10], "quiet");
        let dropped = log.counts().dropped.load(Ordering::Relaxed);
        assert_eq!(dropped, 100 - (WAITING >> 22) as u64, "a quarter is for one user");
        drop(go);
        log.flush(LAST);
        let all: Vec<Vec<u8>> = lines.try_iter().collect();
        assert_eq!(all.len(), (WAITING >> 22) + 1, "all are written when it is flushed");
        assert_eq!(all.last().unwrap()[0], b'q');
    }

    #[test]
    fn dropped_audit_events_are_logged_at_most_once_a_minute() {
        let mut state = State { dropped: 3, ..State::default() };
        assert_eq!(state.untold(), Some(3));
        state.dropped = 5;
        assert_eq!(state.untold(), None, "that was said just now");
        state.said = Instant::now().checked_sub(SAY_EVERY);
        assert_eq!(state.untold(), Some(5));
        state.dropped = 1;
        state.is_closed = true;
        assert_eq!(state.untold(), Some(1), "the last ones are said at the end");
        assert_eq!(state.untold(), None);
    }
}
