//! Servers of `aggregated-apiserver` in the process of a test, with the clusters that they ask and the clients that send
//! requests to them. A failure panics, because the callers are tests.

#![allow(clippy::unwrap_used, reason = "a failure in a test panics")]

mod clients;
mod fake_cluster;
mod listening;
pub mod process_memory;
mod servers;

pub use clients::{
    Events, admin, ask, ask_as, client, client_without_retries, config, request, send, user,
    wait_until_served,
};
pub use fake_cluster::FakeCluster;
pub use listening::{ListeningServer, UNKNOWN, foo_server};
pub use servers::{
    DEFINITION, WEBHOOKS, api_server, audited_server, audited_server_of, permissive_cluster,
    server, server_of, server_of_all, server_of_kinds_for_all, server_with_store, traced_server,
    unreachable_cluster, without_webhooks,
};
