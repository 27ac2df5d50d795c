//! Traces: each request as spans, which an OpenTelemetry collector combines with the spans of other programs.
//!
//! A traced request has a [`Trace`] from its authentication on. Its spans are generated when it has ended, from the
//! measurements of its record. Without a collector, or if a request is not sampled, there is no [`Trace`] and tracing
//! costs nothing. Requests write their `spans` into a queue of limited size (`waiting`) and never wait; a thread sends
//! the spans (`otlp`).

// Without the feature `otlp` spans are never generated, so the code for them is unused.
#![cfg_attr(not(feature = "otlp"), allow(dead_code))]

mod configuration;
mod context;
#[cfg(feature = "otlp")]
mod otlp;
mod protobuf;
mod spans;
mod waiting;

pub use configuration::TracingConfiguration;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use http::request::Parts;
use tokio::sync::{mpsc, oneshot};

use super::{Ending, Record};
use crate::clock::Clock;
use crate::user::{MASTERS, User};
use context::Remote;
use protobuf::Message;
use waiting::{WAITING_MEMORY, Waiting};

/// The group whose requests continue the traces in their headers, like requests of administrators. Same as in
/// kube-apiserver.
const MONITORING: &str = "system:monitoring";
/// The largest size of a string from a client in a span, in bytes. Longer strings are truncated.
const LIMIT: usize = 1_024;

/// The exporter for the spans of requests.
#[derive(Debug)]
pub struct Traces {
    configuration: TracingConfiguration,
    clock: Clock,
    waiting: Arc<Waiting>,
    /// The channel to request a flush. The sender in a message is notified when all spans have been sent.
    flush: mpsc::Sender<oneshot::Sender<()>>,
    counts: Arc<Counts>,
}

/// Counters of spans.
#[derive(Debug, Default)]
struct Counts {
    /// The spans that the collector has accepted.
    exported: AtomicU64,
    /// The spans that were dropped because the queue was full.
    dropped: AtomicU64,
    /// The spans that the collector has not accepted.
    failed: AtomicU64,
}

/// The trace of a request.
#[derive(Debug)]
pub(super) struct Trace {
    traces: Arc<Traces>,
    user: Arc<User>,
    begun: Begun,
}

/// The part of a trace that a write needs after its request has ended.
#[derive(Debug)]
pub(super) struct Remains {
    trace: Box<Trace>,
    /// The end of the request, in nanoseconds since 1970.
    ended: u64,
}

/// The data of a trace that are known when its request arrives, besides those of the record.
#[derive(Debug)]
struct Begun {
    trace: u128,
    span: u64,
    /// The parent span of the client; 0 without parent.
    parent: u64,
    /// A span of another trace, which an untrusted client has named.
    link: Option<Remote>,
    /// The arrival of the request, in nanoseconds since 1970.
    started: u64,
    address: Option<IpAddr>,
    user_agent: Option<HeaderValue>,
}

/// A request that has arrived, with the data that a trace needs.
pub(super) struct Arrival<'a> {
    pub head: &'a Parts,
    pub address: Option<IpAddr>,
    /// Whether kube-apiserver has forwarded the request.
    pub is_from_front_proxy: bool,
    /// The time since the request arrived.
    pub received: Duration,
}

impl Traces {
    /// Starts to export spans. They carry this service name and instance.
    /// # Errors
    /// Returns an error if this program was built without traces, or if the endpoint is invalid.
    pub fn open(
        configuration: TracingConfiguration,
        (service, instance): (&str, &str),
        clock: Clock,
    ) -> Result<Self, String> {
        #[cfg(feature = "otlp")]
        {
            let (waiting, counts) = (Arc::new(Waiting::new()), Arc::new(Counts::default()));
            let (flush, flushes) = mpsc::channel(1);
            let endpoint = &configuration.endpoint;
            let sender = otlp::Sender::new(Arc::clone(&waiting), flushes, Arc::clone(&counts));
            sender.begin(endpoint, (service, instance))?;
            Ok(Self { configuration, clock, waiting, flush, counts })
        }
        #[cfg(not(feature = "otlp"))]
        {
            let _ = (configuration, service, instance, clock);
            Err("traces are not built into this program (the feature otlp)".to_owned())
        }
    }

    /// The memory of a request until it has ended, besides the memory of its head, in bytes.
    pub const MEMORY_OF_REQUEST: usize = size_of::<Trace>();

    /// The largest memory of spans until they are sent, including the batch that is being sent, in bytes.
    pub fn memory(&self) -> usize {
        #[cfg(feature = "otlp")]
        let sending = otlp::SENDING_BYTES;
        #[cfg(not(feature = "otlp"))]
        let sending = 0;
        WAITING_MEMORY + sending
    }

    /// The endpoint of the collector.
    pub fn endpoint(&self) -> &str {
        &self.configuration.endpoint
    }

    /// The counters of spans: `exported`, `dropped` because the queue was full, and `failed` because the collector has
    /// not accepted them.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { exported, dropped, failed } = &*self.counts;
        [("exported", of(exported)), ("dropped", of(dropped)), ("failed", of(failed))]
    }

    /// Waits until all present spans are sent, or until the timeout. If the collector has not accepted some of them, a
    /// warning contains their number.
    pub async fn flush(&self, longest: Duration) {
        let failed = || self.counts.failed.load(Ordering::Relaxed);
        let before = failed();
        let (done, flushed) = oneshot::channel();
        let flush = async {
            // An error means that the thread has ended, so no span is left to be sent.
            if self.flush.send(done).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = tokio::time::timeout(longest, flush).await;
        // The queue is read before the counter: lost spans are counted before they leave the queue.
        let waiting = self.waiting.spans();
        let lost = failed() - before + waiting;
        if lost > 0 {
            tracing::warn!(
                endpoint = %self.endpoint(),
                lost,
                "spans were not sent before the exit"
            );
        }
    }

    /// Adds spans of a user to the queue, or counts them as dropped if it is full.
    fn add(&self, user: &User, count: u64, write: impl FnOnce(&mut Message)) {
        if !self.waiting.add(&user.name, count, write) {
            self.counts.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the trace of a request of this user; `None` if it is not sampled.
    ///
    /// Traces of administrators and of the group [`MONITORING`] are sampled if the client demands it, same as in
    /// kube-apiserver. A trace of a request that kube-apiserver has forwarded continues here, at the sampling rate of
    /// this server: a kube-apiserver without tracing forwards the headers of its clients unchanged. For other clients,
    /// a new trace begins, with a link to the trace of the client.
    pub(super) fn begin(
        self: &Arc<Self>,
        arrival: &Arrival<'_>,
        user: &Arc<User>,
    ) -> Option<Box<Trace>> {
        let remote = Remote::of(&arrival.head.headers);
        let is_group = |group: &String| group == MASTERS || group == MONITORING;
        let decides = remote.is_some() && user.groups.iter().any(is_group);
        let before = remote.filter(|_| decides || arrival.is_from_front_proxy);
        let (trace, is_sampled) = match before {
            Some(remote) if decides => (remote.trace, remote.is_sampled),
            _ if self.configuration.sampling_rate_per_million == 0 => return None,
            Some(remote) => {
                (remote.trace, remote.is_sampled && self.configuration.samples(remote.trace))
            }
            None => {
                let trace = u128::from(self.clock.random()) << 64 | u128::from(self.clock.random());
                (trace.max(1), self.configuration.samples(trace))
            }
        };
        if !is_sampled {
            return None;
        }
        let span = match before {
            Some(_) => self.clock.random(),
            // The identifier of a new trace is random, so the identifier of its first span is derived from it.
            None => trace as u64 ^ (trace >> 64) as u64,
        };
        let now = u64::try_from(self.clock.now().as_nanosecond()).unwrap_or_default();
        let received = u64::try_from(arrival.received.as_nanos()).unwrap_or_default();
        Some(Box::new(Trace {
            traces: Arc::clone(self),
            user: Arc::clone(user),
            begun: Begun {
                trace,
                span: span.max(1),
                parent: before.map_or(0, |remote| remote.span),
                link: remote.filter(|_| before.is_none()),
                started: now.saturating_sub(received),
                address: arrival.address,
                user_agent: arrival.head.headers.get(USER_AGENT).cloned(),
            },
        }))
    }
}

impl Trace {
    /// Adds the spans of a request that has ended to the queue, if there is capacity for them.
    pub(super) fn end(&self, record: &Record) {
        let count = spans::count(record);
        self.traces.add(&self.user, count, |to| spans::write(&self.begun, record, to));
    }

    /// Reduces the trace to the part that a write needs after its request. `took` is the duration of the request.
    pub(super) fn remains(mut self: Box<Self>, took: Duration) -> Remains {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // The header references the memory of all headers of the request.
        self.begun.user_agent = None;
        let ended = self.begun.started.saturating_add(took);
        Remains { trace: self, ended }
    }
}

impl Remains {
    /// Adds the span of a write that has ended after its request to the queue.
    pub(super) fn end(self, ending: &Ending, audit_id: &HeaderValue) {
        let Self { trace, ended } = self;
        let Trace { traces, user, begun } = *trace;
        let now = u64::try_from(traces.clock.now().as_nanosecond()).unwrap_or_default();
        let (span, times) = (traces.clock.random().max(1), (ended, now.max(ended)));
        traces.add(&user, 1, |to| spans::write_after(&begun, (span, times), ending, audit_id, to));
    }
}

/// Converts a header to a string, and truncates it to [`LIMIT`].
fn text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    // The header is truncated before it is decoded, because it can be long.
    let bytes = bytes.get(..LIMIT).unwrap_or(bytes);
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The flags of a sampled span in OTLP. `is_remote` is whether its parent or link belongs to another process.
fn is_sampled_flags(is_remote: bool) -> u32 {
    if is_remote { 0x301 } else { 0x101 }
}

/// Truncates a string to this number of bytes.
fn beginning(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Returns the trace of a request, if it is sampled.
    fn trace(rate: u32, user: &[&str], is_from_front_proxy: bool) -> Option<Begun> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: {rate}"
        );
        let traces = Arc::new(Traces {
            configuration: TracingConfiguration::parse(&text).unwrap(),
            clock: Clock::system(),
            waiting: Arc::new(Waiting::new()),
            flush: mpsc::channel(1).0,
            counts: Arc::default(),
        });
        let request = Request::get("/apis").header("traceparent", HEADER).body(()).unwrap();
        let arrival = Arrival {
            head: &request.into_parts().0,
            address: None,
            is_from_front_proxy,
            received: Duration::ZERO,
        };
        let groups = user.iter().map(|group| (*group).to_owned()).collect();
        let trace = traces.begin(&arrival, &Arc::new(User { groups, ..User::default() }));
        trace.map(|trace| trace.begun)
    }

    #[test]
    fn traces_of_administrators_and_sampled_proxied_requests_are_continued() {
        let remote =
            Remote::of(Request::get("/").header("traceparent", HEADER).body(()).unwrap().headers());
        for (rate, groups, is_from_front_proxy) in [
            (1_000_000, &[][..], true),
            (0, &[MASTERS][..], false),
            (0, &["a", MONITORING][..], true),
        ] {
            let trace = trace(rate, groups, is_from_front_proxy).unwrap();
            let Remote { trace: number, span, .. } = remote.unwrap();
            assert_eq!((trace.trace, trace.parent, trace.link), (number, span, None));
            assert_ne!(trace.span, span);
        }
        for is_from_front_proxy in [false, true] {
            assert!(trace(0, &["system:authenticated"], is_from_front_proxy).is_none());
        }
        let linked = trace(1_000_000, &["system:authenticated"], false).unwrap();
        assert_eq!((linked.parent, linked.link), (0, remote));
        assert_ne!(linked.trace, remote.unwrap().trace);
    }
}
