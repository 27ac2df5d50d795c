//! The socket: connections are accepted until the server drains.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::open_files;
use crate::error::StartError;
use crate::occasionally::Occasionally;

/// Connections that wait to be accepted. When there are more their clients try again after a
/// second, also a probe's; the library asks for 128.
const BACKLOG: i32 = 4_096;
/// How long to wait after a connection could not be accepted: there may be no files left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long requests in flight may take when the server closes.
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
        // Asking again changes the backlog.
        let longer = rustix::net::listen(&listener, BACKLOG);
        longer.map_err(|error| fault(error.into()))?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves each connection in a task of its own, until it is told to drain. Whoever serves is
    /// told so too. Connections that come before `begin` returns wait for it.
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

/// Accepts connections until `draining` is cancelled; returns when the last one has ended. All
/// of them end when it is dropped.
async fn accept<F>(
    listener: TcpListener,
    serve: impl Fn(TcpStream, CancellationToken) -> F,
    draining: CancellationToken,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let failed = Occasionally::default();
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
                        tracing::warn!(suppressed, "a connection cannot be accepted: {error}");
                    });
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    // Whoever comes now is refused at once.
    drop(listener);
    while open.join_next().await.is_some() {}
    Ok(())
}

/// A socket that is served. Dropping it ends every connection.
pub(super) struct Serving {
    draining: CancellationToken,
    closing: CancellationToken,
    task: JoinHandle<String>,
}

impl Serving {
    /// Takes no more connections, and tells clients to send nothing more on those that there are.
    pub(super) fn begin_draining(&self) {
        self.draining.cancel();
    }

    /// The same, and returns when requests in flight have been answered.
    pub(super) async fn drain(&mut self) {
        self.begin_draining();
        if timeout(DRAIN, self.ended()).await.is_err() {
            self.closing.cancel();
            self.ended().await;
        }
    }

    /// Returns when nobody is served any more; says why.
    pub(super) async fn ended(&mut self) -> String {
        (&mut self.task).await.unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
