//! The state of a connection, by which the server chooses the connection to close when it has too many.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of an open connection. All its requests share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPriority(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The client's network.
    from: String,
    address: Option<IpAddr>,
    is_authenticated: AtomicBool,
    has_failed: AtomicBool,
    /// The number of the connection's last request, among the requests of all connections.
    used: AtomicU64,
}

/// The number of requests since the start of the process.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl ConnectionPriority {
    /// The state of a connection from this network.
    #[cfg(test)]
    pub fn new(from: String) -> Self {
        Self(Arc::new(Known { from, ..Known::default() }))
    }

    /// The state of a connection from this address, in this network.
    pub fn of_address(address: IpAddr, network: String) -> Self {
        let address = Some(address.to_canonical());
        Self(Arc::new(Known { from: network, address, ..Known::default() }))
    }

    /// The address of the client, if it is known.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// The client's network.
    pub fn from(&self) -> &str {
        &self.0.from
    }

    /// Records that a request was authenticated.
    pub fn mark_authenticated(&self) {
        // Most requests are not the first, and must not write to memory that other threads read.
        if !self.is_authenticated() {
            self.0.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any request was authenticated.
    pub fn is_authenticated(&self) -> bool {
        self.0.is_authenticated.load(Ordering::Relaxed)
    }

    /// Records that the token of a request was invalid.
    pub fn mark_failed(&self) {
        self.0.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a request had an invalid token, and no request was authenticated.
    pub fn is_suspect(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed) && !self.is_authenticated()
    }

    /// Records that a request has arrived.
    pub fn mark_used(&self) {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.used.store(number, Ordering::Relaxed);
    }

    /// The number of the last request; a smaller number is an earlier request.
    pub fn last_used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }
}
