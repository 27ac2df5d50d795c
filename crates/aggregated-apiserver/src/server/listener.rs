//! The socket: it accepts connections until the server drains.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::open_files;
use crate::error::StartError;
use crate::log_throttle::LogThrottle;

/// The largest number of connections that wait to be accepted. Clients of further connections, health probes included,
/// retry after a second. The standard library uses 128.
const BACKLOG: i32 = 4_096;
/// The pause after a connection could not be accepted, for example because the process has too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The longest time for requests in flight when the server closes.
pub(super) const DRAIN: Duration = Duration::from_secs(60);

/// A socket that listens.
pub(super) struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    pub(super) fn bind(address: SocketAddr) -> Result<Self, StartError> {
        open_files::raise_limit();
        let fault = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        // A second call of `listen` changes the backlog.
        let longer = rustix::net::listen(&listener, BACKLOG);
        longer.map_err(|error| fault(error.into()))?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves each connection in its own task, until the server drains. `serve` receives the token that is cancelled
    /// then. Connections that arrive before `begin` returns wait for it.
    pub(super) fn serve<F>(
        self,
        begin: impl Future<Output = ()> + Send + 'static,
        serve: impl Fn(TcpStream, CancellationToken) -> F + Send + 'static,
    ) -> Serving
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (draining, closing) = (CancellationToken::new(), CancellationToken::new());
        let (drained, closed) = (draining.clone(), closing.clone());
        let accepting = async move {
            drained.run_until_cancelled(begin).await;
            accept(self.listener, serve, drained).await
        };
        let task = tokio::spawn(async move {
            match closed.run_until_cancelled(accepting).await {
                Some(Err(error)) => error.to_string(),
                Some(Ok(())) | None => "the listener is closed".to_owned(),
            }
        });
        Serving { draining, closing, task }
    }
}

/// Accepts connections until `draining` is cancelled, and returns when the last connection has ended. All connections
/// end when the future is dropped.
async fn accept<F>(
    listener: TcpListener,
    serve: impl Fn(TcpStream, CancellationToken) -> F,
    draining: CancellationToken,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let failed = LogThrottle::default();
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = draining.cancelled() => break,
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    open.spawn(serve(stream, draining.clone()));
                }
                Err(error) => {
                    failed.log(|suppressed| {
                        tracing::warn!(suppressed, %error, "cannot accept a connection");
                    });
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    // New connections are refused from here on.
    drop(listener);
    while open.join_next().await.is_some() {}
    Ok(())
}

/// A socket that is served. Dropping this value ends every connection.
pub(super) struct Serving {
    draining: CancellationToken,
    closing: CancellationToken,
    task: JoinHandle<String>,
}

impl Serving {
    /// Accepts no more connections, and tells clients to send no more requests on open connections.
    pub(super) fn begin_draining(&self) {
        self.draining.cancel();
    }

    /// Drains the server and returns when requests in flight have been answered.
    pub(super) async fn drain(&mut self) {
        self.begin_draining();
        if timeout(DRAIN, self.ended()).await.is_err() {
            self.closing.cancel();
            self.ended().await;
        }
    }

    /// Returns the reason when no connection is served any more.
    pub(super) async fn ended(&mut self) -> String {
        (&mut self.task).await.unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
