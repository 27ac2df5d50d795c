//! The slot of a connection: a place among all connections, or the permission to wait for one.
//!
//! A connection that finds no place may still complete its handshake, because it may be the front proxy,
//! which has places of its own, or a health probe, which is answered without a place. Its first other request waits
//! for a place for a limited time, and is refused then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::connection_slots::{ConnectionSlot, ConnectionSlots};
use super::occupant::Occupant;

/// How long a request waits for the place of its connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between the refusal of a connection, or the loss of its place, and its end, if no request is in flight:
/// the client reads the response, and stops sending requests.
const FAREWELL: Duration = Duration::from_secs(5);
/// The same if more than `FAREWELLS` connections of the server are ending.
const SHORT_FAREWELL: Duration = Duration::from_millis(100);
pub(super) const FAREWELLS: usize = 200;

/// The slot of a connection, until it is dropped.
pub(super) struct Slot {
    occupant: Arc<Occupant>,
    /// The places that the connection belongs to.
    places: ConnectionSlots,
    held: Mutex<Option<ConnectionSlot>>,
    /// Whether the place that is held is one of `places`.
    is_admitted: AtomicBool,
    is_refused: AtomicBool,
    /// Held by the request that waits for the place of all.
    waiting: tokio::sync::Mutex<()>,
    /// Cancelled when the connection ends, regardless of requests in flight.
    cut: CancellationToken,
}

/// There was no place in time.
#[derive(Debug)]
pub(super) struct NoPlace;

impl Slot {
    /// A slot with a place among these places.
    pub(super) fn admitted(
        occupant: Arc<Occupant>,
        places: ConnectionSlots,
        place: ConnectionSlot,
    ) -> Self {
        Self::new(occupant, places, place, true)
    }

    /// A slot with a place for the handshake alone.
    pub(super) fn provisional(
        occupant: Arc<Occupant>,
        places: ConnectionSlots,
        place: ConnectionSlot,
    ) -> Self {
        Self::new(occupant, places, place, false)
    }

    fn new(
        occupant: Arc<Occupant>,
        places: ConnectionSlots,
        place: ConnectionSlot,
        is_admitted: bool,
    ) -> Self {
        Self {
            occupant,
            places,
            held: Mutex::new(Some(place)),
            is_admitted: AtomicBool::new(is_admitted),
            is_refused: AtomicBool::new(false),
            waiting: tokio::sync::Mutex::default(),
            cut: CancellationToken::new(),
        }
    }

    pub(super) fn occupant(&self) -> &Arc<Occupant> {
        &self.occupant
    }

    /// The token that is cancelled when the connection ends, regardless of requests in flight. Cancelling it ends the
    /// connection.
    pub(super) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Returns when the connection has a place. The requests of one connection wait together.
    ///
    /// # Errors
    /// If there is no place in time. The connection ends in this case.
    pub(super) async fn admit(&self) -> Result<(), NoPlace> {
        if self.has_place() {
            return Ok(());
        }
        let _turn = self.waiting.lock().await;
        if self.has_place() {
            return Ok(());
        }
        if self.is_refused.load(Ordering::Relaxed) {
            return Err(NoPlace);
        }
        let Some(place) = self.places.wait(&self.occupant, PATIENCE).await else {
            self.is_refused.store(true, Ordering::Relaxed);
            self.occupant.close();
            return Err(NoPlace);
        };
        self.occupant.readmit();
        self.is_admitted.store(true, Ordering::Release);
        let before = self.held.lock().unwrap_or_else(PoisonError::into_inner).replace(place);
        drop(before);
        Ok(())
    }

    fn has_place(&self) -> bool {
        self.is_admitted.load(Ordering::Acquire) && !self.occupant.is_evicted()
    }

    /// Ends a connection that was asked to close, as soon as no request is in flight for a moment.
    pub(super) async fn end_when_unused(&self, farewells: &Semaphore) {
        let permit = farewells.try_acquire();
        let moment = if permit.is_ok() { FAREWELL } else { SHORT_FAREWELL };
        loop {
            tokio::time::sleep(moment).await;
            if !self.occupant.is_in_use() {
                self.cut.cancel();
                return;
            }
        }
    }
}

impl Drop for Slot {
    /// The connection has ended. Requests that outlive their handler, such as WebSockets, wait for this.
    fn drop(&mut self) {
        self.cut.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_slots::Whose;
    use super::*;
    use crate::request::ConnectionPriority;

    fn occupant() -> Arc<Occupant> {
        Occupant::new([10, 0, 0, 1].into(), ConnectionPriority::default())
    }

    fn world() -> (ConnectionSlots, Arc<Occupant>, Slot) {
        let places = ConnectionSlots::new(1, 10, Whose::Networks);
        let provisional = ConnectionSlots::new(1, 10, Whose::Networks);
        let (first, second) = (occupant(), occupant());
        let place = provisional.take(&second).unwrap();
        (places.clone(), first, Slot::provisional(second, places, place))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_of_a_connection_wait_for_one_slot() {
        let (places, first, slot) = world();
        let place = places.take(&first).unwrap();
        let _busy = first.begin();
        let _requests: Vec<_> = (0..10).map(|_| slot.occupant().begin()).collect();
        let waiting = futures::future::join_all((0..10).map(|_| slot.admit()));
        let leaves = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(place);
        };
        let (admitted, ()) = futures::join!(waiting, leaves);
        assert!(admitted.iter().all(Result::is_ok));
        assert!(slot.admit().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_place_is_refused_once_and_ends_when_unused() {
        let (places, first, slot) = world();
        let _place = places.take(&first).unwrap();
        let _busy = first.begin();
        let request = slot.occupant().begin();
        let began = tokio::time::Instant::now();
        let refused = futures::future::join_all((0..10).map(|_| slot.admit())).await;
        assert!(refused.iter().all(Result::is_err));
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs(), "they have waited together");
        assert!(slot.occupant().closing().is_cancelled());
        let farewells = Semaphore::new(1);
        let ending = slot.end_when_unused(&farewells);
        let reads = async {
            tokio::time::sleep(FAREWELL * 3).await;
            assert!(!slot.cut().is_cancelled(), "the refusal is being sent");
            drop(request);
        };
        futures::join!(ending, reads);
        assert!(slot.cut().is_cancelled());
    }
}
