//! Looks up the addresses of webhooks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moka::future::Cache;
use tokio::net::lookup_host;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::Busy;

/// Lookups at a time, of all servers of this process: each occupies a thread until the resolver answers.
static LOOKUPS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(16)));

/// The lookups of the last moment, by host. Calls of the same host share a lookup.
static FOUND: LazyLock<Cache<String, Found>> = LazyLock::new(|| {
    Cache::builder().max_capacity(1_000).time_to_live(Duration::from_secs(1)).build()
});

type Found = Arc<io::Result<Vec<IpAddr>>>;

/// Looks up the addresses of a host, for a call that may take so long.
///
/// # Errors
/// When no lookup could begin within half of the time, because lookups of other hosts take long. The inner error is the
/// resolver's.
pub(super) async fn addresses(
    host: String,
    port: u16,
    time: Duration,
) -> Result<io::Result<Vec<SocketAddr>>, Busy> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Ok(vec![(address, port).into()]));
    }
    let found = FOUND.try_get_with_by_ref(host.as_str(), look_up(host.clone(), time)).await;
    let found = found.map_err(|busy| Busy(busy.to_string()))?;
    Ok(match &*found {
        Ok(addresses) => Ok(addresses.iter().map(|address| (*address, port).into()).collect()),
        Err(why) => Err(match why.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(why.kind(), why.to_string()),
        }),
    })
}

/// Looks up a host. The thread of a lookup goes on when its caller stops waiting, so the lookup holds its permit until the
/// thread has ended.
async fn look_up(host: String, time: Duration) -> Result<Found, Busy> {
    let permit = timeout(time / 2, Arc::clone(&LOOKUPS).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(Busy(format!("too many names are looked up before {host}")));
    };
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let found = lookup_host((host.as_str(), 0)).await;
        let found = found.map(|found| found.map(|address| address.ip()).collect());
        drop(permit);
        // The caller may have stopped waiting.
        let _ = sender.send(Arc::new(found));
    });
    let interrupted = || Arc::new(Err(io::ErrorKind::Interrupted.into()));
    Ok(receiver.await.unwrap_or_else(|_| interrupted()))
}
