//! Looks up the addresses of webhooks.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use moka::future::Cache;
use tokio::net::lookup_host;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::Busy;
use super::call_time::{CallTime, Over};

/// The largest number of concurrent lookups of all servers of this process. Each occupies a thread until the resolver
/// responds.
const LOOKUPS: usize = 16;

/// The lookups of this process.
static OF_PROCESS: LazyLock<Lookups> = LazyLock::new(|| Lookups::new(LOOKUPS));

type Found = Arc<io::Result<Vec<IpAddr>>>;

/// The reason for which no address is known.
#[derive(Debug)]
pub(super) enum LookupError {
    /// No thread was free for the lookup, because lookups of other names take long.
    Busy(Busy),
    /// The resolver took longer than the time of the call.
    Late,
    /// The resolver's error.
    Failed(io::Error),
}

/// Looks up the addresses of a host, within the time of a call.
///
/// # Errors
/// The reason, if there is no result in time, or the resolver finds no address.
pub(super) async fn addresses(
    host: &str,
    port: u16,
    time: &CallTime,
) -> Result<Vec<SocketAddr>, LookupError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let found = OF_PROCESS.look_up(host, time).await?;
    match &*found {
        Ok(addresses) => Ok(addresses.iter().map(|address| (*address, port).into()).collect()),
        Err(why) => Err(LookupError::Failed(match why.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(why.kind(), why.to_string()),
        })),
    }
}

/// A lookup that calls to the same host share. It belongs to no single call: it continues for as long as one of the
/// calls waits, regardless of the time of the other calls.
#[derive(Clone)]
struct Lookup {
    /// The time when a thread started the lookup.
    began: Arc<OnceLock<Instant>>,
    /// `None` if the thread did not finish.
    found: Shared<BoxFuture<'static, Option<Found>>>,
}

/// Lookups with a limit.
struct Lookups {
    permits: Arc<Semaphore>,
    /// The results of the last second, by host.
    found: Cache<String, Found>,
    /// The lookups that calls wait for, by host.
    waiting: Mutex<BTreeMap<String, WaitingLookup>>,
}

type WaitingLookup = (Arc<OnceLock<Instant>>, WeakShared<BoxFuture<'static, Option<Found>>>);

impl Lookups {
    fn new(permits: usize) -> Self {
        let found = Cache::builder().max_capacity(1_000).time_to_live(Duration::from_secs(1));
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            found: found.build(),
            waiting: Mutex::default(),
        }
    }

    async fn look_up(&self, host: &str, time: &CallTime) -> Result<Found, LookupError> {
        loop {
            if let Some(found) = self.found.get(host).await {
                return Ok(found);
            }
            let arrived = Instant::now();
            let Lookup { began, found } = self.lookup(host);
            let found = time.limit(found).await;
            let until = began.get().copied().unwrap_or_else(Instant::now);
            time.add_queued(until.saturating_duration_since(arrived));
            match found {
                Ok(Some(found)) => return Ok(found),
                // The lookup ended with its runtime, which may belong to another server of this process.
                Ok(None) => drop(self.lock().remove(host)),
                Err(Over) if began.get().is_some() => return Err(LookupError::Late),
                Err(Over) => {
                    let why = format!("too many names are looked up before {host}");
                    return Err(LookupError::Busy(Busy(why)));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, WaitingLookup>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The running lookup of a host, or a new one.
    fn lookup(&self, host: &str) -> Lookup {
        let mut waiting = self.lock();
        if let Some((began, found)) = waiting.get(host)
            && let Some(found) = found.upgrade()
        {
            return Lookup { began: Arc::clone(began), found };
        }
        waiting.retain(|_, (_, found)| found.upgrade().is_some());
        let began = Arc::new(OnceLock::new());
        let permits = Arc::clone(&self.permits);
        let run = look_up(host.to_owned(), permits, Arc::clone(&began), self.found.clone());
        let found = run.boxed().shared();
        if let Some(weak) = found.downgrade() {
            waiting.insert(host.to_owned(), (Arc::clone(&began), weak));
        }
        Lookup { began, found }
    }
}

/// Looks up a host. The thread of a lookup continues even if no call waits any more, so the lookup holds its permit
/// until the thread has finished.
async fn look_up(
    host: String,
    permits: Arc<Semaphore>,
    began: Arc<OnceLock<Instant>>,
    results: Cache<String, Found>,
) -> Option<Found> {
    let permit = permits.acquire_owned().await.ok()?;
    let _ = began.set(Instant::now());
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let found = lookup_host((host.as_str(), 0)).await;
        let found = Arc::new(found.map(|found| found.map(|address| address.ip()).collect()));
        drop(permit);
        results.insert(host, Arc::clone(&found)).await;
        // The calls may have stopped waiting.
        let _ = sender.send(found);
    });
    receiver.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> CallTime {
        CallTime::starting(Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn a_dns_lookup_continues_after_one_of_its_calls_times_out() {
        let lookups = Lookups::new(1);
        let held = Arc::clone(&lookups.permits).acquire_owned().await.unwrap();
        let (short, long) = (seconds(1), seconds(30));
        let mut patient = Box::pin(lookups.look_up("localhost", &long));
        // The first call to the host has little time; the second one has more.
        let refused = async {
            let hasty = lookups.look_up("localhost", &short);
            tokio::select! {
                biased;
                hasty = hasty => hasty.unwrap_err(),
                _ = &mut patient => panic!("no lookup can begin"),
            }
        };
        assert!(matches!(refused.await, LookupError::Busy(_)));
        assert!(short.excess_queued().is_some());
        // The lookup still has its position in the queue of lookups.
        let mut other = Box::pin(Arc::clone(&lookups.permits).acquire_owned());
        assert!((&mut other).now_or_never().is_none());
        drop(held);
        patient.await.unwrap().as_ref().as_ref().unwrap();
        drop(other.await.unwrap());
    }

    #[tokio::test]
    async fn an_abandoned_dns_lookup_releases_its_permit() {
        let lookups = Lookups::new(1);
        let held = Arc::clone(&lookups.permits).acquire_owned().await.unwrap();
        let time = seconds(30);
        let mut given_up = Box::pin(lookups.look_up("localhost", &time));
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        drop(held);
        assert_eq!(lookups.permits.available_permits(), 1);
        lookups.look_up("localhost", &time).await.unwrap();
        assert!(lookups.found.get("localhost").await.is_some());
    }

    #[test]
    fn a_dns_lookup_survives_the_runtime_that_started_it() {
        let lookups = Lookups::new(1);
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let time = second.block_on(async { seconds(30) });
        let mut waits = Box::pin(lookups.look_up("localhost", &time));
        first.block_on(async { assert!((&mut waits).now_or_never().is_none()) });
        drop(first);
        second.block_on(waits).unwrap();
    }
}
