//! Looks up the addresses of webhooks.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::lookup_host;
use tokio::sync::oneshot;

use super::turns::Turns;

/// Lookups at a time, and of one name. Each occupies a thread until the resolver answers.
static LOOKUPS: Turns = Turns::new(16, 4);

/// Looks up the addresses of a host. The thread of a lookup goes on when its caller stops waiting, so the lookup holds
/// its turn until the thread has ended.
///
/// # Errors
/// When the host is not found.
pub(super) async fn addresses(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (mut sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let turn = tokio::select! {
            turn = LOOKUPS.take(&host) => turn,
            () = sender.closed() => return,
        };
        let found = lookup_host((host.as_str(), port)).await;
        let found = found.map(Iterator::collect);
        drop(turn);
        // The caller may have stopped waiting.
        let _ = sender.send(found);
    });
    receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
}
