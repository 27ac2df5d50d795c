//! Looks up the addresses of webhooks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Busy;
use super::turns::{Caller, Turns};

/// Lookups at a time, and of one name. Each occupies a thread until the resolver answers.
static LOOKUPS: Turns = Turns::new(16, 4);

/// Looks up the addresses of a host, for a call that may take so long. The thread of a lookup goes on when its caller
/// stops waiting, so the lookup holds its turn until the thread has ended.
///
/// # Errors
/// When no lookup could begin within half of the time. The inner error is the resolver's.
pub(super) async fn addresses(
    host: String,
    port: u16,
    time: Duration,
) -> Result<io::Result<Vec<SocketAddr>>, Busy> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Ok(vec![(address, port).into()]));
    }
    let (mut sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let caller = Caller { webhook: &host, user: "" };
        let turn = tokio::select! {
            turn = timeout(time / 2, LOOKUPS.take(caller)) => turn,
            () = sender.closed() => return,
        };
        let Ok(Ok(turn)) = turn else {
            let _ = sender.send(Err(Busy(format!("too many lookups of {host} wait"))));
            return;
        };
        let found = lookup_host((host.as_str(), port)).await;
        let found = found.map(Iterator::collect);
        drop(turn);
        // The caller may have stopped waiting.
        let _ = sender.send(Ok(found));
    });
    receiver.await.unwrap_or_else(|_| Ok(Err(io::ErrorKind::Interrupted.into())))
}
