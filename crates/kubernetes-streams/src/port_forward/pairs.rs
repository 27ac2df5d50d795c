//! The streams of forwarded connections, which clients create one by one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::protocol::parse_port;
use crate::spdy::{Incoming, Stream};

/// The headers of a stream. Their names are lower-case in SPDY.
const STREAM_TYPE: &str = "streamtype";
const PORT: &str = "port";
const REQUEST_ID: &str = "requestid";

/// The streams of a forwarded connection.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) port: u16,
    pub(super) data: Stream,
    pub(super) error: Stream,
}

/// The streams that wait for the other stream of their pair.
#[derive(Debug)]
pub(super) struct Pairs {
    timeout: Duration,
    waiting: HashMap<Vec<u8>, Half>,
    /// The waiting requests in the order of their deadlines. Without a deadline, they wait for ever.
    deadlines: VecDeque<(Option<Instant>, Vec<u8>)>,
}

#[derive(Debug)]
struct Half {
    is_data: bool,
    port: u16,
    stream: Stream,
}

impl Pairs {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, waiting: HashMap::new(), deadlines: VecDeque::new() }
    }

    /// Accepts a stream, and returns its pair when it is complete. Streams with invalid headers, and a second stream of
    /// the same type, are refused.
    pub(super) fn add(&mut self, incoming: Incoming) -> Option<Pair> {
        let header = |name| incoming.headers().get(name).and_then(|value| value.to_str().ok());
        let port = header(PORT)?;
        let port = parse_port(port, port).ok()?;
        let is_data = match header(STREAM_TYPE)? {
            "data" => true,
            "error" => false,
            _ => return None,
        };
        let request = match header(REQUEST_ID).filter(|request| !request.is_empty()) {
            Some(request) => request.as_bytes().to_vec(),
            // Old clients create both streams without another one between them, the one for the error first.
            None => {
                let first = if is_data { incoming.id().checked_sub(2)? } else { incoming.id() };
                first.to_string().into_bytes()
            }
        };
        let Some(half) = self.waiting.remove(&request) else {
            let deadline = Instant::now().checked_add(self.timeout);
            self.deadlines.push_back((deadline, request.clone()));
            let stream = incoming.accept();
            self.waiting.insert(request, Half { is_data, port, stream });
            return None;
        };
        if half.is_data == is_data {
            self.waiting.insert(request, half);
            return None;
        }
        self.deadlines.retain(|(_, waiting)| *waiting != request);
        let stream = incoming.accept();
        Some(match half.is_data {
            true => Pair { port: half.port, data: half.stream, error: stream },
            false => Pair { port, data: stream, error: half.stream },
        })
    }

    /// Waits until a stream has waited for too long, and returns it if it is for an error.
    pub(super) async fn expired(&mut self) -> Option<Stream> {
        let Some((Some(deadline), _)) = self.deadlines.front() else {
            return std::future::pending().await;
        };
        sleep_until(*deadline).await;
        let (_, request) = self.deadlines.pop_front()?;
        let half = self.waiting.remove(&request)?;
        (!half.is_data).then_some(half.stream)
    }
}
