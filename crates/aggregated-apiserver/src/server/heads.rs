//! Memory for the heads of requests that have arrived and are not processed yet, because HTTP reads heads faster than
//! they are processed.

use std::sync::Arc;

use http::Request;

use crate::quota::{Limiter, Permit, Share};
use crate::request::head;

/// The unit in which heads are counted, in bytes.
const UNIT: usize = 1 << 10;
/// The limit of the heads of all connections without the front proxy, in units. One network may use a quarter of it.
const ALL: usize = 16 << 10;
/// The limit of the heads of one connection, in units.
const OF_CONNECTION: usize = 1 << 10;
/// The largest size of a head that is not counted, in units. Processing its request uses more memory.
const SMALL: usize = 2;

/// The memory for the heads of all connections.
pub(super) struct Heads(Limiter);

/// The memory for the heads of one connection.
pub(super) struct ConnectionHeads {
    network: String,
    own: Limiter,
    all: Limiter,
}

/// The memory for one head, until it is dropped.
#[derive(Clone)]
struct Room(#[allow(dead_code)] Arc<(Permit, Permit)>);

/// There is no memory for a head.
#[derive(Debug)]
pub(super) struct Full;

impl Heads {
    pub(super) fn new() -> Self {
        Self(Limiter::new(ALL, Share::PartOfRest(4)))
    }

    /// The memory for a connection from this network.
    pub(super) fn of_connection(&self, network: &str) -> ConnectionHeads {
        let (own, all) = (Limiter::new(OF_CONNECTION, Share::All), self.0.clone());
        ConnectionHeads { network: network.to_owned(), own, all }
    }
}

impl ConnectionHeads {
    /// The same request, which holds the memory for its head. Without memory the request is dropped.
    pub(super) fn admit<B>(&self, mut request: Request<B>) -> Result<Request<B>, Full> {
        let units = head::memory(request.uri(), request.headers()).div_ceil(UNIT);
        if units > SMALL {
            let own = self.own.try_acquire("", units).ok_or(Full)?;
            let all = self.all.try_acquire(&self.network, units).ok_or(Full)?;
            request.extensions_mut().insert(Room(Arc::new((own, all))));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(length: usize) -> Request<()> {
        Request::get("/x").header("x", "x".repeat(length)).body(()).unwrap()
    }

    #[test]
    fn heads_are_bounded_by_connection_and_by_network() {
        let heads = Heads::new();
        let admit_all = |connection: &ConnectionHeads| -> Vec<_> {
            std::iter::from_fn(|| connection.admit(request(30 << 10)).ok()).collect()
        };
        let first = heads.of_connection("a");
        let held = admit_all(&first);
        assert_eq!(held.len(), 33);
        assert!(first.admit(request(100)).is_ok(), "small ones are not counted");
        let connections: Vec<_> = (0..20).map(|_| heads.of_connection("a")).collect();
        let others: Vec<_> = connections.iter().map(admit_all).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>() + held.len(), 132, "4 MiB");
        assert_eq!(admit_all(&heads.of_connection("b")).len(), 33, "another has room");
        drop(held);
        assert!(first.admit(request(30 << 10)).is_ok());
    }
}
