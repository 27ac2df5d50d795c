//! The state of a connection that decides whether another connection may have its place.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection_slots::network;
use crate::request::{Activity, ConnectionPriority};

/// Time for the handshake and the head of the first request, and for the head of each later request over HTTP/1.1 from
/// its first byte. A connection that takes longer is closed if another connection needs its place.
pub(super) const OVERDUE: Duration = Duration::from_secs(5);

/// The same time on a port without TLS, where a request comes with the connection.
const OVERDUE_WITHOUT_TLS: Duration = Duration::from_millis(500);

/// Flag beside the number of requests: the place was given to another connection.
const EVICTED: usize = 1 << (usize::BITS - 1);
/// Flag beside the number of requests: the connection became a WebSocket, which is one request
/// until the connection ends.
const UPGRADED: usize = EVICTED >> 1;

/// A connection, as `Slots` see it.
pub(super) struct Occupant {
    network: IpAddr,
    standing: ConnectionPriority,
    activity: Activity,
    /// When the wait for a head began.
    awaited: Mutex<Instant>,
    /// Whether a head is awaited: the head of the first request, or of a later request whose first byte has arrived.
    awaits_head: AtomicBool,
    /// The time for a head.
    overdue: Duration,
    /// Whether the connection carries many requests at a time, as HTTP/2 does.
    is_multiplexed: AtomicBool,
    /// The number of requests in flight, and the flags above.
    requests: AtomicUsize,
    /// The number of requests since the connection was opened.
    received: AtomicUsize,
    evicted: CancellationToken,
}

/// A request in flight, until it is dropped.
pub(super) struct InFlight(Arc<Occupant>);

impl Occupant {
    /// A connection from this address, which begins with its handshake.
    pub(super) fn new(address: IpAddr, standing: ConnectionPriority) -> Arc<Self> {
        Self::with_time(address, standing, OVERDUE)
    }

    /// A connection without TLS from this address.
    pub(super) fn without_tls(address: IpAddr) -> Arc<Self> {
        Self::with_time(address, ConnectionPriority::default(), OVERDUE_WITHOUT_TLS)
    }

    fn with_time(address: IpAddr, standing: ConnectionPriority, overdue: Duration) -> Arc<Self> {
        Arc::new(Self {
            network: network(address),
            standing,
            activity: Activity::default(),
            awaited: Mutex::new(Instant::now()),
            awaits_head: AtomicBool::new(true),
            overdue,
            is_multiplexed: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            evicted: CancellationToken::new(),
        })
    }

    /// The network that the connection comes from.
    pub(super) fn network(&self) -> IpAddr {
        self.network
    }

    pub(super) fn standing(&self) -> &ConnectionPriority {
        &self.standing
    }

    /// The last transfer of bytes.
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Starts the time for the handshake and the first request: the connection has a place now.
    pub(super) fn restart(&self) {
        *self.awaited() = Instant::now();
    }

    /// Starts the time for the head of the next request: its first byte has arrived.
    pub(super) fn await_head(&self) {
        self.restart();
        self.awaits_head.store(true, Ordering::Release);
    }

    fn awaited(&self) -> MutexGuard<'_, Instant> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a connection of HTTP/2.
    pub(super) fn mark_multiplexed(&self) {
        self.is_multiplexed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.load(Ordering::Relaxed)
    }

    /// Counts a request, until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.received.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.awaits_head.store(false, Ordering::Release);
        InFlight(Arc::clone(self))
    }

    /// The number of requests since the connection was opened.
    pub(super) fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether a request is in flight.
    pub(super) fn is_in_use(&self) -> bool {
        self.requests.load(Ordering::Acquire) & !EVICTED != 0
    }

    /// Whether another connection may have the place: no request is in flight, and none is arriving or the one that
    /// arrives is overdue.
    pub(super) fn may_give_way(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
            && (!self.awaits_head.load(Ordering::Acquire)
                || self.awaited().elapsed() >= self.overdue)
    }

    /// Takes the place from the connection, unless a request has arrived in the meantime.
    pub(super) fn evict(&self) -> bool {
        let evicted =
            self.requests.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Acquire);
        if evicted.is_ok() {
            self.evicted.cancel();
        }
        evicted.is_ok()
    }

    /// Whether the place was given to another connection.
    pub(super) fn is_evicted(&self) -> bool {
        self.requests.load(Ordering::Acquire) & EVICTED != 0
    }

    /// Notes that the connection has a place again, for a request that arrived while it was evicted.
    pub(super) fn readmit(&self) {
        self.requests.fetch_and(!EVICTED, Ordering::AcqRel);
    }

    /// Asks the connection to end after the requests in flight.
    pub(super) fn close(&self) {
        self.evicted.cancel();
    }

    /// Cancelled when the connection must end after the requests in flight.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl InFlight {
    /// Counts the connection as in use until it ends: it became a WebSocket.
    pub(super) fn upgrade(self) {
        self.0.requests.fetch_or(UPGRADED, Ordering::AcqRel);
    }

    /// The same body, which counts the request until it was sent or dropped.
    pub(super) fn hold(self, body: Body) -> Body {
        Body::new(Counted { body, _request: self })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Counted {
    body: Body,
    _request: InFlight,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupant() -> Arc<Occupant> {
        Occupant::new([10, 0, 0, 1].into(), ConnectionPriority::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_can_be_evicted_once_its_first_request_is_overdue() {
        let connection = occupant();
        assert!(!connection.may_give_way());
        tokio::time::advance(OVERDUE).await;
        assert!(connection.may_give_way());
        let request = connection.begin();
        assert!(!connection.may_give_way() && !connection.evict());
        drop(request);
        assert!(connection.evict() && connection.closing().is_cancelled());
        assert!(!connection.may_give_way(), "the place was taken already");
        // The request of an evicted connection waits for a place, and the connection can use its new place.
        let request = connection.begin();
        assert!(connection.is_evicted() && connection.is_in_use());
        connection.readmit();
        assert!(!connection.is_evicted() && connection.is_in_use());
        drop(request);
        assert!(!connection.is_in_use());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_cannot_be_evicted_while_a_request_head_is_arriving() {
        let connection = occupant();
        drop(connection.begin());
        tokio::time::advance(OVERDUE).await;
        assert!(connection.may_give_way());
        connection.await_head();
        assert!(!connection.may_give_way());
        tokio::time::advance(OVERDUE).await;
        assert!(connection.may_give_way(), "the head is overdue");
        drop(connection.begin());
        connection.await_head();
        drop(connection.begin());
        assert!(connection.may_give_way(), "the request has been answered");
    }

    #[tokio::test]
    async fn an_answered_connection_may_give_way_at_once_and_a_web_socket_never() {
        let (idle, socket) = (occupant(), occupant());
        drop(idle.begin());
        assert!(idle.may_give_way());
        socket.begin().upgrade();
        assert!(socket.is_in_use() && !socket.may_give_way() && !socket.evict());
    }
}
