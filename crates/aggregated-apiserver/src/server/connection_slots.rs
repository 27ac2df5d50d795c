//! Places: the limit of open connections, and the rule by which a new connection gets one.
//!
//! A connection with a request in flight keeps its place, and so does a handshake that is not overdue. If all places
//! are taken, a connection without a request is closed. If every connection has a request, the new connection waits for
//! a limited time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::occupant::Occupant;
use crate::log_throttle::LogThrottle;

/// How many times as many places as are free one network may have. One network alone leaves a quarter
/// of all places free, and the next network leaves a quarter of these.
const SHARE: usize = 3;
/// The places of a front proxy that connections of HTTP/1.1 may have, in percent. A front proxy opens
/// one for each WebSocket of a user, and sends all other requests over connections of HTTP/2.
const UNMULTIPLEXED: usize = 75;
/// How often the first request of a connection is checked for being overdue while others wait.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The clients that share the places.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// Clients of many networks, which must not take the places of other networks.
    Networks,
    /// The front proxy, whose connections carry the requests of many users.
    FrontProxy,
}

/// The connections that have places.
#[derive(Clone)]
pub(super) struct ConnectionSlots(Arc<Shared>);

struct Shared {
    limit: usize,
    /// The limit of connections that wait for a place.
    waiting: usize,
    whose: Whose,
    table: Mutex<Table>,
    gave_way: LogThrottle,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// In the order in which they were opened.
    taken: BTreeMap<u64, Arc<Occupant>>,
    by_network: HashMap<IpAddr, usize>,
    /// In the order in which they began to wait.
    waiting: VecDeque<Waiting>,
    waiting_by_network: HashMap<IpAddr, usize>,
    checked: Option<Instant>,
}

struct Waiting {
    occupant: Arc<Occupant>,
    place: oneshot::Sender<ConnectionSlot>,
}

/// A connection that waits for a place, until it is dropped.
struct Waiter<'a> {
    places: &'a ConnectionSlots,
    place: oneshot::Receiver<ConnectionSlot>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.place.close();
        let unclaimed = self.place.try_recv();
        self.places.table().tidy();
        drop(unclaimed);
    }
}

/// A place among the connections, until it is dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    places: ConnectionSlots,
}

impl ConnectionSlots {
    pub(super) fn new(limit: usize, waiting: usize, whose: Whose) -> Self {
        let (table, gave_way) = (Mutex::default(), LogThrottle::default());
        Self(Arc::new(Shared { limit, waiting, whose, table, gave_way }))
    }

    /// A place for a connection, if there is one now.
    pub(super) fn take(&self, occupant: &Arc<Occupant>) -> Option<ConnectionSlot> {
        let mut table = self.table();
        // Connections of the same network that wait are first.
        if table.waiting_by_network.contains_key(&occupant.network()) {
            return None;
        }
        self.try_take(&mut table, occupant)
    }

    /// Waits until the connection has a place. Returns `None` if no place is free in time, or too many connections
    /// wait.
    pub(super) async fn wait(
        &self,
        occupant: &Arc<Occupant>,
        patience: Duration,
    ) -> Option<ConnectionSlot> {
        let place = {
            let mut table = self.table();
            // Connections of the same network that wait are first.
            if !table.waiting_by_network.contains_key(&occupant.network())
                && let Some(place) = self.try_take(&mut table, occupant)
            {
                return Some(place);
            }
            self.begin_waiting(&mut table, occupant)?
        };
        let mut waiter = Waiter { places: self, place };
        let check = async {
            loop {
                sleep(CHECK_EVERY).await;
                self.check();
            }
        };
        let waited = timeout(patience, async {
            tokio::select! {
                place = &mut waiter.place => place.ok(),
                () = check => None,
            }
        });
        let waited = waited.await.ok().flatten();
        // A place that was given in the last moment counts.
        waited.or_else(|| waiter.place.try_recv().ok())
    }

    fn begin_waiting(
        &self,
        table: &mut Table,
        occupant: &Arc<Occupant>,
    ) -> Option<oneshot::Receiver<ConnectionSlot>> {
        table.tidy();
        let of_network = table.waiting_by_network.get(&occupant.network());
        let of_network = of_network.copied().unwrap_or_default();
        let free = self.0.waiting.saturating_sub(table.waiting.len());
        let is_allowed = match self.0.whose {
            Whose::Networks => of_network < free.saturating_mul(SHARE),
            Whose::FrontProxy => free > 0,
        };
        // A newcomer takes the position of the connection of its network that waits longest: that one has sent nothing
        // that was read, and has had the most time.
        if !is_allowed && !table.leave_oldest_of(occupant.network()) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        *table.waiting_by_network.entry(occupant.network()).or_default() += 1;
        table.waiting.push_back(Waiting { occupant: Arc::clone(occupant), place: sender });
        Some(receiver)
    }

    /// Gives places to connections that wait, if others are overdue. Many wait for the same check.
    fn check(&self) {
        let mut table = self.table();
        let now = Instant::now();
        if table.checked.is_some_and(|checked| now - checked < CHECK_EVERY) {
            return;
        }
        table.checked = Some(now);
        let unclaimed = self.hand_out(&mut table);
        drop(table);
        drop(unclaimed);
    }

    /// Gives places to connections that wait. The result is what none of them has claimed, to be
    /// dropped without the lock.
    fn hand_out(&self, table: &mut Table) -> Vec<ConnectionSlot> {
        let (mut unclaimed, mut refused) = (Vec::new(), HashSet::new());
        let mut position = 0;
        while let Some(waiting) = table.waiting.get(position) {
            let occupant = Arc::clone(&waiting.occupant);
            if waiting.place.is_closed() {
                drop(table.leave(position));
                continue;
            }
            let place = match refused.contains(&occupant.network()) {
                true => None,
                false => self.try_take(table, &occupant),
            };
            let Some(place) = place else {
                if matches!(self.0.whose, Whose::Networks) {
                    refused.insert(occupant.network());
                }
                position += 1;
                continue;
            };
            if let Some(waiting) = table.leave(position) {
                unclaimed.extend(waiting.place.send(place).err());
            }
        }
        unclaimed
    }

    /// A place that is free, or one of a connection without a request.
    fn try_take(&self, table: &mut Table, newcomer: &Arc<Occupant>) -> Option<ConnectionSlot> {
        if !self.has_share(table, newcomer) {
            self.evict_one(table, newcomer)?;
        }
        let number = table.next;
        table.next += 1;
        *table.by_network.entry(newcomer.network()).or_default() += 1;
        newcomer.restart();
        table.taken.insert(number, Arc::clone(newcomer));
        Some(ConnectionSlot { number, places: self.clone() })
    }

    fn has_share(&self, table: &Table, newcomer: &Occupant) -> bool {
        let free = self.0.limit.saturating_sub(table.taken.len());
        match self.0.whose {
            _ if free == 0 => false,
            Whose::Networks => table.of_network(newcomer) < free.saturating_mul(SHARE),
            Whose::FrontProxy if newcomer.is_multiplexed() => true,
            Whose::FrontProxy => {
                let unmultiplexed = table.taken.values().filter(|one| !one.is_multiplexed());
                unmultiplexed.count() < self.0.limit * UNMULTIPLEXED / 100
            }
        }
    }

    /// Takes its place from a connection without a request.
    fn evict_one(&self, table: &mut Table, newcomer: &Occupant) -> Option<()> {
        loop {
            let number = match self.0.whose {
                Whose::Networks => table.of_busiest_network(newcomer),
                Whose::FrontProxy => table.least_recently_used(newcomer),
            }?;
            let is_evicted = table.taken.get(&number).is_some_and(|occupant| occupant.evict());
            // Otherwise a request has arrived in the meantime, so the next choice is another one.
            if is_evicted {
                let evicted = table.remove(number)?;
                self.0.gave_way.log(|suppressed| {
                    tracing::warn!(
                        suppressed,
                        limit = self.0.limit,
                        network = %evicted.network(),
                        "limit of connections reached: closed a connection without a request"
                    );
                });
                return Some(());
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of_network(&self, occupant: &Occupant) -> usize {
        self.by_network.get(&occupant.network()).copied().unwrap_or_default()
    }

    /// The number of the connection that is closed for a new one; it has no request. Connections without credentials
    /// come first, then connections of the network with most connections, then the connection whose last request is
    /// longest ago. A network with more connections takes no place of a network with fewer.
    fn of_busiest_network(&self, newcomer: &Occupant) -> Option<u64> {
        let own = self.of_network(newcomer);
        // Before its handshake a newcomer may be any client. One with a request needs its place more
        // than an idle connection of its own network.
        let has_request = newcomer.is_in_use();
        let may = |one: &Occupant, is_known: bool| {
            let count = self.of_network(one);
            match one.network() == newcomer.network() {
                true => !is_known || has_request,
                false if is_known => count > own + 1,
                false => count >= own,
            }
        };
        let candidates = self.taken.iter().filter(|(_, one)| one.may_give_way());
        let candidates = candidates.filter_map(|(number, one)| {
            // Credentials count once the connection has sent a request.
            let is_known = one.standing().is_authenticated() && one.received() > 0;
            let used = Reverse((one.standing().last_used(), *number));
            may(one, is_known).then(|| ((!is_known, self.of_network(one), used), *number))
        });
        candidates.max().map(|(_, number)| number)
    }

    /// The number of the front proxy's connection that is closed for a new one; it has no request. A connection of
    /// HTTP/1.1 takes no place of a connection of HTTP/2.
    fn least_recently_used(&self, newcomer: &Occupant) -> Option<u64> {
        let candidates = self.taken.iter().filter(|(_, one)| {
            one.may_give_way() && (newcomer.is_multiplexed() || !one.is_multiplexed())
        });
        candidates.min_by_key(|(_, one)| one.standing().last_used()).map(|(number, _)| *number)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Occupant>> {
        let occupant = self.taken.remove(&number)?;
        count_down(&mut self.by_network, occupant.network());
        Some(occupant)
    }

    /// Ends the wait of a connection.
    fn leave(&mut self, position: usize) -> Option<Waiting> {
        let waiting = self.waiting.remove(position)?;
        count_down(&mut self.waiting_by_network, waiting.occupant.network());
        Some(waiting)
    }

    /// Ends the wait of the connection of a network that waits longest, if there is one.
    fn leave_oldest_of(&mut self, network: IpAddr) -> bool {
        let oldest = self.waiting.iter().position(|one| one.occupant.network() == network);
        oldest.and_then(|position| self.leave(position)).is_some()
    }

    /// Removes connections that have stopped to wait.
    fn tidy(&mut self) {
        let Self { waiting, waiting_by_network, .. } = self;
        waiting.retain(|one| {
            if one.place.is_closed() {
                count_down(waiting_by_network, one.occupant.network());
            }
            !one.place.is_closed()
        });
    }
}

fn count_down(counts: &mut HashMap<IpAddr, usize>, network: IpAddr) {
    if let Some(count) = counts.get_mut(&network) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&network);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.places.table();
        drop(table.remove(self.number));
        let unclaimed = match table.waiting.is_empty() {
            true => Vec::new(),
            false => self.places.hand_out(&mut table),
        };
        drop(table);
        drop(unclaimed);
    }
}

/// The network of an address: of IPv6 the /64, which belongs to one client.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(prefix).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests;
