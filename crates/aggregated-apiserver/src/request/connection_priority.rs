//! What is known of a connection: by it the server decides which one gives way.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of a connection while it is open. All its requests share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPriority(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The network that it comes from.
    from: String,
    address: Option<IpAddr>,
    is_authenticated: AtomicBool,
    has_failed: AtomicBool,
    /// The number of its last request, among those of all connections.
    used: AtomicU64,
}

/// How many requests have come.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl ConnectionPriority {
    /// Of a connection from this network.
    #[cfg(test)]
    pub fn new(from: String) -> Self {
        Self(Arc::new(Known { from, ..Known::default() }))
    }

    /// Of a connection from this address, in this network.
    pub fn of_address(address: IpAddr, network: String) -> Self {
        let address = Some(address.to_canonical());
        Self(Arc::new(Known { from: network, address, ..Known::default() }))
    }

    /// The other end, if it is known.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Where it comes from.
    pub fn from(&self) -> &str {
        &self.0.from
    }

    /// Notes that the credentials of a request held.
    pub fn mark_authenticated(&self) {
        // Most requests find it so, and write to no memory that others read.
        if !self.is_authenticated() {
            self.0.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the credentials of a request held.
    pub fn is_authenticated(&self) -> bool {
        self.0.is_authenticated.load(Ordering::Relaxed)
    }

    /// Notes that the token of a request was nobody's.
    pub fn mark_failed(&self) {
        self.0.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the token of a request was nobody's, and no other has held.
    pub fn is_suspect(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed) && !self.is_authenticated()
    }

    /// Notes that a request has come.
    pub fn mark_used(&self) {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.used.store(number, Ordering::Relaxed);
    }

    /// When the last request came: the smaller, the longer ago.
    pub fn last_used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }
}
