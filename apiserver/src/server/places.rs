//! Places: how many connections there may be, and which one gives way when they are taken.
//!
//! Whoever opens many connections must not keep others out: a probe that is refused makes
//! the server unready, and then no namespace of the cluster can be deleted. So a newcomer gets
//! the place of somebody who has shown no credentials; failing that, of an address that has
//! more places than the newcomer's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::occasionally::Occasionally;
use crate::request::Standing;

/// Whose connections they are.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// Anybody's.
    Anybody,
    /// The front proxy's, which carry the requests of many users. A client can make it open
    /// new ones, and keep old ones open by watches: so the one that has been without a new
    /// request for longest gives way.
    FrontProxy,
}

/// The connections that have places.
#[derive(Clone)]
pub(super) struct Places {
    table: Arc<Mutex<Table>>,
    gave_way: Arc<Occasionally>,
}

struct Table {
    limit: usize,
    whose: Whose,
    next: u64,
    /// In the order in which they came.
    taken: BTreeMap<u64, Taken>,
}

struct Taken {
    address: IpAddr,
    standing: Standing,
    evicted: CancellationToken,
}

/// A place among the connections, until it is dropped.
pub(super) struct Place {
    number: u64,
    places: Places,
    /// Cancelled when the connection has to give way.
    pub evicted: CancellationToken,
}

impl Places {
    pub(super) fn new(limit: usize, whose: Whose) -> Self {
        let table = Table { limit, whose, next: 0, taken: BTreeMap::new() };
        Self { table: Arc::new(Mutex::new(table)), gave_way: Arc::default() }
    }

    /// A place for a connection from this address; `None` if nobody gives way.
    pub(super) fn take(&self, address: IpAddr, standing: &Standing) -> Option<Place> {
        let address = network(address);
        let mut table = self.table();
        if table.taken.len() >= table.limit {
            let number = table.who_gives_way(address)?;
            if let Some(taken) = table.taken.remove(&number) {
                taken.evicted.cancel();
                self.gave_way.log(|suppressed| {
                    let (limit, from) = (table.limit, taken.address);
                    tracing::warn!(
                        suppressed,
                        "{limit} connections are open: one from {from} gives way"
                    );
                });
            }
        }
        let (number, evicted) = (table.next, CancellationToken::new());
        table.next += 1;
        let taken = Taken { address, standing: standing.clone(), evicted: evicted.clone() };
        table.taken.insert(number, taken);
        Some(Place { number, places: self.clone(), evicted })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn who_gives_way(&self, newcomer: IpAddr) -> Option<u64> {
        match self.whose {
            Whose::Anybody => self.stranger_or_of_busiest(newcomer),
            Whose::FrontProxy => {
                let least_recent =
                    self.taken.iter().min_by_key(|(_, one)| one.standing.last_used());
                least_recent.map(|(number, _)| *number)
            }
        }
    }

    /// The oldest stranger of the busiest address, unless the newcomer's is busier still; else the
    /// oldest connection of the busiest address, if that has more than the newcomer's would.
    fn stranger_or_of_busiest(&self, newcomer: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for one in self.taken.values() {
            *counts.entry(one.address).or_default() += 1;
        }
        let count = |address: &IpAddr| counts.get(address).copied().unwrap_or_default();
        let own = count(&newcomer);
        // Of equal ones the oldest, which comes first.
        let busiest = |one: &(&u64, &Taken)| (count(&one.1.address), Reverse(*one.0));
        let strangers = self.taken.iter().filter(|(_, one)| !one.standing.is_authenticated());
        let stranger = strangers.max_by_key(busiest);
        let stranger =
            stranger.filter(|(_, one)| one.address == newcomer || count(&one.address) >= own);
        let known = || {
            let known = self.taken.iter().max_by_key(busiest);
            known.filter(|(_, one)| count(&one.address) > own + 1)
        };
        stranger.or_else(known).map(|(number, _)| *number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().taken.remove(&self.number);
    }
}

/// Whoever has one address of IPv6 has all of its /64.
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
mod tests {
    use super::*;

    struct World {
        places: Places,
        taken: Vec<(Place, Standing)>,
    }

    impl World {
        fn new(limit: usize) -> Self {
            Self { places: Places::new(limit, Whose::Anybody), taken: Vec::new() }
        }

        fn take(&mut self, address: &str, is_known: bool) -> bool {
            let standing = Standing::default();
            if is_known {
                standing.mark_authenticated();
            }
            let place = self.places.take(address.parse().unwrap(), &standing);
            let is_taken = place.is_some();
            self.taken.extend(place.map(|place| (place, standing)));
            is_taken
        }

        /// The positions of those that had to go.
        fn evicted(&self) -> Vec<usize> {
            let taken = self.taken.iter().enumerate();
            taken.filter(|(_, (place, _))| place.evicted.is_cancelled()).map(|(at, _)| at).collect()
        }
    }

    #[test]
    fn the_oldest_stranger_of_the_busiest_address_gives_way() {
        let mut world = World::new(4);
        assert!(world.take("10.0.0.1", false) && world.take("10.0.0.2", true));
        assert!(world.take("10.0.0.2", false) && world.take("10.0.0.2", false));
        assert!(world.take("10.0.0.3", false));
        assert_eq!(world.evicted(), [2]);
        // Who was authenticated meanwhile is no stranger any more.
        world.taken[3].1.mark_authenticated();
        world.taken[0].1.mark_authenticated();
        assert!(world.take("10.0.0.4", true));
        assert_eq!(world.evicted(), [2, 4]);
    }

    #[test]
    fn among_strangers_of_many_addresses_the_oldest_gives_way() {
        let mut world = World::new(3);
        for address in ["10.0.0.9", "10.0.0.1", "192.168.0.1", "10.0.0.2"] {
            assert!(world.take(address, false));
        }
        assert_eq!(world.evicted(), [0]);
    }

    #[test]
    fn whoever_is_known_stays_unless_their_address_has_more_places_than_the_newcomer() {
        let mut world = World::new(4);
        for address in ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"] {
            assert!(world.take(address, true));
        }
        assert!(!world.take("10.0.0.1", false), "it has as many as any");
        assert!(world.take("10.0.0.3", false), "two addresses cannot have everything");
        assert_eq!(world.evicted(), [0]);
        // Whoever has given way leaves the newcomer's place alone.
        drop(world.taken.remove(0));
        assert!(world.take("10.0.0.4", true), "the newcomer before was a stranger");
        assert_eq!(world.evicted(), [3]);
    }

    #[test]
    fn nobody_gives_way_to_an_address_that_has_more() {
        let mut world = World::new(4);
        for _ in 0..3 {
            assert!(world.take("10.0.0.1", true));
        }
        assert!(world.take("10.0.0.2", false), "somebody in their handshake");
        assert!(!world.take("10.0.0.1", true), "it has most places already");
        assert!(world.evicted().is_empty());
        assert!(world.take("10.0.0.3", false));
        assert_eq!(world.evicted(), [3]);
    }

    #[test]
    fn of_the_front_proxy_the_least_recently_used_gives_way() {
        let places = Places::new(2, Whose::FrontProxy);
        let address = "10.0.0.1".parse().unwrap();
        let (first, second) = (Standing::default(), Standing::default());
        let taken = [places.take(address, &first).unwrap(), places.take(address, &second).unwrap()];
        first.mark_used();
        second.mark_used();
        first.mark_used();
        assert!(places.take(address, &Standing::default()).is_some());
        assert_eq!(taken.map(|place| place.evicted.is_cancelled()), [false, true]);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        assert_eq!(
            network("2001:db8::1:2".parse().unwrap()),
            network("2001:db8::".parse::<IpAddr>().unwrap())
        );
        assert_eq!(
            network("::ffff:10.0.0.1".parse().unwrap()),
            "10.0.0.1".parse::<IpAddr>().unwrap()
        );
    }
}
