//! The state of a connection by which the server decides which connection is closed first.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of an open connection. All its requests share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPriority(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The network of the client.
    from: String,
    address: Option<IpAddr>,
    is_authenticated: AtomicBool,
    has_failed: AtomicBool,
    /// The number of the last request of the connection, among the requests of all connections.
    used: AtomicU64,
}

/// The number of requests so far.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl ConnectionPriority {
    /// The state of a connection from this network.
    #[cfg(test)]
    pub fn new(from: String) -> Self {
        Self(Arc::new(Known { from, ..Known::default() }))
    }

    /// The state of a connection from this address in this network.
    pub fn of_address(address: IpAddr, network: String) -> Self {
        let address = Some(address.to_canonical());
        Self(Arc::new(Known { from: network, address, ..Known::default() }))
    }

    /// The remote address, if it is known.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// The network of the client.
    pub fn from(&self) -> &str {
        &self.0.from
    }

    /// Records that the credentials of a request were valid.
    pub fn mark_authenticated(&self) {
        // Most requests find the flag set, and do not write to shared memory.
        if !self.is_authenticated() {
            self.0.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the credentials of a request were valid.
    pub fn is_authenticated(&self) -> bool {
        self.0.is_authenticated.load(Ordering::Relaxed)
    }

    /// Records that the token of a request was invalid.
    pub fn mark_failed(&self) {
        self.0.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the token of a request was invalid, and no other credentials were valid.
    pub fn is_suspect(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed) && !self.is_authenticated()
    }

    /// Records a request.
    pub fn mark_used(&self) {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.used.store(number, Ordering::Relaxed);
    }

    /// The number of the last request: the smaller, the longer ago.
    pub fn last_used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }
}
