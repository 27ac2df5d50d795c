//! The budget of HTTP/2 frames that carry no request but cost time, such as PING, SETTINGS and RST_STREAM. Only an
//! attacker sends many of them. Frames beyond the budget are read slowly.

use std::time::Duration;

use tokio::time::Instant;

/// The first bytes of every HTTP/2 connection.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of the head of a frame: a length of three bytes, type, flags, and stream.
const FRAME_HEAD: usize = 9;
/// DATA and HEADERS. These frames have no cost unless they are empty, because they carry requests. Small pieces of
/// bodies are limited where bodies are read.
const CARRIERS: [u8; 2] = [0, 1];

/// SETTINGS, with its cost: it can affect every stream of the connection. Clients send one, and an acknowledgement of
/// the server's.
const SETTINGS: u8 = 4;
const SETTINGS_COST: i64 = 3_000;
const ACKNOWLEDGED: u8 = 1;

/// The largest number of frames that may arrive at once.
const BURST: i64 = 10_000;
/// The number of frames that may arrive per second in the long run.
const PER_SECOND: i64 = 1_000;
/// The number of sent bytes that allow one more frame, because clients that read send WINDOW_UPDATE frames.
const SENT_PER_FRAME: u64 = 512;
/// The largest debt, in frames. One read may contain more frames than the budget allows. The next read waits for them,
/// but for no more than a minute.
const DEBT: i64 = 60 * PER_SECOND;

/// Counts frames as their bytes arrive.
pub(super) struct FrameBudget {
    progress: Progress,
    left: i64,
    filled: Instant,
    /// The number of bytes sent that have not yet added a frame to the budget.
    sent: u64,
}

enum Progress {
    /// The number of bytes of the preface that have arrived.
    Preface(usize),
    /// The bytes of the head of a frame, and how many of them have arrived.
    Head([u8; FRAME_HEAD], usize),
    /// The number of bytes of a frame that have not arrived yet.
    Payload(usize),
    /// The connection does not use HTTP/2.
    Other,
}

impl FrameBudget {
    pub(super) fn new() -> Self {
        let (progress, left) = (Progress::Preface(0), BURST);
        Self { progress, left, filled: Instant::now(), sent: 0 }
    }

    /// Counts the frames that begin in these bytes.
    pub(super) fn received(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.progress {
                Progress::Other => return,
                Progress::Preface(seen) => {
                    let length = bytes.len().min(PREFACE.len() - *seen);
                    if bytes[..length] != PREFACE[*seen..*seen + length] {
                        self.progress = Progress::Other;
                        return;
                    }
                    *seen += length;
                    bytes = &bytes[length..];
                    if *seen == PREFACE.len() {
                        self.progress = Progress::Head([0; FRAME_HEAD], 0);
                    }
                }
                Progress::Head(head, seen) => {
                    let length = bytes.len().min(FRAME_HEAD - *seen);
                    head[*seen..*seen + length].copy_from_slice(&bytes[..length]);
                    *seen += length;
                    bytes = &bytes[length..];
                    if *seen == FRAME_HEAD {
                        let [high, middle, low, kind, flags, ..] = *head;
                        let payload = u32::from_be_bytes([0, high, middle, low]) as usize;
                        let cost = match kind {
                            SETTINGS if flags & ACKNOWLEDGED == 0 => SETTINGS_COST,
                            _ => i64::from(payload == 0 || !CARRIERS.contains(&kind)),
                        };
                        self.left = (self.left - cost).max(-DEBT);
                        self.progress = match payload {
                            0 => Progress::Head([0; FRAME_HEAD], 0),
                            payload => Progress::Payload(payload),
                        };
                    }
                }
                Progress::Payload(left) => {
                    let length = bytes.len().min(*left);
                    *left -= length;
                    bytes = &bytes[length..];
                    if *left == 0 {
                        self.progress = Progress::Head([0; FRAME_HEAD], 0);
                    }
                }
            }
        }
    }

    /// Adds sent bytes to the budget.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        let earned = i64::try_from(self.sent / SENT_PER_FRAME).unwrap_or(BURST);
        self.left = (self.left + earned.min(BURST)).min(BURST);
        self.sent %= SENT_PER_FRAME;
    }

    /// The time at which reading may continue; `None` for now.
    pub(super) fn wait(&mut self) -> Option<Instant> {
        if self.left > 0 {
            return None;
        }
        let now = Instant::now();
        let passed = now.duration_since(self.filled).as_millis();
        let earned = i64::try_from(passed).unwrap_or(DEBT).min(DEBT + BURST) * PER_SECOND / 1_000;
        self.left = (self.left + earned).min(BURST);
        self.filled = now;
        if self.left > 0 {
            return None;
        }
        // Bytes that are sent in the meantime may add the rest to the budget.
        Some(now + Duration::from_millis(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        frame.extend(payload);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn http2_control_frames_are_counted_across_chunk_boundaries() {
        let mut bytes = PREFACE.to_vec();
        for (kind, payload) in [
            (4, &[][..]),
            (1, b"a request"),
            (0, b"its body"),
            (0, b""),
            (6, b"01234567"),
            (8, b"0123"),
        ] {
            bytes.extend(frame(kind, payload));
        }
        for size in 1..bytes.len() {
            let mut budget = FrameBudget::new();
            bytes.chunks(size).for_each(|chunk| budget.received(chunk));
            assert_eq!(BURST - budget.left, SETTINGS_COST + 3, "in pieces of {size}");
        }
        let mut other = FrameBudget::new();
        other.received(&b"GET / HTTP/1.1\r\n".repeat(1_000));
        assert_eq!(other.left, BURST);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_frame_floods_are_throttled_until_the_client_reads_responses() {
        let mut budget = FrameBudget::new();
        budget.received(PREFACE);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let pings = frame(6, b"01234567").repeat(usize::try_from(BURST).unwrap());
        budget.received(&pings);
        assert_eq!(budget.wait(), None, "a minute without any was earned");
        budget.received(&pings);
        let until = budget.wait().unwrap();
        tokio::time::sleep_until(until).await;
        assert_eq!(budget.wait(), None);
        assert!((50..=150).contains(&budget.left), "{}", budget.left);
        budget.received(&frame(6, b"01234567").repeat(1_000));
        assert!(budget.wait().is_some());
        let missing = budget.left;
        budget.sent(1 << 20);
        assert_eq!((budget.wait(), budget.left), (None, missing + 2_048));
    }

    #[tokio::test(start_paused = true)]
    async fn http2_frames_beyond_the_budget_delay_the_next_reads() {
        let mut budget = FrameBudget::new();
        budget.received(PREFACE);
        // One read may contain this many frames, and each of them affects every stream.
        let settings = frame(4, b"012345");
        budget.received(&settings.repeat(1_000));
        let wait = async |budget: &mut FrameBudget| {
            let begun = Instant::now();
            while let Some(until) = budget.wait() {
                tokio::time::sleep_until(until).await;
            }
            begun.elapsed().as_secs_f64()
        };
        let waited = wait(&mut budget).await;
        assert!((59.0..=61.0).contains(&waited), "{waited}");
        // A single frame waits only for its own cost.
        budget.received(&settings);
        let waited = wait(&mut budget).await;
        assert!((2.0..=4.0).contains(&waited), "{waited}");
    }
}
