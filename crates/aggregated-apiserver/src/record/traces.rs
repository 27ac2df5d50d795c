//! Traces: what a request was, as spans that a collector of OpenTelemetry puts together with those of
//! other programs.
//!
//! A request that is traced has a [`Trace`], from the moment at which it is known who asks; its spans
//! are made when it is over, of what its record has measured anyway. Nothing else costs anything: where no
//! collector is configured, or this request is not chosen, there is no [`Trace`]. Requests write their `spans` where they wait
//! to be sent (`waiting`), which is bounded, and never wait themselves; a thread sends them (`otlp`).

// What makes them is there only with the feature `otlp`.
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

/// The group whose requests go on with the traces that they name, besides administrators; as kube-apiserver.
const MONITORING: &str = "system:monitoring";
/// At most this many bytes of a text from a client are sent.
const LIMIT: usize = 1_024;

/// Where the spans of requests go.
#[derive(Debug)]
pub struct Traces {
    configuration: TracingConfiguration,
    clock: Clock,
    waiting: Arc<Waiting>,
    /// Whoever waits until all that waits was sent.
    flush: mpsc::Sender<oneshot::Sender<()>>,
    counts: Arc<Counts>,
}

/// What has become of spans.
#[derive(Debug, Default)]
struct Counts {
    /// Those that the collector has taken.
    exported: AtomicU64,
    /// Those for which there was no room.
    dropped: AtomicU64,
    /// Those that the collector has not taken.
    failed: AtomicU64,
}

/// A request that is traced.
#[derive(Debug)]
pub(super) struct Trace {
    traces: Arc<Traces>,
    user: Arc<User>,
    begun: Begun,
}

/// What remains of the trace of a request that is over.
#[derive(Debug)]
pub(super) struct Remains {
    trace: Box<Trace>,
    /// When the request was over, in nanoseconds since 1970.
    ended: u64,
}

/// What a request says of itself when it comes, besides what its record has.
#[derive(Debug)]
struct Begun {
    trace: u128,
    span: u64,
    /// The span of the client that it is a part of; 0 if there is none.
    parent: u64,
    /// A span of another trace, which its client named and may not be believed.
    link: Option<Remote>,
    /// When it came, in nanoseconds since 1970.
    started: u64,
    address: Option<IpAddr>,
    user_agent: Option<HeaderValue>,
}

/// A request that comes, as far as traces are concerned.
pub(super) struct Arrival<'a> {
    pub head: &'a Parts,
    pub address: Option<IpAddr>,
    /// Whether kube-apiserver has sent it on.
    pub is_from_front_proxy: bool,
    /// How long ago it came.
    pub received: Duration,
}

impl Traces {
    /// Begins to send spans of a server of this name, which is known by its instance.
    ///
    /// # Errors
    /// When this program was built without traces, or the collector cannot be called so.
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

    /// Bytes of memory that are kept for a request until it is over, besides what is counted as its head.
    pub const MEMORY_OF_REQUEST: usize = size_of::<Trace>();

    /// Bytes of memory that spans take at most until they are sent, with what is on its way.
    pub fn memory(&self) -> usize {
        #[cfg(feature = "otlp")]
        let sending = otlp::SENDING_BYTES;
        #[cfg(not(feature = "otlp"))]
        let sending = 0;
        WAITING_MEMORY + sending
    }

    /// Where they go.
    pub fn endpoint(&self) -> &str {
        &self.configuration.endpoint
    }

    /// What has become of spans: `exported`, `dropped` because there was no room, `failed` because the
    /// collector has not taken them.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { exported, dropped, failed } = &*self.counts;
        [("exported", of(exported)), ("dropped", of(dropped)), ("failed", of(failed))]
    }

    /// Waits until the spans were sent that there are, for so long at most; says in the log how many the collector has not
    /// taken by then.
    pub async fn flush(&self, longest: Duration) {
        let failed = || self.counts.failed.load(Ordering::Relaxed);
        let before = failed();
        let (done, flushed) = oneshot::channel();
        let flush = async {
            // An error says that the thread is gone, and nothing is left to be sent.
            if self.flush.send(done).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = tokio::time::timeout(longest, flush).await;
        // In this order: what is lost is counted before it leaves its room.
        let waiting = self.waiting.spans();
        let lost = failed() - before + waiting;
        if lost > 0 {
            tracing::warn!("the last {lost} spans were not sent to {}", self.endpoint());
        }
    }

    /// Leaves so many spans of a user to be sent, if there is room for them.
    fn add(&self, user: &User, count: u64, write: impl FnOnce(&mut Message)) {
        if !self.waiting.add(&user.name, count, write) {
            self.counts.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The trace of a request of this user, if it is collected.
    ///
    /// Administrators, and those who watch over the cluster, decide whether their traces are collected, as in
    /// kube-apiserver. A trace that comes through kube-apiserver goes on here, at the rate of this server: a
    /// kube-apiserver that does not trace sends on whatever its clients say. Of all others a trace becomes a link,
    /// and a new one begins.
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
            // A trace that begins is random.
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
    /// Leaves the spans of a request that is over to be sent, if there is room for them.
    pub(super) fn end(&self, record: &Record) {
        let count = spans::count(record);
        self.traces.add(&self.user, count, |to| spans::write(&self.begun, record, to));
    }

    /// What remains of it for a write that goes on after the request, which took so long.
    pub(super) fn remains(mut self: Box<Self>, took: Duration) -> Remains {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // It is a part of all that has come with the request.
        self.begun.user_agent = None;
        let ended = self.begun.started.saturating_add(took);
        Remains { trace: self, ended }
    }
}

impl Remains {
    /// Leaves the span of a write that has ended after its request.
    pub(super) fn end(self, ending: &Ending, audit_id: &HeaderValue) {
        let Self { trace, ended } = self;
        let Trace { traces, user, begun } = *trace;
        let now = u64::try_from(traces.clock.now().as_nanosecond()).unwrap_or_default();
        let (span, times) = (traces.clock.random().max(1), (ended, now.max(ended)));
        traces.add(&user, 1, |to| spans::write_after(&begun, (span, times), ending, audit_id, to));
    }
}

/// The beginning of a header as text.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    // Before it is looked at: it may be long.
    let bytes = bytes.get(..LIMIT).unwrap_or(bytes);
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The flags of a span in OTLP: its trace is collected, and whether what it belongs to is of another process.
fn is_sampled_flags(is_remote: bool) -> u32 {
    if is_remote { 0x301 } else { 0x101 }
}

/// The beginning of a text that may be long: so many bytes at most.
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

    /// The trace of a request, if it has one.
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
    fn administrators_decide_and_what_comes_through_kube_apiserver_goes_on() {
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
