//! Traces: what a request was, as spans that a collector of OpenTelemetry puts together with those of
//! other programs.
//!
//! A request that is traced has a [`Trace`], from the moment at which it is known who asks; its spans
//! are made when it is over, of what its record has measured anyway. Nothing else costs anything: where no
//! collector is configured, or this request is not chosen, there is no [`Trace`]. Requests leave what is known of
//! them in a queue that is bounded and never wait (`ended`); a thread makes `spans` of that and sends them (`otlp`).

// What makes them is there only with the feature `otlp`.
#![cfg_attr(not(feature = "otlp"), allow(dead_code))]

mod configuration;
mod context;
mod ended;
#[cfg(feature = "otlp")]
mod otlp;
mod protobuf;
mod spans;

pub use configuration::TracingConfiguration;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use http::request::Parts;
use tokio::sync::{mpsc, oneshot};

use super::Record;
use super::shares::Shares;
use crate::clock::Clock;
use crate::user::{MASTERS, User};
use context::Remote;
use ended::{Begun, Ended, Texts};

/// The group whose requests go on with the traces that they name, besides administrators; as kube-apiserver.
const MONITORING: &str = "system:monitoring";
/// Requests whose spans wait to be sent: some seconds of many.
const WAITING: usize = 4_096;
/// Bytes of what is known of them: of a request that is a KiB. No user's take more than a quarter of it.
const WAITING_BYTES: usize = 8 << 20;
/// What is noted of whose a request is, besides the name, and of its place in the queue, in bytes.
const SHARE: usize = 128;
/// At most this many bytes of a text from a client are sent.
const LIMIT: usize = 1_024;

/// Where the spans of requests go.
#[derive(Debug)]
pub struct Traces {
    configuration: TracingConfiguration,
    clock: Clock,
    queue: mpsc::Sender<Left>,
    /// Whoever waits until all that is in the queue was sent.
    flush: mpsc::Sender<oneshot::Sender<()>>,
    counts: Arc<Counts>,
    /// How much of the queue each user has.
    room: Arc<Room>,
}

/// The room of the queue, and how many spans have a place in it.
#[derive(Debug)]
struct Room(Mutex<(Shares, u64)>);

impl Room {
    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((Shares::of(bytes), 0))))
    }

    fn lock(&self) -> MutexGuard<'_, (Shares, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, user: &str, bytes: usize, spans: u64) -> bool {
        let (shares, all) = &mut *self.lock();
        let is_taken = shares.take(user, bytes);
        *all += if is_taken { spans } else { 0 };
        is_taken
    }

    fn give_back(&self, user: &str, bytes: usize, spans: u64) {
        let (shares, all) = &mut *self.lock();
        shares.give_back(user, bytes);
        *all = all.saturating_sub(spans);
    }

    /// How many spans are not sent yet.
    fn spans(&self) -> u64 {
        self.lock().1
    }
}

/// A request whose spans are not sent yet.
#[derive(Debug)]
struct Left {
    ended: Ended,
    place: Place,
}

/// What a user's spans take of the room, until it is dropped.
#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    user: Arc<User>,
    bytes: usize,
    spans: u64,
}

impl Place {
    /// A place in the room, if it has so much.
    fn take(room: &Arc<Room>, user: &Arc<User>, bytes: usize, spans: u64) -> Option<Self> {
        let is_taken = room.take(&user.name, bytes, spans);
        is_taken.then(|| Self { room: Arc::clone(room), user: Arc::clone(user), bytes, spans })
    }

    /// Whether another one is of the same user.
    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.user, &other.user) || self.user.name == other.user.name
    }

    /// Takes over what another one of the same user takes.
    fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.spans += std::mem::take(&mut other.spans);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.give_back(&self.user.name, self.bytes, self.spans);
        }
    }
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
    begun: Begun,
}

/// A request that comes, as far as traces are concerned.
pub(super) struct Arrival<'a> {
    pub head: &'a Parts,
    pub audit_id: &'a HeaderValue,
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
            let (queue, waiting) = mpsc::channel(WAITING);
            let (flush, flushes) = mpsc::channel(1);
            let counts = Arc::new(Counts::default());
            let endpoint = &configuration.endpoint;
            let sender = otlp::Sender::new((waiting, flushes), Arc::clone(&counts));
            sender.begin(endpoint, (service, instance))?;
            Ok(Self { configuration, clock, queue, flush, counts, room: Room::of(WAITING_BYTES) })
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
        WAITING_BYTES + sending
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
        let lost = failed() - before + self.room.spans();
        if lost > 0 {
            tracing::warn!("the last {lost} spans were not sent to {}", self.endpoint());
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
        let decides = user.groups.iter().any(is_group);
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
        let headers = &arrival.head.headers;
        let target = arrival.head.uri.path_and_query().map_or("", |target| target.as_str());
        let user_agent = headers.get(USER_AGENT).map(text).unwrap_or_default();
        Some(Box::new(Trace {
            traces: Arc::clone(self),
            begun: Begun {
                trace,
                span: span.max(1),
                parent: before.map_or(0, |remote| remote.span),
                link: remote.filter(|_| before.is_none()),
                started: now.saturating_sub(received),
                address: arrival.address,
                user: Arc::clone(user),
                texts: Texts::of(
                    beginning(&text(arrival.audit_id)),
                    beginning(target),
                    beginning(&user_agent),
                ),
            },
        }))
    }
}

impl Trace {
    /// Leaves a request that is over to be sent, if there is room for it.
    pub(super) fn end(self, record: &Record) {
        let Self { traces, begun } = self;
        let ended = Ended::of(begun, record);
        let bytes = ended.size() + SHARE + ended.begun.user.name.len();
        let count = ended.spans();
        let place = Place::take(&traces.room, &ended.begun.user, bytes, count);
        let is_taken =
            place.is_some_and(|place| traces.queue.try_send(Left { ended, place }).is_ok());
        if !is_taken {
            traces.counts.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// A header as text.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The flags of a span in OTLP: its trace is collected, and whether what it belongs to is of another process.
fn is_sampled_flags(is_remote: bool) -> u32 {
    if is_remote { 0x301 } else { 0x101 }
}

/// The beginning of a text that may be long.
fn beginning(text: &str) -> &str {
    if text.len() <= LIMIT {
        return text;
    }
    let mut end = LIMIT;
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
            queue: mpsc::channel(1).0,
            flush: mpsc::channel(1).0,
            counts: Arc::default(),
            room: Room::of(WAITING_BYTES),
        });
        let request = Request::get("/apis").header("traceparent", HEADER).body(()).unwrap();
        let arrival = Arrival {
            head: &request.into_parts().0,
            audit_id: &HeaderValue::from_static("id"),
            address: None,
            is_from_front_proxy,
            received: Duration::ZERO,
        };
        let groups = user.iter().map(|group| (*group).to_owned()).collect();
        let trace = traces.begin(&arrival, &Arc::new(User { groups, ..User::default() }));
        trace.map(|trace| trace.begun)
    }

    #[test]
    fn one_user_does_not_fill_the_queue() {
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000";
        let (queue, mut waiting) = mpsc::channel(WAITING);
        let traces = Arc::new(Traces {
            configuration: TracingConfiguration::parse(text).unwrap(),
            clock: Clock::system(),
            queue,
            flush: mpsc::channel(1).0,
            counts: Arc::default(),
            room: Room::of(64 << 10),
        });
        let request = Request::get(format!("/{}", "x".repeat(LIMIT))).body(()).unwrap();
        let head = request.into_parts().0;
        let leave = |name: &str| {
            let user = Arc::new(User { name: name.to_owned(), ..User::default() });
            let arrival = Arrival {
                head: &head,
                audit_id: &HeaderValue::from_static("id"),
                address: None,
                is_from_front_proxy: false,
                received: Duration::ZERO,
            };
            traces.begin(&arrival, &user).unwrap().end(&Record::unread());
        };
        let dropped = || traces.counts.dropped.load(Ordering::Relaxed);
        for _ in 0..1_000 {
            leave("loud");
        }
        let of_loud = dropped();
        assert!(of_loud > 0);
        leave("quiet");
        assert_eq!(dropped(), of_loud, "there is room for others");
        let mut users = Vec::new();
        while let Ok(left) = waiting.try_recv() {
            assert!(left.place.bytes > LIMIT);
            users.push(left.ended.begun.user.name.clone());
        }
        let loud = users.iter().filter(|name| *name == "loud").count();
        assert!((2..16).contains(&loud) && users.len() == loud + 1, "{users:?}");
        leave("loud");
        assert_eq!(dropped(), of_loud, "what was taken out has left its room");
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
