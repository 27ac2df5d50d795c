//! Where events are written: lines of a file that is rotated, or of standard output. A thread of
//! its own writes them, so that no request waits for a disk. What it cannot take in time is dropped,
//! counted and said.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::rotation::{RotatedFile, Rotation};
use crate::occasionally::Occasionally;

/// Bytes of events that wait to be written: some thousands of usual ones, more than a slow disk
/// falls behind in seconds.
const WAITING: usize = 16 << 20;
/// How long the end of the server waits for the last events.
const LAST: Duration = Duration::from_secs(5);

static DROPPED: Occasionally = Occasionally::at_most(1);
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

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_closed: bool,
    is_done: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
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

    /// Takes a line, with its end, if there is room for it.
    pub(super) fn take(&self, line: Vec<u8>) {
        let counts = &self.shared.counts;
        counts.events.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.bytes + line.len() > WAITING {
            drop(queue);
            let dropped = counts.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            DROPPED.log(|_| {
                tracing::warn!(
                    "audit events are dropped, {dropped} until now: they come faster than they can be written"
                );
            });
            return;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line);
        drop(queue);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// Writes lines until there will be no more.
    fn write(&self, sink: &mut (dyn Write + Send)) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            while queue.lines.is_empty() && !queue.is_closed {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(line) = queue.lines.pop_front() else {
                drop(queue);
                let _ = sink.flush();
                let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.is_done = true;
                drop(queue);
                self.changed.notify_all();
                return;
            };
            drop(queue);
            let written = sink.write_all(&line).and_then(|()| sink.flush());
            if let Err(why) = written {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                FAILED.log(|left_out| {
                    tracing::error!(left_out, "audit events cannot be written: {why}");
                });
            }
            // Until it is written it takes its room.
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.bytes -= line.len();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let until = Instant::now() + LAST;
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_closed = true;
        self.shared.changed.notify_all();
        while !queue.is_done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lost = queue.lines.len();
                tracing::warn!("the last {lost} audit events were not written in time");
                return;
            }
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        if let Some(writer) = self.writer.take() {
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
        for _ in 0..100 {
            log.take(line.clone());
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let counts = log.counts();
        assert_eq!(counts.events.load(Ordering::Relaxed), 100);
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 100 - (WAITING >> 20) as u64);
        drop(go);
        drop(log);
        assert_eq!(lines.into_iter().count(), WAITING >> 20, "the last ones are written");
    }
}
