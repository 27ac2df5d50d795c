//! Where events are written: lines of a file that is rotated, or of standard output. A thread of
//! its own writes them, so that no request waits for a disk. What it cannot take in time is dropped,
//! counted and said.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::rotation::{RotatedFile, Rotation};
use crate::occasionally::Occasionally;

/// Bytes of events that wait to be written: some thousands of usual ones, more than a slow disk
/// falls behind in seconds. No user's take more than a quarter of it.
pub(super) const WAITING: usize = 16 << 20;
/// How long an event waits for others: to wake a thread for each costs more than to write them all.
const GATHER: Duration = Duration::from_millis(10);
/// How long the end of the server waits for the last events.
const LAST: Duration = Duration::from_secs(5);
/// How often it is said that events were dropped.
const SAY_EVERY: Duration = Duration::from_secs(60);

static FAILED: Occasionally = Occasionally::at_most(1);

/// Where events go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Standard output.
    StandardOutput,
    /// A file, and when another one is begun.
    File(PathBuf, Rotation),
}

/// What has become of events.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Those that were made.
    pub events: AtomicU64,
    /// Those for which there was no room.
    pub dropped: AtomicU64,
    /// Those that could not be written.
    pub failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Whether the writer waits until there is a line.
    is_idle: bool,
    /// How many wait until all lines are written.
    flushes: usize,
    is_closed: bool,
    is_done: bool,
    /// Events that were dropped since that was said last.
    dropped: u64,
    said: Option<Instant>,
}

impl State {
    /// How many were dropped since that was said last, if it is time to say so.
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

/// Lines that are written by a thread of their own; the last ones when this is dropped.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the file, if there is one, and begins to write.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(destination: Destination) -> io::Result<Self> {
        let sink: Box<dyn Write + Send> = match destination {
            Destination::StandardOutput => Box::new(io::stdout()),
            Destination::File(path, rotation) => Box::new(RotatedFile::open(path, rotation)?),
        };
        Self::to(sink)
    }

    fn to(mut sink: Box<dyn Write + Send>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writing = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writing.write(&mut *sink))?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// What has become of events.
    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Takes a line about a request of this user, with its end, if there is room for it.
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

    /// Returns when no line waits any more, or after five seconds; says in the log how many were not written by
    /// then.
    pub(super) fn flush(&self) {
        self.shared.lock().flushes += 1;
        self.shared.changed.notify_all();
        self.shared.wait(|state| state.queue.is_empty());
        self.shared.lock().flushes -= 1;
    }
}

/// Says that events were dropped.
fn tell(dropped: Option<u64>) {
    if let Some(dropped) = dropped {
        tracing::warn!(
            "{dropped} audit events were dropped: they come faster than they can be written"
        );
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something, but not for long; whether it has come.
    fn wait(&self, is_there: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + LAST;
        let mut state = self.lock();
        while !is_there(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lost = state.queue.lines();
                drop(state);
                tracing::warn!("the last {lost} audit events were not written in time");
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The next lines; none when there will be no more.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            // What was dropped is said also if nothing comes any more.
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

    /// Writes lines until there will be no more.
    fn write(&self, sink: &mut (dyn Write + Send)) {
        while let Some(text) = self.next() {
            let result = sink.write_all(&text).and_then(|()| sink.flush());
            // Until it is written it takes its room.
            let mut state = self.lock();
            let lines = state.queue.written(text);
            let failed = if result.is_err() { lines } else { 0 };
            self.counts.failed.fetch_add(failed, Ordering::Relaxed);
            let is_empty = state.queue.is_empty();
            drop(state);
            if let Err(why) = result {
                FAILED.log(|left_out| {
                    tracing::error!(left_out, "audit events cannot be written: {why}");
                });
            }
            if is_empty {
                self.changed.notify_all();
            }
        }
        let _ = sink.flush();
        self.lock().is_done = true;
        self.changed.notify_all();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        if self.shared.wait(|state| state.is_done)
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

    /// A disk that writes nothing until it is told to.
    struct Slow(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.send(bytes.to_owned()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_disk_holds_nobody_up_and_costs_no_more_than_its_room() {
        let (go, going) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let log = Log::to(Box::new(Slow(going, written))).unwrap();
        let line = vec![b'x'; 1 << 20];
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
    fn one_user_does_not_push_out_what_others_do() {
        let (go, going) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let log = Log::to(Box::new(Slow(going, written))).unwrap();
        for _ in 0..100 {
            log.take(&[b'l'; 1 << 20], "loud");
        }
        log.take(&[b'q'; 1 << 10], "quiet");
        let dropped = log.counts().dropped.load(Ordering::Relaxed);
        assert_eq!(dropped, 100 - (WAITING >> 22) as u64, "a quarter is for one user");
        drop(go);
        log.flush();
        let all: Vec<Vec<u8>> = lines.try_iter().collect();
        assert_eq!(all.len(), (WAITING >> 22) + 1, "all are written when it is flushed");
        assert_eq!(all.last().unwrap()[0], b'q');
    }

    #[test]
    fn drops_are_counted_and_said_once_a_minute() {
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
